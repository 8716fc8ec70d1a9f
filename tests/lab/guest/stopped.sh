#!/bin/sh
# The host stops the machine again and again, for longer than the kernel lets a task wait. The
# script ends after one stop while the scheduler is loaded. The scheduler must survive it.
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
