#!/bin/sh
# A second scheduler is refused, a killed one unloads, and a changed number of vCPUs does no harm.
. "$(dirname "$0")/tools.sh"
start
unspin run --actuator sched-ext -- true 2> /tmp/second
[ $? = 1 ] || fail "a second one"
grep -q 'is loaded' /tmp/second || fail "$(cat /tmp/second)"
for online in 0 1; do
    echo $online > /sys/devices/system/cpu/cpu3/online
    sleep 1
    is enabled
done
kill -0 "$run" || fail "$(cat /tmp/said)"
kill -9 "$run"
is disabled
start
stop
grep -q 'vCPUs in use' /tmp/said || fail "$(cat /tmp/said)"
clean_log
echo result 1
