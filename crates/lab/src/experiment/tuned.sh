# shellcheck shell=sh
# The kernel's own scheduler as an administrator can tune it: slices of 20 ms, and a task that
# wakes up does not preempt the one that runs. `tuned.sh off` undoes that.
set -eu
sched=/sys/kernel/debug/sched
kept=/tmp/base-slice-ns
if [ "${1:-on}" = on ]; then
    [ -e "$kept" ] || cat "$sched/base_slice_ns" > "$kept"
    echo 20000000 > "$sched/base_slice_ns"
    echo NO_WAKEUP_PREEMPTION > "$sched/features"
elif [ -e "$kept" ]; then
    cat "$kept" > "$sched/base_slice_ns"
    echo WAKEUP_PREEMPTION > "$sched/features"
fi
