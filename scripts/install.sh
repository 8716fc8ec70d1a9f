#!/bin/sh
# install.sh RELEASE PREFIX [DESTDIR]: installs the programs of the folder RELEASE, the man
# pages, the shell completions, the systemd units, and the rules and dashboard for Prometheus
# and Grafana below PREFIX; with DESTDIR, into that folder instead of /, as packages are made.
set -eu
sources=$(dirname "$0")/..
release=$1
prefix=${3-}$2
install -D -t "$prefix/bin" "$release/unspin"
# What the lab runs in its guests, their init included; unspin looks for them there.
install -D -t "$prefix/lib/unspin" "$release/unspin-init" "$release/spinbench" \
    "$release/holdbench" "$release/microbench" "$release/phasebench"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$release/unspin" man "$work/man"
install -D -m 644 -t "$prefix/share/man/man1" "$work"/man/*.1
completion() {
    "$release/unspin" completions "$1" >"$work/$1"
    install -D -m 644 "$work/$1" "$prefix/share/$2"
}
completion bash bash-completion/completions/unspin
completion zsh "${ZSH_FOLDER:-zsh/site-functions}/_unspin"
completion fish fish/vendor_completions.d/unspin.fish

for unit in unspin unspin-watch; do
    sed "s|@PREFIX@|$2|" "$sources/packaging/systemd/$unit.service.in" >"$work/$unit.service"
    install -D -m 644 -t "$prefix/lib/systemd/system" "$work/$unit.service"
done

packaging="$sources/packaging"
install -D -m 644 -t "$prefix/share/unspin/prometheus" "$packaging/prometheus/unspin.rules.yml" \
    "$packaging/prometheus/prometheus.yml"
install -D -m 644 -t "$prefix/share/unspin/grafana" "$packaging/grafana/unspin.json"
