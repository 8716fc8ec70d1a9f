#!/bin/sh
# A fork bomb reaches the limit of tasks. Ctrl-C still restores the kernel's own scheduler.
. "$(dirname "$0")/tools.sh"
bomb() { while :; do bomb & done; }
if [ "$1" = bomb ]; then
    set +x
    echo 0 > $groups/bomb/cgroup.procs
    bomb
fi
echo +pids > $groups/cgroup.subtree_control
mkdir $groups/bomb
echo 400 > $groups/bomb/pids.max
start
sh "$0" bomb > /dev/null 2>&1 &
wait_until grep -q 'max [1-9]' $groups/bomb/pids.events
sleep 2
is enabled
stop
echo 1 > $groups/bomb/cgroup.kill
clean_log
echo result 1
