#!/bin/sh
# install.sh RELEASE PREFIX: installs the programs of the folder RELEASE, the man pages and
# the shell completions below PREFIX.
set -eu
release=$1
prefix=$2
install -D -t "$prefix/bin" "$release/unspin" "$release/spinbench" "$release/holdbench"

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
