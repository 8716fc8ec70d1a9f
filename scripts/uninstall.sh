#!/bin/sh
# uninstall.sh PREFIX [DESTDIR]: removes what install.sh installed there, and the folders of its
# own. Services are stopped first; settings in /etc/default stay. The installed programs give
# the list of files, so it needs no build.
set -eu
folder=$(dirname "$0")
prefix=$1
root=${2-}
if [ ! -x "$root$prefix/bin/unspin" ]; then
    echo "unspin is not installed below $root$prefix: set PREFIX as for 'make install'" >&2
    exit 1
fi
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl disable --now unspin unspin-watch 2>/dev/null || true
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/programs" "$work/files"
cp "$root$prefix/bin/unspin" "$root$prefix/lib/unspin/"* "$work/programs"
"$folder/install.sh" "$work/programs" "$prefix" "$work/files"
(cd "$work/files" && find . -type f) | while read -r file; do
    rm -f "$root/$file"
done
(cd "$work/files" && find . -depth -type d -name unspin) | while read -r own; do
    rmdir "$root/$own" 2>/dev/null || true
done
rmdir "$root$prefix/share/unspin/prometheus" "$root$prefix/share/unspin/grafana" \
    "$root$prefix/share/unspin" 2>/dev/null || true
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
