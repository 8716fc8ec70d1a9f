# shellcheck shell=sh disable=SC2034 # scripts use these variables
# Functions of the scripts in this folder. A script runs in a guest and prints `result 1` on
# success. On failure, its trace shows how far it came.
set -x
state=/sys/kernel/sched_ext/state

# policy: prints the caller's scheduling policy. 0 is SCHED_OTHER.
policy() { cut -d ' ' -f 41 /proc/self/stat; }

fail() {
    echo "failed: $*"
    exit 1
}

# wait_until COMMAND...: waits up to 30 s until the command succeeds.
wait_until() {
    set +x
    for _ in $(seq 300); do
        "$@" && { set -x; return 0; }
        sleep 0.1
    done
    set -x
    fail "never: $*"
}

# has_started: whether the scheduler is loaded, or `unspin run` has ended.
has_started() { grep -q enabled $state || gone "$run"; }

# is STATE: waits until sched_ext has this state, enabled or disabled.
is() { wait_until grep -q "$1" $state; }

gone() { ! kill -0 "$1" 2> /dev/null; }

# start: starts `unspin run` in the background, with its messages in /tmp/said. Its priority keeps
# its reaction to a change of the vCPUs short, however busy they are.
start() {
    [ -z "$shared_run" ] || return 0
    nice -n -20 unspin run --actuator sched-ext "$@" > /tmp/said 2>&1 &
    run=$!
    wait_until has_started
    ! gone "$run" || fail "$(cat /tmp/said)"
}

# stop: ends `unspin run` with Ctrl-C's signal.
stop() {
    [ -z "$shared_run" ] || return 0
    kill -INT "$run"
    is disabled
    wait "$run" || fail "unspin run: exit $?: $(cat /tmp/said)"
}

# count NAME FILE: prints the last count of this name in a file of JSON lines.
count() { grep -o "\"$1\":[0-9]*" "$2" | tail -n 1 | cut -d : -f 2; }

# busy SECONDS [PREFIX...]: computes for this time. The command starts with PREFIX.
busy() {
    seconds=$1
    shift
    "$@" timeout "$seconds" sh -c 'while :; do :; done'
}

# The log must have no complaint of the kernel. Faults of a program itself lack a `,` or `:`.
complaints='BUG:|WARNING:|Oops|general protection fault[,:]|runtime error|task stall'
complaints="$complaints|self-detected stall|detected (expedited )?stalls|blocked for more than"
clean_log() {
    dmesg > /tmp/dmesg || fail dmesg
    ! grep -E "$complaints" /tmp/dmesg || fail "the kernel's log"
}

# start_work: starts tasks that compute, and one that counts in a file.
start_work() {
    for mask in 1 2 4 8 f f; do
        busy 200 taskset $mask &
        work="$work $!"
    done
    (set +x; n=0; while :; do n=$((n + 1)); echo $n > /tmp/n; sleep 0.01; done) &
    work="$work $!"
}

# goes_on: waits until the counting task counts.
goes_on() {
    before=$(cat /tmp/n)
    wait_until counted_on
}

counted_on() { [ "$(cat /tmp/n)" != "$before" ]; }

# look_at_clock: sets `now` to the time since boot, in hundredths of a second.
look_at_clock() {
    read -r now _ < /proc/uptime
    now=${now%.*}${now#*.}
}

# watch_gaps NAME SECONDS: reads the clock for this time, and records the longest time between two
# reads in hundredths of a second, the number of reads, and the name.
watch_gaps() {
    set +x
    look_at_clock
    last=$now
    end=$((now + $2 * 100))
    worst=0
    looks=0
    while [ "$now" -lt $end ]; do
        look_at_clock
        gap=$((now - last))
        last=$now
        looks=$((looks + 1))
        [ $gap -gt $worst ] && worst=$gap
    done
    echo $worst $looks "$1" >> /tmp/gaps
}

# nobody_waited TASKS LIMIT: checks that TASKS recorded gaps, all below LIMIT hundredths of a
# second.
nobody_waited() {
    sort -n /tmp/gaps
    [ "$(wc -l < /tmp/gaps)" = "$1" ] || fail "not all ended"
    [ "$(sort -n /tmp/gaps | tail -n 1 | cut -d ' ' -f 1)" -lt "$2" ] || fail "one waited"
}

# The root of cgroups version 2.
groups=/sys/fs/cgroup

# work_in GROUP [PREFIX...]: starts a computing task in a cgroup. The command starts with PREFIX.
work_in() {
    group=$1
    shift
    (echo 0 > $groups/"$group"/cgroup.procs; busy 90 "$@") &
}

# used GROUP: prints the CPU time that a cgroup has used, in microseconds.
used() { grep usage_usec $groups/"$1"/cpu.stat | cut -d ' ' -f 2; }
