#!/bin/sh
# Tasks that spin are kept on fewer vCPUs, and the others leave them alone.
. "$(dirname "$0")/tools.sh"
start
stress-ng --rename 8 -t 3 --temp-path /tmp > /dev/null 2>&1 &
work=$!
uses_two() { unspin run --status --json | grep -q '"used":2,.*"trial":false,'; }
wait_until uses_two
sed -n 's/^cpu\([0-9]\) \([0-9]* \)\{3\}\([0-9]*\).*/\1 \3/p' /proc/stat > /tmp/before
sleep 1
sed -n 's/^cpu\([0-9]\) \([0-9]* \)\{3\}\([0-9]*\).*/\1 \3/p' /proc/stat > /tmp/after
idle=0
while read -r vcpu before && read -r _ after <&3; do
    echo "vCPU $vcpu was idle for $((after - before)) hundredths of a second"
    # A kernel that counts by ticks takes the agent, which wakes at a tick, for busy until the next.
    [ $((after - before)) -lt 25 ] || idle=$((idle + 1))
done < /tmp/before 3< /tmp/after
unspin run --status
[ $idle = 2 ] || fail "$idle vCPUs are idle, not two"
wait $work
# There is little to do: all are used again.
uses_all() { unspin run --status --json | grep -q '"used":4,'; }
wait_until uses_all
stop
clean_log
echo result 1
