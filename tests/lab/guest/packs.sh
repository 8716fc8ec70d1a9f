#!/bin/sh
# Spinning tasks stay on fewer vCPUs, and other tasks avoid the remaining vCPUs. Only tasks that
# cannot run elsewhere use these, even if their affinity includes vCPUs that are offline.
. "$(dirname "$0")/tools.sh"
echo 0 > /sys/devices/system/cpu/cpu1/online
echo 0 > /sys/devices/system/cpu/cpu5/online
start
stress-ng --rename 8 -t 4 --temp-path /tmp > /dev/null 2>&1 &
work=$!
uses_two() { unspin run --status --json | grep -q '"used":2,.*"trial":false,'; }
wait_until uses_two
sed -n 's/^cpu\([0-9]\) \([0-9]* \)\{3\}\([0-9]*\).*/\1 \3/p' /proc/stat > /tmp/before
sleep 1
sed -n 's/^cpu\([0-9]\) \([0-9]* \)\{3\}\([0-9]*\).*/\1 \3/p' /proc/stat > /tmp/after
idle=0
while read -r vcpu before && read -r _ after <&3; do
    echo "vCPU $vcpu was idle for $((after - before)) hundredths of a second"
    # The agent wakes at a tick. A kernel that counts by ticks charges its vCPU as busy until the
    # next.
    [ $((after - before)) -lt 25 ] || idle=$((idle + 1))
done < /tmp/before 3< /tmp/after
unspin run --status
[ $idle = 2 ] || fail "$idle vCPUs are idle, not two"
for mask in 27 2b 33 2e 36 3a; do
    taskset $mask sh "$(dirname "$0")/gaps.sh" mask$mask 2 &
    bound="$bound $!"
done
wait_until uses_two
# shellcheck disable=SC2086 # a list
wait $bound
# A task that has waited for a second comes first in its queue.
nobody_waited 6 150
wait $work
# With little work, all vCPUs are used again.
uses_all() { unspin run --status --json | grep -q '"used":4,'; }
wait_until uses_all
stop
clean_log
echo result 1
