# shellcheck shell=sh disable=SC2034 # scripts use these variables
# Functions of the scripts that test the limit by cgroups.
. "$(dirname "$0")/tools.sh"
own=$groups$(sed s/0::// /proc/self/cgroup)
set=$own/cpuset.cpus.effective
theirs=$groups/theirs/cpuset.cpus
lock=/run/unspin/cpuset.lock

# is_free: whether the cgroup has all vCPUs, as without a limit.
is_free() {
    now=$(cat "$set")
    [ -z "$now" ] || [ "$now" = 0-3 ]
}

is_limited() { ! is_free; }

is_partition() { grep -qx isolated "$groups/unspin.spare/cpuset.cpus.partition"; }

# is_gone: whether the spare cgroup is gone and the root has its former controllers.
is_gone() {
    [ ! -e "$groups/unspin.spare" ] && [ "$(cat "$groups/cgroup.subtree_control")" = cpuset ]
}

# A kernel thread that may run on any vCPU.
rcu=$(grep -lxE 'rcu_(preempt|sched)' /proc/[0-9]*/comm)
rcu=${rcu%/comm}
rcu_is_free() { grep -q '^Cpus_allowed_list:.0-3$' "$rcu/status"; }
rcu_is_limited() { ! rcu_is_free; }

is_up() {
    [ -S /run/unspin/run.sock ] && return
    ! gone "$run" || fail "it ended: $(cat /tmp/said)"
    return 1
}

# start_run: starts `unspin run`, with the command in `rights` in front if it is set.
start_run() {
    rm -f /run/unspin/run.sock
    ${rights:-} unspin run --actuator cpuset > /tmp/said 2>&1 &
    run=$!
    wait_until is_up
    is_free || fail "a limit before there is work"
}

start_load() {
    stress-ng --rename 8 -t 3 --temp-path /tmp > /dev/null 2>&1 &
    load=$!
    wait_until is_limited
}

# stop_while_limited: stops `unspin run` during a limit, which comes and goes while it tries limits.
stop_while_limited() {
    for _ in $(seq 200); do
        kill -STOP "$run"
        is_limited && return
        kill -CONT "$run"
        sleep 0.02
    done
    fail "no limit"
}

begin() {
    start_run
    start_load
}

# sleeps: prints how often the threads of `unspin run` have slept.
sleeps() { cat "/proc/$run/task"/*/status | awk '/^voluntary/ { sum += $2 } END { print sum }'; }

# guard: prints the id of the process that watches `unspin run`.
guard() {
    for process in /proc/[0-9]*; do
        case $(tr '\0' ' ' 2> /dev/null < "$process/cmdline") in
        *unspin*--when-gone*) echo "${process#/proc/}" ;;
        esac
    done
}

over() {
    is_free || fail "still limited: $(cat "$set")"
    rcu_is_free || fail "$(grep Cpus_allowed_list "$rcu/status")"
    [ ! -e "$theirs" ] || [ "$(cat "$theirs")" = 3 ] || fail "theirs: $(cat "$theirs")"
    kill "$load"
    wait "$load"
}
