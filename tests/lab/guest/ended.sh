#!/bin/sh
# Stopping `unspin run` changes nothing. When the kernel ends the scheduler, `unspin run` reports
# the reason, and the work goes on.
. "$(dirname "$0")/tools.sh"
start
start_work
kill -STOP "$run"
sleep 1
is enabled
goes_on
clean_log
kill -CONT "$run"
goes_on
echo S > /proc/sysrq-trigger
is disabled
wait_until gone "$run"
wait "$run"
[ $? = 1 ] || fail "the kernel ended it"
grep -q 'ended the scheduler: disabled by sysrq-S' /tmp/said || fail "$(cat /tmp/said)"
goes_on
is disabled
clean_log
# shellcheck disable=SC2086 # a list
kill $work
echo result 1
