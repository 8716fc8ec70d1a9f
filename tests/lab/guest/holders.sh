#!/bin/sh
# Holders of a glibc mutex go on until they have released it, in a container, too, where threads
# have other numbers.
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
