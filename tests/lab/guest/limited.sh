#!/bin/sh
# The limit by cgroups comes while tasks spin, leaves what others set, and goes however
# `unspin run` ends.
. "$(dirname "$0")/tools.sh"
own=$groups$(sed s/0::// /proc/self/cgroup)
set=$own/cpuset.cpus
theirs=$groups/theirs/cpuset.cpus
lock=/run/unspin/cpuset.lock

# No limit is no set, or all vCPUs where the kernel refuses none.
is_free() {
    now=$(cat "$set")
    [ -z "$now" ] || [ "$now" = 0-3 ]
}

is_limited() { ! is_free; }

begin() {
    rm -f /run/unspin/run.sock
    unspin run --actuator cpuset > /tmp/said 2>&1 &
    run=$!
    wait_until [ -S /run/unspin/run.sock ]
    is_free || fail "a limit before there is work"
    stress-ng --rename 8 -t 3 --temp-path /tmp > /dev/null 2>&1 &
    load=$!
    wait_until is_limited
}

# A limit comes and goes during a trial: stops it where there is one.
stop_while_limited() {
    for _ in $(seq 200); do
        kill -STOP "$run"
        is_limited && return
        kill -CONT "$run"
        sleep 0.02
    done
    fail "no limit"
}

# The process that watches `unspin run`.
guard() {
    for process in /proc/[0-9]*; do
        case $(tr '\0' ' ' 2> /dev/null < "$process/cmdline") in
        *unspin*--when-gone*) echo "${process#/proc/}" ;;
        esac
    done
}

over() {
    is_free || fail "still limited: $(cat "$set")"
    [ "$(cat "$theirs")" = 3 ] || fail "theirs: $(cat "$theirs")"
    kill "$load"
    wait "$load"
}

mkdir "$groups/theirs"
echo +cpuset > "$groups/cgroup.subtree_control"
echo 3 > "$theirs"

# Killed: the process that watches it lifts the limit.
begin
stop_while_limited
kill -KILL "$run"
wait_until is_free
over

# Killed with that process: the next one lifts it.
begin
stop_while_limited
kill -KILL "$(guard)" || fail "nobody watches it"
kill -KILL "$run"
wait "$run"
is_limited || fail "who lifted it?"
unspin run --restore 2> /tmp/restored || fail "$(cat /tmp/restored)"
grep -Eq 'lifted the limits of [1-9]' /tmp/restored || fail "$(cat /tmp/restored)"
over

# A terminal that is closed, and what is said meanwhile.
begin
unspin run --status --json > /tmp/status || fail "no status"
grep -q '"actuator":"cpuset"' /tmp/status || fail "$(cat /tmp/status)"
grep -q '"left_alone":."theirs"' /tmp/status || fail "$(cat /tmp/status)"
unspin run --restore 2> /tmp/error
[ $? = 77 ] || fail "$(cat /tmp/error)"
grep -q "another \`unspin run\`.*$lock" /tmp/error || fail "$(cat /tmp/error)"
kill -HUP "$run"
wait "$run" || fail "exit $?: $(cat /tmp/said)"
over

# The controller is taken away, as systemd may do, and comes back with the limit.
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

echo 0 > "$groups/cgroup.procs"
unspin run --actuator cpuset -- cat /proc/self/cgroup | grep -qx 0::/unspin || fail "its cgroup"
[ ! -e /run/unspin/cpuset.json ] || fail "a journal is left"
echo result 1
