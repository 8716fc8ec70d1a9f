#!/bin/sh
# deb.sh [VERSION [FOLDER]]: makes a Debian package of target/dist/root, which dist.sh fills,
# in FOLDER (target/dist). VERSION is Debian's, with a revision; without it, that of Cargo.toml
# and revision 1. The first time it builds cargo-deb into unspin's cache. Prints the package's
# path.
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

# Debian's form of CHANGELOG.md: the changes of the newest version.
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
# It prints the path.
scripts/with-rust "$tools/bin/cargo-deb" --quiet --manifest-path crates/unspin/Cargo.toml --no-build \
    --no-strip --locked --deb-version "$version" --output "$folder/unspin_${version}_amd64.deb"
