# shellcheck shell=sh disable=SC2034 # scripts use these variables
# What the scripts of this folder share. A script runs in a guest, prints `result 1` where all
# went well, and its trace says how far it came where not.
set -x
state=/sys/kernel/sched_ext/state

# The policy by which the kernel schedules who asks; 0 is the ordinary one.
policy() { cut -d ' ' -f 41 /proc/self/stat; }

fail() {
    echo "failed: $*"
    exit 1
}

# Waits until a command succeeds, 30 s at most.
wait_until() {
    set +x
    for _ in $(seq 300); do
        "$@" && { set -x; return 0; }
        sleep 0.1
    done
    set -x
    fail "never: $*"
}

# Whether the scheduler is loaded, or has ended instead.
has_started() { grep -q enabled $state || gone "$run"; }

# The state of sched_ext: enabled or disabled.
is() { wait_until grep -q "$1" $state; }

gone() { ! kill -0 "$1" 2> /dev/null; }

# Starts `unspin run` in the background, with what it says in /tmp/said. Its priority keeps what
# it does at each change of the vCPUs short, however busy they are.
start() {
    [ -z "$shared_run" ] || return 0
    nice -n -20 unspin run --actuator sched-ext "$@" > /tmp/said 2>&1 &
    run=$!
    wait_until has_started
    ! gone "$run" || fail "$(cat /tmp/said)"
}

# Ends it as Ctrl-C does.
stop() {
    [ -z "$shared_run" ] || return 0
    kill -INT "$run"
    is disabled
    wait "$run" || fail "unspin run: exit $?: $(cat /tmp/said)"
}

# The last count of a name in JSON lines.
count() { grep -o "\"$1\":[0-9]*" "$2" | tail -n 1 | cut -d : -f 2; }

# Computes for so many seconds; any more arguments come before it.
busy() {
    seconds=$1
    shift
    "$@" timeout "$seconds" sh -c 'while :; do :; done'
}

# The kernel has complained of nothing. What a program does to itself has no `,` or `:` there.
complaints='BUG:|WARNING:|Oops|general protection fault[,:]|runtime error|task stall'
complaints="$complaints|self-detected stall|detected (expedited )?stalls|blocked for more than"
clean_log() {
    dmesg > /tmp/dmesg || fail dmesg
    ! grep -E "$complaints" /tmp/dmesg || fail "the kernel's log"
}

# Tasks that compute, and one that counts in a file.
start_work() {
    for mask in 1 2 4 8 f f; do
        busy 200 taskset $mask &
        work="$work $!"
    done
    (set +x; n=0; while :; do n=$((n + 1)); echo $n > /tmp/n; sleep 0.01; done) &
    work="$work $!"
}

# The counting task goes on.
goes_on() {
    before=$(cat /tmp/n)
    wait_until counted_on
}

counted_on() { [ "$(cat /tmp/n)" != "$before" ]; }

# Sets `now` to the time since boot in hundredths of a second.
look_at_clock() {
    read -r now _ < /proc/uptime
    now=${now%.*}${now#*.}
}

# Looks at the clock for so many seconds, and writes down the longest time between two looks,
# in hundredths of a second, how often it looked, and a name.
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

# So many tasks watched their gaps, and none waited for so many hundredths of a second.
nobody_waited() {
    sort -n /tmp/gaps
    [ "$(wc -l < /tmp/gaps)" = "$1" ] || fail "not all ended"
    [ "$(sort -n /tmp/gaps | tail -n 1 | cut -d ' ' -f 1)" -lt "$2" ] || fail "one waited"
}

# Cgroups of version 2.
groups=/sys/fs/cgroup

# Starts a task that computes in a cgroup; any more arguments come before it.
work_in() {
    group=$1
    shift
    (echo 0 > $groups/"$group"/cgroup.procs; busy 90 "$@") &
}

# Microseconds of CPU time that a cgroup has used.
used() { grep usage_usec $groups/"$1"/cpu.stat | cut -d ' ' -f 2; }
