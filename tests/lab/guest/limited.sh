#!/bin/sh
# The limit comes while tasks spin, for cgroups and kernel threads, and goes where `unspin run` is
# killed.
. "$(dirname "$0")/limit_tools.sh"

mkdir "$groups/theirs"
echo +cpuset > "$groups/cgroup.subtree_control"
echo 3 > "$theirs"

# Idle, it wakes twice a second. Killed, the process that watches it lifts the limit.
start_run
sleep 1
before=$(sleeps)
sleep 4
[ "$(($(sleeps) - before))" -le 9 ] || fail "it rests twice a second: $before, $(sleeps)"
start_load
stop_while_limited
kill -KILL "$run"
wait_until is_free
wait_until rcu_is_free
over

wait_until is_gone

# Without sets of others, the spare vCPUs are a partition as well.
echo > "$theirs"
rmdir "$groups/theirs"
begin
wait_until is_partition
wait_until rcu_is_limited
unspin run --status --json | grep -q '"in_root":0' || fail "the root cgroup is limited, too"
stop_while_limited
kill -KILL "$run"
wait_until is_free
wait_until rcu_is_free
wait_until is_gone
over

echo 0 > "$groups/cgroup.procs"
unspin run --actuator cpuset -- cat /proc/self/cgroup | grep -qx 0::/unspin || fail "its cgroup"
[ ! -e /run/unspin/cpuset.json ] || fail "a journal is left"
is_gone || fail "$(ls "$groups")"
[ ! -e "$groups/unspin" ] || fail "a cgroup is left"
echo result 1
