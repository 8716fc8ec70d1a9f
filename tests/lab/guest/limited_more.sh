#!/bin/sh
# A limit whose guard is also killed, and a limit whose controller is disabled.
. "$(dirname "$0")/limit_tools.sh"

mkdir "$groups/theirs"
echo +cpuset > "$groups/cgroup.subtree_control"
echo 3 > "$theirs"

# If the guard is killed too, the next call lifts the limit.
begin
stop_while_limited
kill -KILL "$(guard)" || fail "nobody watches it"
kill -KILL "$run"
wait "$run"
is_limited || fail "who lifted it?"
unspin run --restore 2> /tmp/restored || fail "$(cat /tmp/restored)"
grep -Eq 'lifted the limits of [1-9]' /tmp/restored || fail "$(cat /tmp/restored)"
over

# The controller is disabled, as systemd may do, and comes back with the limit.
echo > "$theirs"
rmdir "$groups/theirs"
begin
stop_while_limited
echo -cpuset > "$groups/cgroup.subtree_control" || fail "the controller stays"
kill -CONT "$run"
wait_until [ -e "$set" ]
wait_until is_limited
kill -TERM "$run"
wait "$run" || fail "exit $?: $(cat /tmp/said)"
[ ! -e "$set" ] || is_free || fail "still limited: $(cat "$set")"
kill "$load"
wait "$load"

echo result 1
