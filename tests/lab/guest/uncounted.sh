#!/bin/sh
# Spins are counted at first. A guest that has the vCPUs that it wants stops that once it has cost
# as much as to stop, and counts again when its vCPUs are preempted.
. "$(dirname "$0")/limit_tools.sh"
mount -t tracefs tracefs /sys/kernel/tracing
counts() { grep -q queued_spin_lock_slowpath /sys/kernel/tracing/enabled_functions; }
counts_not() { ! counts; }
is_free() { [ ! -e "$groups/unspin.spare" ] || ! is_partition; }

# Two vCPUs contend as often, and take half of the time to simulate.
echo 0 > /sys/devices/system/cpu/cpu2/online
echo 0 > /sys/devices/system/cpu/cpu3/online
start_run
counts || fail "nothing is counted at the start"
(while :; do :; done) &
computes=$!
(while :; do :; done) &
computes="$computes $!"
sleep 1
counts || fail "nothing was contended, so to count cost nothing"
# shellcheck disable=SC2086 # two numbers
kill $computes
stress-ng --madvise 4 -t 60 --temp-path /tmp > /dev/null 2>&1 &
load=$!
wait_until counts_not
kill "$load"
for _ in 1 2; do (while :; do :; done) & done
# The neighbour comes twelve seconds after the start.
wait_until counts
kill -INT "$run"
wait "$run" || fail "exit $?: $(cat /tmp/said)"
counts && fail "still counted at the end"
echo result 1
