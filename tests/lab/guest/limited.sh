#!/bin/sh
# shellcheck disable=SC2016 # ids of other shells
# The limit comes while tasks spin, for cgroups and kernel threads, and goes when `unspin run` is
# killed. `limited.sh briefly` tests only that, without other programs' cpusets.
. "$(dirname "$0")/limit_tools.sh"

mkdir "$groups/theirs"
echo +cpuset > "$groups/cgroup.subtree_control"
echo 3 > "$theirs"

beside_others() {
    # An idle `unspin run` wakes twice a second. When it is killed, its guard lifts the limit.
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
}
[ "$1" = briefly ] || beside_others

# Without other programs' cpusets, the spare vCPUs also form a partition.
echo > "$theirs"
rmdir "$groups/theirs"
begin
wait_until is_partition
wait_until rcu_is_limited
# This starts a kernel thread, which must not keep the limit.
exec 9<> /proc/pressure/cpu
echo "some 500000 1000000" >&9
monitor=$(grep -lx psimon /proc/[0-9]*/comm)
[ -n "$monitor" ] || fail "no kernel thread has started"
unspin run --status --json > /tmp/status || fail "no status"
grep -q '"in_root":0' /tmp/status || fail "the root cgroup is limited, too"
stop_while_limited
kill -KILL "$run"
wait_until is_free
wait_until rcu_is_free
wait_until is_gone
grep -q '^Cpus_allowed_list:.0-3$' "${monitor%/comm}/status" || fail "psimon stays limited"
exec 9>&-
over

[ "$1" != briefly ] || { echo result 1; exit; }

echo 0 > "$groups/cgroup.procs"
# The partition also limits tasks of the root cgroup.
start_run
stress-ng --rename 8 -t 30 --temp-path /tmp > /dev/null 2>&1 &
load=$!
has_kept() { unspin run --status --json | grep -q '"trials_fewer":.[0-9]*,[1-9]'; }
wait_until has_kept
wait_until is_partition
kill "$load"
wait "$load"
kill -INT "$run"
wait "$run" || fail "exit $?: $(cat /tmp/said)"

unspin run --actuator cpuset -- cat /proc/self/cgroup > /tmp/group || fail "exit $?"
grep -qx 0::/unspin /tmp/group || fail "its cgroup: $(cat /tmp/group)"

unspin run --actuator cpuset -- cut -d ' ' -f 41 /proc/self/stat > /tmp/policy || fail "exit $?"
[ "$(cat /tmp/policy)" = 0 ] || fail "the command has policy $(cat /tmp/policy)"

# `unspin run` exits like its command, in the form of shells.
ends_with() {
    code=$1
    shift
    unspin run --actuator cpuset -- "$@" 2> /tmp/said
    ended=$?
    [ "$ended" = "$code" ] || fail "$*: $ended, not $code: $(cat /tmp/said)"
}
ends_with 7 sh -c 'exit 7'
ends_with 137 sh -c 'kill -KILL $$'
ends_with 127 /no/such/command
unspin run --actuator cpuset -- sh -c 'echo $$ > /tmp/id; exec sleep 77' 2> /tmp/said &
run=$!
wait_until [ -s /tmp/id ]
kill -TERM "$run"
wait "$run"
ended=$?
[ "$ended" = 143 ] || fail "after SIGTERM: $ended: $(cat /tmp/said)"
[ ! -e "/proc/$(cat /tmp/id)" ] || fail "the command goes on"

[ ! -e /run/unspin/cpuset.json ] || fail "a journal is left"
is_gone || fail "$(ls "$groups")"
[ ! -e "$groups/unspin" ] || fail "a cgroup is left"
echo result 1
