#!/bin/sh
# A cgroup's limit leaves a hundred tasks hardly any time. Still, none waits so long that the
# kernel's watchdog ends the scheduler.
. "$(dirname "$0")/tools.sh"
echo +cpu > $groups/cgroup.subtree_control
mkdir $groups/e
echo '1000 100000' > $groups/e/cpu.max
start --json
set +x
for _ in $(seq 100); do work_in e; done
set -x
sleep 15
is enabled
echo 1 > $groups/e/cgroup.kill
stop
[ "$(count throttled /tmp/said)" -gt 0 ] || fail "$(cat /tmp/said)"
clean_log
echo result 1
