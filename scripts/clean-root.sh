#!/bin/sh
# clean-root.sh SUITE: prints the path of a tarball of a minimal system with systemd: Debian
# bookworm or trixie, or Ubuntu noble. mmdebstrap makes it from the mirror that apt uses here.
# Ubuntu comes from /ubuntu on the same mirror. The tarball stays in unspin's cache for 30 days.
# Needs root. Exit code 77: this machine cannot make the suite.
set -eu
suite=$1
# shellcheck source=scripts/cache.sh
. "$(dirname "$0")/cache.sh"
cache=$(unspin_cache)/roots
tarball=$cache/$suite.tar
KEEP_DAYS=30

cannot() {
    echo "$suite: $*" >&2
    exit 77
}

if [ -n "$(find "$tarball" -mtime "-$KEEP_DAYS" 2>/dev/null)" ]; then
    echo "$tarball"
    exit
fi
[ "$(id -u)" -eq 0 ] || cannot "making a root file system takes root"
command -v mmdebstrap >/dev/null || cannot "mmdebstrap is missing: apt install mmdebstrap"
mkdir -p "$cache"
work=$(mktemp -d)
# The name is unique to this process, because two processes may make the same suite at once.
part=$tarball.part.$$
trap 'rm -rf "$work" "$part"' EXIT
trap 'exit 130' INT TERM

# The base address of Debian's archive in apt's sources, such as http://mirror/debian/.
# shellcheck disable=SC2016 # apt's variable
debian=$(apt-get indextargets 'Created-By: Packages' 'Origin: Debian' --format '$(REPO_URI)' |
    grep '/debian/*$' | head -n 1)
[ -n "$debian" ] || cannot "apt has no source of Debian here"

# Debian's trixie has a package with the keys of Ubuntu's archive. apt verifies the package.
ubuntu_keys() {
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$keys] $debian trixie main" >"$work/sources.list"
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    set -- -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root
    apt-get "$@" update >&2 && (cd "$work" && apt-get "$@" download ubuntu-keyring >&2) &&
        dpkg-deb -x "$work"/ubuntu-keyring_*.deb "$work"
}

case $suite in
noble)
    mirror=$(echo "$debian" | sed 's,/debian/*$,/ubuntu/,')
    ubuntu_keys || cannot "the keys of Ubuntu's archive cannot be fetched"
    keyring=$work/usr/share/keyrings/ubuntu-archive-keyring.gpg
    /usr/lib/apt/apt-helper -qq -o APT::Sandbox::User=root download-file "${mirror}dists/$suite/InRelease" "$work/InRelease" >&2 ||
        cannot "apt's mirror has no Ubuntu"
    ;;
*)
    mirror=$debian
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    ;;
esac
echo "making a minimal $suite (a minute)" >&2
mmdebstrap --quiet --mode=root --variant=minbase --components=main --include=apt,systemd \
    --keyring="$keyring" --format=tar "$suite" "$part" "$mirror" >&2
mv "$part" "$tarball"
echo "$tarball"
