#!/bin/sh
# Free and pinned tasks of a command run to their end under the scheduler.
. "$(dirname "$0")/tools.sh"
if [ "$1" = load ]; then
    cat $state > /tmp/during
    policy > /tmp/policy
    for mask in 1 2 4 8 3 c f; do busy 0.5 taskset $mask & done
    for _ in 1 2 3 4; do busy 0.5 & done
    wait
    exit 7
fi
unspin run --actuator sched-ext --json -- sh "$0" load > /tmp/stats
[ $? = 7 ] || fail "the command's exit code"
grep -q enabled /tmp/during || fail "not enabled during the command"
[ "$(cat /tmp/policy)" = 0 ] || fail "the command has policy $(cat /tmp/policy)"
[ "$(count vcpus /tmp/stats)" = 4 ] || fail "$(cat /tmp/stats)"
is disabled
clean_log
echo result 1
