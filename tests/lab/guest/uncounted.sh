#!/bin/sh
# Spins are counted at first. In a guest without preemption, `unspin run` stops counting when it has
# cost as much as stopping costs. It counts again when vCPUs are preempted.
. "$(dirname "$0")/limit_tools.sh"
mount -t tracefs tracefs /sys/kernel/tracing
counts() { grep -q queued_spin_lock_slowpath /sys/kernel/tracing/enabled_functions; }
counts_not() { ! counts; }
is_free() { [ ! -e "$groups/unspin.spare" ] || ! is_partition; }

# Two vCPUs contend as often as four, and take half the time to simulate.
echo 0 > /sys/devices/system/cpu/cpu2/online
echo 0 > /sys/devices/system/cpu/cpu3/online
start_run
counts || fail "nothing is counted at the start"
for _ in 1 2; do timeout 0.5 sh -c 'while :; do :; done' & done
sleep 0.6
counts || fail "nothing was contended, so to count cost nothing"
stress-ng --madvise 4 -t 60 --temp-path /tmp > /dev/null 2>&1 &
load=$!
wait_until counts_not
kill "$load"
wait "$load"
# The neighbour comes twelve seconds after the start.
sleep 3
for _ in 1 2; do (while :; do :; done) & done
wait_until counts
kill -INT "$run"
wait "$run" || fail "exit $?: $(cat /tmp/said)"
counts && fail "still counted at the end"
echo result 1
