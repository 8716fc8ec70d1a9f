# shellcheck shell=sh
# What the script of a seed is made of: functions for its steps, and the checks at its end. A
# failure is a line `failed: WHAT` and exit code 1.
set -u
complaints='BUG:|WARNING:|Oops|general protection fault[,:]|runtime error|task stall|hung_task'
complaints="$complaints|self-detected stall|detected (expedited )?stalls|blocked for more than"
# What Linux 7.3 says if a process that writes the partition of a cpuset gets SIGKILL.
of_kill='WARNING: kernel/sched/isolation.c:[0-9]+ at housekeeping_update'
killed=
state=/sys/kernel/sched_ext/state
root=/sys/fs/cgroup
loads=$root/fuzz
probes=

fail() {
    echo "failed: $1"
    [ ! -s /tmp/said ] || tail -n 40 /tmp/said
    dmesg | tail -n 40
    exit 1
}

# The same where a guest scheduler failed, so that runs without one show nothing.
its_own() {
    echo "only under a guest scheduler"
    fail "$1"
}

# Sets `now` to the time since boot in hundredths of a second. In the first second, a leading 0
# would make it octal.
clock() {
    read -r now _ < /proc/uptime
    now=${now%.*}${now#*.}
    now=${now#0}
    now=${now#0}
}

# Waits until so many milliseconds after the beginning; passes if that is over.
at() {
    clock
    left=$((began + $1 / 10 - now))
    [ $left -le 0 ] || sleep "$((left / 100)).$(printf %02d $((left % 100)))"
}

# Waits until a command succeeds, for so many hundredths of a second at most.
within() {
    limit=$1
    shift
    clock
    until_then=$((now + limit))
    until "$@"; do
        clock
        [ "$now" -lt $until_then ] || return 1
        sleep 0.01
    done
}

is() { grep -q "$1" $state; }
# Nothing is limited or braked: no step writes these two files. Before Linux 7.0, a set that was
# written stays, with all vCPUs.
no_limit() {
    set=$(cat $loads/cpuset.cpus)
    [ -z "$set" ] || [ "$set" = "$(cat /sys/devices/system/cpu/possible)" ] || return 1
    [ ! -e $root/unspin.spare ] &&
        [ "$(cat $loads/cpu.max $loads/plain/cpu.max | sort -u)" = "max 100000" ]
}
gone() { ! kill -0 "$1" 2> /dev/null; }
up() { is enabled || [ -S /run/unspin/run.sock ] || gone "$agent"; }
is_empty() { grep -q 'populated 0' "$1/cgroup.events"; }

# The kernel's log has a complaint of which the scheduler may be the cause.
complains() {
    dmesg > /tmp/dmesg || fail "dmesg"
    if [ -n "$killed" ]; then
        grep -E "$complaints" /tmp/dmesg | grep -Ev "$of_kill"
    else
        grep -E "$complaints" /tmp/dmesg
    fi
}

start_agent() {
    [ -n "$under" ] || return 0
    # A killed one leaves it.
    rm -f /run/unspin/run.sock
    $under > /tmp/said 2>&1 &
    agent=$!
    within 2000 up || its_own "the scheduler does not start"
    ! gone "$agent" || its_own "the scheduler ends at its start"
}

# Tasks that always want a CPU, and such that sleep: the longest time for which each was kept
# from the clock.
probe() {
    clock
    last=$now
    worst=0
    while [ "$now" -lt "$1" ]; do
        [ "$2" = computes ] || sleep 0.02
        clock
        gap=$((now - last))
        last=$now
        [ $gap -le $worst ] || worst=$gap
    done
    echo "$worst" >> /tmp/gaps
}

begin() {
    echo "+cpu +cpuset" > $root/cgroup.subtree_control
    mkdir -p $loads/plain
    echo "+cpu +cpuset" > $loads/cgroup.subtree_control
    start_agent
    clock
    began=$now
    end=$((began + $1 / 10))
    cpus=$(nproc)
    probe "$end" computes &
    probes="$probes $!"
    for cpu in $(seq 0 $((cpus - 1))); do
        (taskset -p $((1 << cpu)) "$(sh -c 'echo $PPID')" > /dev/null; probe "$end" sleeps) &
        probes="$probes $!"
    done
}

# in_group GROUP COMMAND...: starts a load there. A program that is missing is noted: the seed would
# pass without its load. Other failures may be due to what else happens.
in_group() {
    group=$loads/$1
    shift
    (
        echo 0 > "$group/cgroup.procs"
        "$@" > /dev/null 2>&1
        case $? in 126 | 127) echo "$*" >> /tmp/void ;; esac
    ) &
}

# stress GROUP STRESSOR WORKERS
stress() { in_group "$1" stress-ng "--$2" "$3" -t 60 --temp-path /tmp --no-rand-seed; }

# computes MS COMMAND...: a task that computes for so long under a policy. Its timer outranks it:
# with a task of its priority on every vCPU, it would not run, and they would never end.
computes() {
    seconds=$(($1 / 1000)).$(printf %03d $(($1 % 1000)))
    shift
    in_group plain chrt -f 90 timeout -s KILL "$seconds" "$@" sh -c 'while :; do :; done'
}

# offline CPU MS: it comes back after so long.
offline() {
    online=/sys/devices/system/cpu/cpu$1/online
    echo 0 > "$online" || return 0
    (sleep "0.$(printf %03d "$2")"; echo 1 > "$online") &
}

# put GROUP FILE VALUE: a setting. The kernel takes any weight and limit of a plan.
put() {
    echo "$3" > "$loads/$1/$2" && return
    case $2 in cpu.max | cpu.weight) echo "$*" >> /tmp/void ;; esac
}

# group NAME FILE VALUE [NEXT MS]: a group with a setting, and after so long with another one.
group() {
    mkdir -p "$loads/$1"
    put "$1" "$2" "$3"
    [ $# -lt 5 ] || (sleep "0.$(printf %03d "$5")"; put "$1" "$2" "$4") &
}

# affine MASK: all tasks of the plain group.
affine() {
    while read -r task; do
        taskset -p "$1" "$task" > /dev/null 2>&1
    done < $loads/plain/cgroup.threads
}

# freeze MS: the plain group stops, and goes on after so long.
freeze() {
    echo 1 > $loads/plain/cgroup.freeze
    (sleep "0.$(printf %03d "$1")"; echo 0 > $loads/plain/cgroup.freeze) &
}

# forks COUNT: so many tasks that end at once.
forks() {
    # shellcheck disable=SC2016 # the inner shell's
    in_group plain sh -c 'for _ in $(seq "$0"); do true & done; wait' "$1"
}

# restart SIGNAL MS: the scheduler is ended, and started again after so long. The loads stop
# meanwhile: amid them, the kernel takes minutes of machine time to verify it.
restart() {
    [ -n "$under" ] || return 0
    ! gone "$agent" || its_own "the scheduler ended by itself"
    kill "-$1" "$agent"
    [ "$1" != KILL ] || killed=yes
    within 1000 gone "$agent" || its_own "the scheduler ignores SIG$1"
    wait "$agent"
    within 300 is disabled || its_own "the kernel's scheduler is not back 3 s after SIG$1"
    sleep "0.$(printf %03d "$2")"
    echo 1 > $loads/cgroup.freeze
    start_agent
    echo 0 > $loads/cgroup.freeze
}

finish() {
    at "$1"
    echo 0 > $loads/plain/cgroup.freeze
    for cpu in /sys/devices/system/cpu/cpu[1-9]*/online; do
        [ ! -e "$cpu" ] || within 300 sh -c "echo 1 > $cpu" || fail "a CPU does not come back"
    done
    echo 1 > $loads/cgroup.kill
    within 300 is_empty $loads || fail "killed tasks have not ended after 3 s"
    for task in $probes; do
        within 300 gone "$task" || fail "a task has not run for 3 s"
    done
    if [ -n "$under" ]; then
        ! gone "$agent" || its_own "the scheduler ended by itself"
        kill -INT "$agent"
        within 1000 gone "$agent" || its_own "the scheduler ignores SIGINT"
        wait "$agent"
        code=$?
        [ $code = 0 ] || its_own "the scheduler ends with $code"
        within 300 is disabled || its_own "the kernel's scheduler is not back"
        no_limit || its_own "a limit on vCPUs stays"
    fi
    [ ! -s /tmp/void ] || fail "a step had no effect: $(head -n 1 /tmp/void)"
    ! complains || fail "the kernel complains"
    worst=$(sort -n /tmp/gaps | tail -n 1)
    [ "$worst" -lt 300 ] || fail "a task was kept waiting for 3 s"
    echo "result $((worst / 100)).$(printf %02d $((worst % 100)))"
}
