#!/bin/sh
# Measures the cost of the agents on this machine at its own speed. The workloads run alone, under
# `unspin watch --listen --causes`, and under `unspin record`, alternating, in ten rounds of 45 s.
# Both agents attach programs to contended locks. Prints claims for `unspin claims record`. Usage:
# scripts/cost-here.sh [UNSPIN]
set -eu
unspin=${1:-unspin}
address=127.0.0.1:9469
[ "$(id -u)" -eq 0 ] || { echo "skipped: the agents load BPF programs, which takes root" >&2; exit 77; }
for program in hackbench stress-ng dbench sysbench; do
    command -v "$program" > /dev/null || { echo "$program is missing: run 'make setup'" >&2; exit 1; }
done
folder=$(mktemp -d -p /dev/shm)
agent=
# stop_agent: asks the agent to end, and returns its exit status.
stop_agent() {
    [ -n "$agent" ] || return 0
    stopping=$agent
    agent=
    kill -TERM "$stopping" 2> "$folder/gone" || true
    wait "$stopping"
}
trap 'stop_agent || true; rm -r "$folder"' EXIT
trap 'exit 130' INT TERM

# start_agent HOW: starts an agent and returns when it works.
start_agent() {
    case $1 in
    alone) return ;;
    watch) set -- watch --causes --listen "$address" ;;
    record) set -- record --out "$folder/session.arrow.gz" ;;
    esac
    rm -f "$folder/session.arrow.gz"
    "$unspin" "$@" > "$folder/agent" 2>&1 &
    agent=$!
    for _ in $(seq 100); do
        sleep 0.1
        kill -0 "$agent" 2> "$folder/gone" || { cat "$folder/agent" >&2; agent=; exit 1; }
        case $1 in
        watch) grep -q 'figures at' "$folder/agent" && return ;;
        record) [ -s "$folder/session.arrow.gz" ] && return ;;
        esac
    done
    echo "unspin $1: not at work within 10 s" >&2
    exit 1
}

# finish_agent: stops the agent. If the agent crashed, the workload ran alone and its speed is void.
finish_agent() {
    [ -n "$agent" ] || return 0
    # A crashed agent may still exist as a zombie. Its exit status then shows the crash.
    kill -0 "$agent" 2> "$folder/gone" && stop_agent && return
    cat "$folder/agent" >&2
    echo "the agent did not work to the end of the workload" >&2
    exit 1
}

# speed WORKLOAD: runs the workload for about 3 s and prints its speed.
speed() {
    case $1 in
    hackbench-pipe-threads)
        hackbench --pipe --threads -g 2 -l 6000 | awk '/^Time:/ { print 1 / $2 }' ;;
    stress-ng-rename)
        stress-ng --rename 8 -t 3 --metrics --stdout --no-rand-seed --temp-path "$folder" |
            awk '$4 == "rename" { print $9 }' ;;
    dbench)
        dbench -c /usr/share/dbench/client.txt -t 3 -D "$folder" 6 | awk '/^Throughput/ { print $2 }' ;;
    sysbench-cpu)
        sysbench cpu --threads=4 --time=3 run | awk '/events per second/ { print $4 }' ;;
    esac
}

for round in 1 2 3 4 5 6 7 8 9 10; do
    echo "round $round of 10" >&2
    for workload in hackbench-pipe-threads stress-ng-rename dbench sysbench-cpu; do
        case $((round % 3)) in
        0) turns="alone watch record" ;;
        1) turns="watch record alone" ;;
        2) turns="record alone watch" ;;
        esac
        for how in $turns; do
            start_agent "$how"
            measured=$(speed "$workload")
            finish_agent
            echo "$workload $round $how $measured"
        done
    done
done > "$folder/speeds"
cat "$folder/speeds" >&2

# Of ten samples, the second and the ninth are an interval of 97.9 % for the median.
awk -v date="$(date -u +%F)" -v commit="$(git -C "$(dirname "$0")" describe --always --dirty --abbrev=12 2> "$folder/no-git" || true)" \
    -v machine="$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, Linux $(uname -r)" '
    $4 <= 0 { print "no result: " $0 > "/dev/stderr"; exit failed = 1 }
    { speed[$1, $3, $2] = $4; workloads[$1] = 1 }
    function claim(id, title, workload, how, target,   round, i, ratio, key) {
        for (round = 1; round <= 10; round++) {
            key = speed[workload, how, round] / speed[workload, "alone", round]
            for (i = round - 1; i >= 1 && ratio[i] > key; i--)
                ratio[i + 1] = ratio[i]
            ratio[i + 1] = key
        }
        printf "%s{\"id\": \"%s.%s\", ", (claims++ ? ",\n " : "["), id, workload
        printf "\"what\": \"speed of %s beside `unspin %s` on the build machine, against the same without it\", ", workload, title
        printf "\"value\": %g, \"lo\": %g, \"hi\": %g, ", (ratio[5] + ratio[6]) / 2, ratio[2], ratio[9]
        printf "\"n\": 10, \"unit\": \"x\", \"target\": \">= %s\", \"holds\": null, ", target
        printf "\"reason\": \"see docs/results-sensing.md\", "
        printf "\"label\": \"host: %s\", \"experiment\": \"scripts/cost-here.sh\", ", machine
        printf "\"command\": \"make cost-here\", \"date\": \"%s\", \"commit\": \"%s\"}", date, commit
    }
    END {
        if (failed)
            exit 1
        for (workload in workloads) {
            claim("sense.cost_here", "watch --listen --causes", workload, "watch", 0.99)
            claim("sense.record_cost_here", "record", workload, "record", 0.97)
        }
        print "]"
    }' "$folder/speeds"
