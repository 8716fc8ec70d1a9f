#!/bin/sh
# Tasks that the user names count as holders: they go on for a while when others wait.
. "$(dirname "$0")/tools.sh"
if [ "$1" = load ]; then
    [ -z "$2" ] || echo 0 > "$2/cgroup.procs"
    for _ in 1 2 3 4 5 6 7 8; do busy 1 & done
    wait
    exit
fi
mkdir $groups/h
unspin run --actuator sched-ext --json --holder sh -- sh "$0" load > /tmp/names || fail "exit $?"
unspin run --actuator sched-ext --json --holder-cgroup $groups/h -- \
    sh "$0" load $groups/h > /tmp/cgroup || fail "exit $?"
unspin run --actuator sched-ext --json --holder nobody --holder-cgroup $groups/h -- \
    sh "$0" load > /tmp/others || fail "exit $?"
others=$(count extended /tmp/others)
for named in names cgroup; do
    [ "$(count extended /tmp/$named)" -gt $((2 * others + 10)) ] || fail "$named: $(cat /tmp/$named)"
done
unspin run --actuator sched-ext --holder-cgroup /tmp -- true 2> /tmp/error && fail "no cgroup, and no error"
grep -q 'not a cgroup of version 2' /tmp/error || fail "$(cat /tmp/error)"
is disabled
clean_log
echo result 1
