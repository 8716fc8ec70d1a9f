#!/bin/sh
# install.sh RELEASE PREFIX [DESTDIR]: installs the programs of the folder RELEASE, the man
# pages, the shell completions and the systemd unit below PREFIX; with DESTDIR, into that
# folder instead of /, as packages are made.
set -eu
sources=$(dirname "$0")/..
release=$1
prefix=${3-}$2
install -D -t "$prefix/bin" "$release/unspin" "$release/spinbench" "$release/holdbench" \
    "$release/microbench"
# The lab looks for its guests' init here; it is no command.
install -D -t "$prefix/libexec/unspin" "$release/unspin-init"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$release/unspin" man "$work/man"
install -D -m 644 -t "$prefix/share/man/man1" "$work"/man/*.1
completion() {
    "$release/unspin" completions "$1" >"$work/$1"
    install -D -m 644 "$work/$1" "$prefix/share/$2"
}
completion bash bash-completion/completions/unspin
completion zsh zsh/site-functions/_unspin
completion fish fish/vendor_completions.d/unspin.fish

sed "s|@PREFIX@|$2|" "$sources/dist/unspin.service.in" >"$work/unspin.service"
install -D -m 644 -t "$prefix/lib/systemd/system" "$work/unspin.service"
