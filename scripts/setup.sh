#!/bin/sh
# Installs the packages that building and running unspin needs on Debian 12, Debian 13 and Ubuntu
# 24.04 or later. It installs only missing packages, and replaces and removes none. If nothing is
# missing, it changes nothing and takes less than a second.
set -eu
cd "$(dirname "$0")/.."
. scripts/rust.sh

BUILD="gcc make pkg-config libc6-dev libelf-dev zlib1g-dev git ca-certificates"
LAB="qemu-system-x86"
TESTS="shellcheck"
KERNEL="flex bison bc binutils libssl-dev dwarves kmod patch perl cpio rsync tar xz-utils zstd debian-archive-keyring"
QEMU="gcc binutils libc6-dev libglib2.0-dev zlib1g-dev ninja-build pkg-config python3 python3-venv patch tar xz-utils debian-archive-keyring"
CLANG_OLDEST=16

say() { echo "setup: $*"; }

die() {
    say "$*" >&2
    exit 1
}

may_install() {
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null
}

# need_root WHY PACKAGE...: without the right to install, prints the missing packages and the next
# step. Callers call it before they redirect output to the log, where users would miss the message.
need_root() {
    ! may_install || return 0
    why=$1
    shift
    die "missing for $why: $*
Installing needs root, and sudo is not installed. As root, run:
    apt-get update && apt-get install --no-install-recommends --no-remove $*
then run the same command again"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# missing PACKAGE...: prints the packages that are not installed.
missing() {
    for package in "$@"; do
        installed "$package" || printf '%s ' "$package"
    done
}

# Packages busybox and busybox-static exclude each other. The lab uses the busybox on PATH, and
# copies its libraries too. Guests with package busybox have another base image, and thus another
# identity.
busybox_package() {
    installed busybox || echo busybox-static
}

# Prints the packages that the workloads name, each once.
workload_packages() {
    awk -F'[][]' '/^packages *=/ { gsub(/[",]/, " ", $2); print $2 }' workloads/*.toml |
        tr ' ' '\n' | sed '/^$/d' | sort -u
}

updated=no
update_index() {
    [ "$updated" = no ] || return 0
    # need_root lists the missing packages later, from the existing index.
    may_install || return 0
    say "updating the package index"
    apt_get update -q
    updated=yes
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        die "apt-get $1 failed"
    }
}

# install WHY PACKAGE...: prints the missing packages and the reason, and installs them.
install() {
    why=$1
    shift
    list=$(missing "$@")
    [ -n "$list" ] || return 0
    # shellcheck disable=SC2086 # a list
    need_root "$why" $list
    update_index
    say "installing for $why: $list"
    # shellcheck disable=SC2086 # a list
    apt_get install -q -y --no-install-recommends --no-remove $list
}

# candidate PACKAGE: prints the version that apt would install, or nothing if apt knows none.
candidate() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null |
        awk '/Candidate:/ && $2 != "(none)" { sub(/^[0-9]+:/, "", $2); print $2 }'
}

# newest PREFIX OLDEST: prints the highest-numbered package PREFIX<number>, from OLDEST on.
newest() {
    apt-cache pkgnames "$1" | sed -n "s/^$1\([0-9][0-9]*\)$/\1/p" | sort -rn |
        awk -v oldest="$2" -v prefix="$1" '$1 >= oldest { print prefix $1; exit }'
}

# clang compiles the BPF programs. We test with 19. The system's default stays unchanged.
setup_clang() {
    for version in $(seq "$CLANG_OLDEST" 40); do
        [ ! -x "/usr/bin/clang-$version" ] || return 0
    done
    update_index
    package=clang-19
    [ -n "$(candidate "$package")" ] || package=$(newest clang- "$CLANG_OLDEST")
    [ -n "$package" ] || die "no package of clang $CLANG_OLDEST or newer in this system's sources"
    install "BPF programs" "$package"
}

# Debian 13 and the latest Ubuntu have a rustc that is new enough. Debian 12 has a second, newer one
# as rustc-web. Ubuntu 24.04 has a package for each version.
rust_packages() {
    needed=$(rust_needed)
    for set in "rustc cargo rustfmt rust-clippy" "rustc-web cargo-web rustfmt-web rust-web-clippy"; do
        version=$(candidate "${set%% *}")
        if [ -n "$version" ] && dpkg --compare-versions "$version" ge "$needed"; then
            echo "$set"
            return
        fi
    done
    package=$(newest rustc-1. "${needed#1.}")
    number=${package#rustc-}
    [ -z "$package" ] || echo "rustc-$number cargo-$number rustfmt-$number rust-$number-clippy"
}

# If the user's default toolchain is too old, with-rust uses rustup's stable. The default stays.
has_rust() {
    scripts/with-rust true 2>/dev/null
}

setup_rust() {
    ! has_rust || return 0
    if command -v rustup >/dev/null; then
        say "installing for the program itself: Rust's stable toolchain, by the rustup that is here"
        rustup toolchain install stable --profile minimal --component clippy,rustfmt
    else
        update_index
        packages=$(rust_packages)
        # shellcheck disable=SC2086 # a list
        [ -z "$packages" ] || install "the program itself (Rust)" $packages
    fi
    has_rust || die "Rust $(rust_needed) or newer with rustfmt and clippy is needed, and this
system's sources have none: install it with rustup, then run the same command again"
}

[ "$(uname -m)" = x86_64 ] || die "unspin is for x86_64, and this machine is $(uname -m)"
command -v apt-get >/dev/null || die "this script knows Debian and Ubuntu; elsewhere, install what it names by hand"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM
# shellcheck disable=SC2046,SC2086 # lists
{
    # Names all packages at once, so that the user has to install only once.
    may_install || all=$(missing $BUILD $LAB $(busybox_package) $TESTS $(workload_packages) $KERNEL $QEMU |
        tr ' ' '\n' | sort -u)
    [ -z "${all-}" ] || need_root "building, the lab and its kernels" $all
    install "building" $BUILD
    install "the lab's virtual machines" $LAB $(busybox_package)
    install "checking shell scripts" $TESTS
    install "the lab's workloads" $(workload_packages)
    install "building and fetching guest kernels" $KERNEL
    install "building the QEMU for virtual time" $QEMU
}
setup_clang
setup_rust
[ "$updated" = no ] || say "done"
