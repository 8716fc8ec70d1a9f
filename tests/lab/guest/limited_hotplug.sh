#!/bin/sh
# vCPUs go and come while a limit is active.
. "$(dirname "$0")/limit_tools.sh"
online=/sys/devices/system/cpu/cpu3/online
has() { unspin run --status --json | grep -q "\"vcpus\":$1,"; }

echo +cpuset > "$groups/cgroup.subtree_control"
start_run
stress-ng --rename 8 -t 20 --temp-path /tmp > /dev/null 2>&1 &
load=$!
for _ in 1 2 3; do
    wait_until is_limited
    echo 0 > $online
    wait_until has 3
    echo 1 > $online
    wait_until has 4
done
wait_until is_limited
stop_while_limited
echo 0 > $online
kill -CONT "$run"
kill -TERM "$run"
wait "$run" || fail "exit $?: $(cat /tmp/said)"
echo 1 > $online
over
wait_until is_gone
clean_log
echo result 1
