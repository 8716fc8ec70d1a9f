#!/bin/sh
# deb.sh [VERSION [FOLDER]]: makes a Debian package from target/dist/root, which dist.sh fills.
# FOLDER is target/dist by default. VERSION is a Debian version with a revision; by default, it is
# the version in Cargo.toml with revision 1. The first call builds cargo-deb into unspin's cache.
# Prints the package's path.
set -eu
# shellcheck source=scripts/cache.sh
. "$(dirname "$0")/cache.sh"
cache=$(unspin_cache)
cd "$(dirname "$0")/.."
CARGO_DEB=3.8.0
dist=target/dist
version=${1:-$(awk -F'"' '/^version/ { print $2; exit }' Cargo.toml)-1}
folder=${2:-$dist}
[ -x "$dist/root/usr/bin/unspin" ] || { echo "run 'make dist' first" >&2; exit 1; }
: "${SOURCE_DATE_EPOCH:=$(git -c safe.directory='*' log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

tools=$cache/tools/cargo-deb-$CARGO_DEB
[ -x "$tools/bin/cargo-deb" ] || {
    echo "building cargo-deb $CARGO_DEB into $tools (minutes)" >&2
    scripts/with-rust cargo install --quiet --locked --root "$tools" --version "$CARGO_DEB" cargo-deb >&2
}

# Converts the newest version's changes in CHANGELOG.md to Debian's form.
changes() {
    awk '/^## \[[0-9]/ { if (found++) exit }
        /^### / { limits = /Known limits/ }
        !found || limits { next }
        /^- / { sub(/^- /, "  * "); entry = 1 }
        /^$/ { entry = 0 }
        entry { gsub(/`/, ""); print }' CHANGELOG.md | fold -s -w 76 |
        sed 's/ *$//; /^  \*/!s/^ */    /'
}
{
    printf 'unspin (%s) unstable; urgency=medium\n\n' "$version"
    changes
    printf '\n -- The unspin contributors <maintainers@unspin.invalid>  %s\n' \
        "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
} >"$dist/changelog"

mkdir -p "$folder"
# cargo-deb prints the package's path.
scripts/with-rust "$tools/bin/cargo-deb" --quiet --manifest-path crates/unspin/Cargo.toml --no-build \
    --no-strip --locked --deb-version "$version" --output "$folder/unspin_${version}_amd64.deb"
