# shellcheck shell=sh
# Sourced. Finds a Rust toolchain that is new enough, and changes nothing. The caller's working
# directory is the repository's root.

# Prints the version of the oldest rustc that builds the workspace, such as 1.85.
rust_needed() {
    awk -F'"' '/^rust-version/ { print $2; exit }' Cargo.toml
}

# rust_in DIR: whether DIR has cargo, rustfmt, clippy and a rustc that is new enough.
rust_in() {
    for program in cargo rustc rustfmt cargo-clippy; do
        [ -x "$1/$program" ] || return 1
    done
    version=$("$1/rustc" --version 2>/dev/null | awk '{ print $2 }')
    # rustup installs proxies even for missing components, so existence is not enough.
    "$1/rustfmt" --version >/dev/null 2>&1 && "$1/cargo-clippy" --version >/dev/null 2>&1 &&
        [ -n "$version" ] && dpkg --compare-versions "$version" ge "$(rust_needed)"
}

# Prints the folder of the first suitable toolchain: the one on PATH, rustup's, and the versioned
# packages of Ubuntu, the newest first.
rust_find() {
    for dir in \
        "$(dirname "$(command -v cargo || echo /none/cargo)")" \
        "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin" \
        $(find /usr/lib -maxdepth 1 -name 'rust-1.*' 2>/dev/null | sort -rV | sed 's,$,/bin,'); do
        if rust_in "$dir"; then
            echo "$dir"
            return
        fi
    done
    return 1
}
