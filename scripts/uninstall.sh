#!/bin/sh
# uninstall.sh RELEASE PREFIX [DESTDIR]: removes what install.sh with the same arguments installs,
# and the folders of its own. Services are stopped first; settings in /etc/default stay.
set -eu
folder=$(dirname "$0")
release=$1
prefix=$2
root=${3-}
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl disable --now unspin unspin-watch 2>/dev/null || true
fi
if [ ! -x "$release/unspin" ]; then
    echo "the list of files comes from what was built: run 'make build' first, not as root" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$folder/install.sh" "$release" "$prefix" "$work"
(cd "$work" && find . -type f) | while read -r file; do
    rm -f "$root/$file"
done
(cd "$work" && find . -depth -type d -name unspin) | while read -r own; do
    rmdir "$root/$own" 2>/dev/null || true
done
rmdir "$root$prefix/share/unspin/prometheus" "$root$prefix/share/unspin/grafana" \
    "$root$prefix/share/unspin" 2>/dev/null || true
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
