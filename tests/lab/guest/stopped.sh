#!/bin/sh
# The host stops the machine for longer than the kernel lets a task wait, again and again, until
# that was once while the scheduler was loaded: it is there afterwards.
. "$(dirname "$0")/tools.sh"
start
start_work
set +x
look_at_clock
last=$now
until [ $((now - last)) -gt 1000 ]; do
    last=$now
    look_at_clock
    sleep 0.1
done
set -x
sleep 3
is enabled
goes_on
kill -0 "$run" || fail "$(cat /tmp/said)"
stop
# shellcheck disable=SC2086 # a list
kill $work
echo result 1
