#!/bin/sh
# `unspin run` makes its partition and its brake with only the capabilities of its systemd unit.
. "$(dirname "$0")/limit_tools.sh"
# The shell's own setpriv cannot do this.
rights="/usr/bin/setpriv --bounding-set=$1"

begin
wait_until is_partition
[ "$(cat "$groups/unspin.spare/cpu.max")" = "1001 100000" ] || fail "the brake is missing"
wait_until rcu_is_limited
kill -INT "$run"
wait "$run" || fail "exit $?: $(cat /tmp/said)"
over
[ ! -e "$groups/unspin.spare" ] || fail "a cgroup is left"
echo result 1
