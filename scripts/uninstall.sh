#!/bin/sh
# uninstall.sh PREFIX [DESTDIR]: removes the files that install.sh installed, and its own folders.
# It stops services first; settings in /etc/default stay. The installed program provides the list of
# files, so the script needs no build.
set -eu
folder=$(dirname "$0")
prefix=$1
root=${2-}
if [ ! -x "$root$prefix/bin/unspin" ]; then
    echo "unspin is not installed below $root$prefix: set PREFIX as for 'make install'" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/programs" "$work/files"
cp "$root$prefix/bin/unspin" "$work/programs"
# The installed version may have other programs than this checkout. For the list, their names are
# enough.
for program in $("$folder/install.sh" --programs); do
    : >"$work/programs/$program"
done
"$folder/install.sh" "$work/programs" "$prefix" "$work/files"
for file in "$root$prefix/lib/unspin"/*; do
    [ ! -f "$file" ] || : >"$work/files$prefix/lib/unspin/${file##*/}"
done
# The program comes last, because an interrupted call can be repeated as long as it exists.
(cd "$work/files" && find . -type f ! -path ".$prefix/bin/unspin") >"$work/list"
echo ".$prefix/bin/unspin" >>"$work/list"

# Whether to change systemd's units: not for a DESTDIR, and only root may.
rules_systemd() {
    [ -z "$root" ] && [ -d /run/systemd/system ] && [ "$(id -u)" -eq 0 ]
}

# A unit of that name may belong to another installation, such as the Debian package's.
stop() {
    of=$(systemctl show -P FragmentPath "$1" 2>/dev/null) || return 0
    ours=$(readlink -f "$prefix/lib/systemd/system/$1.service") || return 0
    [ "$(readlink -f "$of")" = "$ours" ] || return 0
    systemctl disable --now "$1" 2>/dev/null || echo "$1 cannot be stopped" >&2
}

if rules_systemd; then
    stop unspin
    stop unspin-watch
fi
while IFS= read -r file; do
    rm -f "$root/$file"
done <"$work/list"
(cd "$work/files" && find . -depth -type d -name unspin) | while IFS= read -r own; do
    rmdir "$root/$own" 2>/dev/null || true
done
rmdir "$root$prefix/share/unspin/prometheus" "$root$prefix/share/unspin/grafana" \
    "$root$prefix/share/unspin" 2>/dev/null || true
# A failure of systemd does not matter now, because the files are removed.
if rules_systemd; then
    systemctl daemon-reload || true
fi
