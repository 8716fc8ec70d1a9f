#!/bin/sh
# install.sh RELEASE PREFIX [DESTDIR]: installs the programs of the folder RELEASE, the man pages,
# the shell completions, the systemd units, and the rules and dashboard for Prometheus and Grafana
# below PREFIX. Package builds give DESTDIR, the folder that replaces /. install.sh --programs:
# prints the names of the programs in lib/unspin.
set -eu
# Programs that the lab runs in its guests, including their init. unspin searches lib/unspin.
programs="unspin-init spinbench holdbench microbench phasebench"
if [ "$1" = --programs ]; then
    echo "$programs"
    exit
fi
release=$1
prefix=${3-}$2
packaging=$(dirname "$0")/../packaging
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# needed FILE: fails before the first file is installed if FILE is missing.
needed() {
    [ -f "$1" ] || {
        echo "install.sh: $1 is missing: nothing is installed" >&2
        exit 1
    }
}
for program in unspin $programs; do
    needed "$release/$program"
done
for file in prometheus/unspin.rules.yml prometheus/prometheus.yml grafana/unspin.json \
    systemd/unspin.service.in systemd/unspin-watch.service.in; do
    needed "$packaging/$file"
done
"$release/unspin" man "$work/man"
for shell in bash zsh fish; do
    "$release/unspin" completions "$shell" >"$work/$shell"
done
# systemd splits commands at blanks, and reads \x20 as a blank.
escaped=$(printf '%s' "$2" | sed 's/ /\\\\x20/g')
for unit in unspin unspin-watch; do
    sed "s|@PREFIX@|$escaped|" "$packaging/systemd/$unit.service.in" >"$work/$unit.service"
done

install -D -t "$prefix/bin" "$release/unspin"
for program in $programs; do
    install -D -t "$prefix/lib/unspin" "$release/$program"
done
install -D -m 644 -t "$prefix/share/man/man1" "$work"/man/*.1
completion() {
    install -D -m 644 "$work/$1" "$prefix/share/$2"
}
completion bash bash-completion/completions/unspin
completion zsh "${ZSH_FOLDER:-zsh/site-functions}/_unspin"
completion fish fish/vendor_completions.d/unspin.fish
install -D -m 644 -t "$prefix/lib/systemd/system" "$work/unspin.service" \
    "$work/unspin-watch.service"
install -D -m 644 -t "$prefix/share/unspin/prometheus" "$packaging/prometheus/unspin.rules.yml" \
    "$packaging/prometheus/prometheus.yml"
install -D -m 644 -t "$prefix/share/unspin/grafana" "$packaging/grafana/unspin.json"
