#!/bin/sh
# The scheduler loads and unloads quickly, and vCPUs come and go, while all vCPUs are busy.
. "$(dirname "$0")/tools.sh"
busy 200 &
load=$!
for _ in 1 2; do
    nice -n -20 unspin run --actuator sched-ext -- true 2> /tmp/once || fail "$(cat /tmp/once)"
    grep -q disabled $state || fail "it stays"
done
kill $load
start
start_work
cpu=/sys/devices/system/cpu/cpu
echo 0 > ${cpu}3/online
goes_on
for c in 1 2; do echo 0 > $cpu$c/online; done
is enabled
goes_on
for c in 3 2 1; do echo 1 > $cpu$c/online; done
is enabled
goes_on
kill -0 "$run" || fail "$(cat /tmp/said)"
stop
clean_log
# shellcheck disable=SC2086 # a list
kill $work
echo result 1
