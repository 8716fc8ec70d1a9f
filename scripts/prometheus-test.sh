#!/bin/bash
# prometheus-test.sh [UNSPIN]: tests the alert rules with promtool, then runs Debian's Prometheus,
# which scrapes `unspin watch --listen` on this machine. Prometheus must have our series, load our
# rules, and answer every query of the dashboard. unspin runs with the rights of
# unspin-watch.service. Exit code 77, with the reason, if a dependency is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
unspin=${1:-unspin}
packaging=packaging/prometheus

skip() {
    echo "skipped: $*" >&2
    exit 77
}

die() {
    echo "FAILED: $*" >&2
    exit 1
}

for program in promtool prometheus; do
    command -v "$program" >/dev/null || skip "$program is missing: apt install prometheus"
done
promtool check rules "$packaging/unspin.rules.yml"
promtool test rules "$packaging/unspin.rules.test.yml"
promtool check config --syntax-only "$packaging/prometheus.yml"
[ "$(id -u)" -eq 0 ] || skip "unspin watch takes root; the rules were tested"

work=$(mktemp -d)
processes=()
stop() {
    [ ${#processes[@]} -eq 0 ] || kill "${processes[@]}" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

# The unit's capabilities in the form of setpriv: -all,+bpf,+perfmon,+syslog.
rights=$(sed -n 's/^CapabilityBoundingSet=//p' packaging/systemd/unspin-watch.service.in |
    tr 'A-Z ' 'a-z\n' | sed 's/^cap_/,+/' | tr -d '\n')

# watch NAME [OPTION...]: starts `unspin watch`, sets $url to its address, and writes its messages
# to $work/NAME. The address is empty if the kernel lacks the sensor's hooks.
watch() {
    local log=$work/$1 process code=0
    setpriv --no-new-privs --bounding-set="-all$rights" --inh-caps=-all \
        "$unspin" watch --listen 127.0.0.1:0 "${@:2}" >"$log" 2>&1 &
    process=$!
    # Registered at once, so that an interrupt ends the process instead of leaving it.
    processes+=("$process")
    for _ in $(seq 100); do
        sleep 0.1
        url=$(sed -n 's,.*figures at http://\([^ /]*\)/metrics.*,\1,p' "$log")
        [ -z "$url" ] || break
        kill -0 "$process" 2>/dev/null || break
    done
    if [ -z "$url" ]; then
        ! kill "$process" 2>/dev/null || die "unspin watch: not at work within 10 s: $(cat "$log")"
        wait "$process" || code=$?
        # The process has ended, so another process may soon get its PID.
        unset 'processes[-1]'
        [ "$code" -ne 77 ] || { echo "not possible here: $(cat "$log")" && return; }
        die "unspin watch: exit code $code: $(cat "$log")"
    fi
    cat "$log"
}

# Once with the unit's options, and once with all figures.
watch plain
plain=$url
watch causes --causes
causes=$url
[ -n "$plain$causes" ] || skip "this kernel lacks what unspin watch needs"

cp "$packaging/unspin.rules.yml" "$work"
cat >"$work/prometheus.yml" <<END
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [unspin.rules.yml]
scrape_configs:
  - {job_name: unspin-watch, static_configs: [{targets: [${plain:+"'$plain', "}${causes:+"'$causes'"}]}]}
END
# Prometheus cannot choose a port itself.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
server=http://127.0.0.1:$port
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" \
    --web.listen-address="127.0.0.1:$port" >"$work/prometheus.log" 2>&1 &
prometheus=$!
processes+=("$prometheus")

query() { promtool query instant "$server" "$1"; }

# A rate needs several scrapes.
for _ in $(seq 60); do
    sleep 1
    kill -0 "$prometheus" || die "prometheus: $(tail -n 5 "$work/prometheus.log")"
    ! query 'rate(unspin_watched_seconds_total[10s]) > 0.5' 2>/dev/null | grep -q . || break
done

[ "$(query 'min(up{job="unspin-watch"})' | sed 's/.*=> \([^ ]*\).*/\1/')" = 1 ] || die "a target is down"
name=${plain:+plain}
instance=${plain:-$causes}
for metric in off_seconds off_intervals idle_seconds spin_seconds user_spin_seconds ticks; do
    series=$(query "unspin_vcpu_${metric}_total{instance=\"$instance\"}" | grep -c . || true)
    echo "unspin_vcpu_${metric}_total: $series series of $(nproc --all) vCPUs"
    # A kernel without the hooks has no such series, and watch reports that at its start.
    [ "$series" -eq "$(nproc --all)" ] || { [ "$series" -eq 0 ] && grep -q 'does not show' "$work/${name:-causes}"; } ||
        die "unspin_vcpu_${metric}_total: $series series"
done
query unspin_watched_seconds_total

rules=$(python3 - "$server" <<'END'
import json, sys, urllib.request
with urllib.request.urlopen(sys.argv[1] + "/api/v1/rules") as answer:
    groups = json.load(answer)["data"]["groups"]
rules = [rule for group in groups for rule in group["rules"]]
bad = [rule["name"] for rule in rules if rule["health"] == "err"]
sys.exit(f"rules that fail: {bad}") if bad or not rules else print(len(rules))
END
) || die "rules"
echo "rules that Prometheus evaluates without error: $rules"

# Runs each query of the dashboard with its variables filled in. The scheduler's queries have no
# data.
# shellcheck disable=SC2016 # Grafana's variables
sed -n 's/^ *"expr": "\(.*\)",*$/\1/p' packaging/grafana/unspin.json |
    sed 's/\\"/"/g; s/\$__rate_interval/10s/g; s/\$instance/.*/g; s/\$watch/unspin-watch/g; s/\$run/unspin-run/g' \
        >"$work/queries"
touch "$work/answered"
while IFS= read -r expression; do
    query "$expression" >"$work/answer" 2>&1 || die "$expression: $(cat "$work/answer")"
    ! grep -q . "$work/answer" || echo "$expression" >>"$work/answered"
done <"$work/queries"
queries=$(wc -l <"$work/queries")
[ "$queries" -gt 20 ] || die "only $queries queries were found in the dashboard"
echo "queries of the dashboard: $queries without error, $(wc -l <"$work/answered") with data"
