#!/bin/sh
# A stopped process changes nothing. When the kernel ends the scheduler, `unspin run` says why,
# and its command is not harmed.
. "$(dirname "$0")/tools.sh"
if [ "$1" = command ]; then
    sleep 1
    echo S > /proc/sysrq-trigger
    sleep 2
    : > /tmp/whole
    exit
fi
start
start_work
kill -STOP "$run"
sleep 2
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
unspin run -- sh "$0" command 2> /tmp/second
[ $? = 1 ] || fail "the kernel ended it again"
grep -q 'disabled by sysrq-S' /tmp/second || fail "$(cat /tmp/second)"
wait_until test -e /tmp/whole
goes_on
is disabled
clean_log
# shellcheck disable=SC2086 # a list
kill $work
echo result 1
