#!/bin/sh
# Fetches Debian 12's Xen and a kernel for its dom0 into the folder xen of unspin's cache. Builds the
# hypervisor from Debian's source, because Debian's lacks shadow paging. Installs nothing. Does
# nothing if the hypervisor is there. UNSPIN_DEBIAN_MIRROR names a mirror of Debian's archive.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=scripts/cache.sh
. scripts/cache.sh

out=$(unspin_cache)/xen
KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
PACKAGES="xen-utils-4.17 xenstore-utils libxencall1 libxendevicemodel1 libxenevtchn1 libxenforeignmemory1
    libxengnttab1 libxenhypfs1 libxenmisc4.17 libxenstore4 libxentoolcore1 libxentoollog1 libyajl2"

[ ! -f "$out/xen" ] || exit 0
for program in apt-get dpkg-deb dpkg-source gcc make bison flex patch python3; do
    command -v "$program" > /dev/null || { echo "xen.sh: needs $program" >&2; exit 1; }
done
[ -f "$KEYS" ] || { echo "xen.sh: needs the package debian-archive-keyring" >&2; exit 1; }

# A mirror of Debian's archive that apt uses here.
# shellcheck disable=SC2016 # a format of apt
mirror=${UNSPIN_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' |
    grep '/debian/*$' | head -n 1)}
if [ -z "$mirror" ]; then
    echo "xen.sh: apt uses no mirror of Debian here: name one in UNSPIN_DEBIAN_MIRROR" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/root" "$work/debs"
for type in deb deb-src; do
    echo "$type [signed-by=$KEYS arch=amd64] $mirror bookworm main"
done > "$work/sources.list"
# apt's own index, so that this system's sources do not matter.
cat > "$work/apt.conf" <<EOF
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$work/lists";
Dir::Cache "$work/cache";
APT::Sandbox::User "$(id -un)";
EOF
export APT_CONFIG="$work/apt.conf"
log=$work/log
quietly() { "$@" > "$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }; }

echo "xen: fetching Debian 12's Xen and Linux"
cd "$work/debs"
quietly apt-get update
linux=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p')
# shellcheck disable=SC2086 # a list
quietly apt-get download $PACKAGES "$linux"
for package in *.deb; do dpkg-deb -x "$package" "$work/root"; done

echo "xen: building the hypervisor with shadow paging"
cd "$work"
quietly apt-get source --download-only xen
quietly dpkg-source -x xen_*.dsc source
# Debian's configuration with one change. The version has no time and no user in it.
sed '/CONFIG_SHADOW_PAGING/d' source/debian/xen-kconfig > source/xen/.config
echo CONFIG_SHADOW_PAGING=y >> source/xen/.config
export XEN_BUILD_DATE=unknown XEN_BUILD_TIME=unknown XEN_WHOAMI=unspin XEN_BUILD_HOST=unspin XEN_DOMAIN=unspin
quietly make -C source/xen olddefconfig
grep -q '^CONFIG_SHADOW_PAGING=y' source/xen/.config || { echo "xen: no shadow paging" >&2; exit 1; }
quietly make -C source/xen -j"$(nproc)"
mkdir -p "$out"
rm -rf "$out/root"
# Of the thousands of modules, dom0 needs few.
cd "$work/root/lib/modules"
find . -name '*.ko*' ! -path '*xen*' ! -name 'loop.ko*' -delete
cd "$work"
cp -a "$work/root" "$out/root"
# QEMU does not unpack a hypervisor.
gunzip -c source/xen/xen.gz > "$out/xen.part"
mv "$out/xen.part" "$out/xen"
echo "xen: $out"
