#!/bin/sh
# The limit leaves other programs' cpusets unchanged and reports them. It goes with the terminal.
. "$(dirname "$0")/limit_tools.sh"

mkdir "$groups/theirs"
echo +cpuset > "$groups/cgroup.subtree_control"
echo 3 > "$theirs"

begin
wait_until rcu_is_limited
unspin run --status --json > /tmp/status || fail "no status"
grep -q '"actuator":"cpuset"' /tmp/status || fail "$(cat /tmp/status)"
grep -q '"left_alone":."theirs"' /tmp/status || fail "$(cat /tmp/status)"
unspin run --restore 2> /tmp/error
[ $? = 1 ] || fail "$(cat /tmp/error)"
grep -q "another \`unspin run\`.*$lock" /tmp/error || fail "$(cat /tmp/error)"
kill -HUP "$run"
wait "$run" || fail "exit $?: $(cat /tmp/said)"
over
wait_until is_gone
echo result 1
