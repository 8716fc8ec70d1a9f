#!/bin/sh
# Spins are counted at first. A guest that has the vCPUs that it wants stops that, so that contended
# locks cost what they cost without unspin, and counts again once its vCPUs are preempted.
. "$(dirname "$0")/limit_tools.sh"
mount -t tracefs tracefs /sys/kernel/tracing
counts() { grep -q queued_spin_lock_slowpath /sys/kernel/tracing/enabled_functions; }
counts_not() { ! counts; }

start_run
counts || fail "nothing is counted at the start"
for _ in 1 2 3 4; do (while :; do :; done) & done
wait_until counts_not
# The neighbour comes six seconds after the start.
wait_until counts
kill -INT "$run"
wait "$run" || fail "exit $?: $(cat /tmp/said)"
counts && fail "still counted at the end"
echo result 1
