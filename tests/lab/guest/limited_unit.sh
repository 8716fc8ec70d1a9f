#!/bin/sh
# `unspin run` with the capabilities of its systemd unit alone: there is a partition, and a brake.
. "$(dirname "$0")/limit_tools.sh"
# The shell has a setpriv of its own, which cannot do this.
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
