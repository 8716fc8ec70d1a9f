#!/bin/sh
# No task waits long while its cgroup, weight, limit and vCPUs change.
. "$(dirname "$0")/tools.sh"
gaps=$(dirname "$0")/gaps.sh
move() { for task in $tasks; do echo "$task" > $groups/"$1"/cgroup.procs; done; }
echo '+cpu +cpuset' > $groups/cgroup.subtree_control
mkdir $groups/a $groups/b
start
for _ in 1 2 3 4 5 6 7 8; do
    sh "$gaps" task 4 &
    tasks="$tasks $!"
done
for round in 1 2 3 4 5 6 7 8; do
    move a
    echo 1 > $groups/a/cpu.weight
    echo '20000 100000' > $groups/a/cpu.max
    echo 0-1 > $groups/a/cpuset.cpus
    sleep 0.2
    move b
    echo 10000 > $groups/b/cpu.weight
    echo $((round % 4)) > $groups/b/cpuset.cpus
    sleep 0.2
    echo max > $groups/a/cpu.max
    echo 0-3 > $groups/a/cpuset.cpus
    echo 1-3 > $groups/b/cpuset.cpus
done
# shellcheck disable=SC2086 # a list
wait $tasks
is enabled
nobody_waited 8 333
stop
clean_log
echo result 1
