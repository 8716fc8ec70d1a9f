#!/bin/sh
# Holders of a glibc mutex keep their vCPU until they have released it. This also works in a
# container, where threads have other ids.
. "$(dirname "$0")/tools.sh"
load() {
    "$@" spinbench --lock pthread-mutex --threads 8 --seconds 2 --cs 200000 \
        --outside 2000000 --loop-ns 1.4 > /dev/null
}
if [ "$1" = load ]; then
    shift
    load "$@"
    exit
fi
for how in env 'unshare --pid --fork'; do
    # shellcheck disable=SC2086 # a command
    unspin run --actuator sched-ext --json --no-pack -- sh "$0" load $how > /tmp/all ||
        fail "exit $?"
    tail -n 1 /tmp/all > /tmp/stats
    [ "$(count extended /tmp/stats)" -ge 10 ] || fail "$how: $(cat /tmp/stats)"
done
is disabled
clean_log
echo result 1
