#!/bin/sh
# Two cgroups get time by their weights, three to one, and not by how many tasks they have, nor
# does a cgroup in one of them, on two vCPUs. Eight seeds gave between 2.8 and 3.5.
. "$(dirname "$0")/tools.sh"
echo +cpu > $groups/cgroup.subtree_control
mkdir $groups/a $groups/b
echo +cpu > $groups/b/cgroup.subtree_control
mkdir $groups/b/c $groups/b/d
echo 300 > $groups/a/cpu.weight
echo 300 > $groups/b/c/cpu.weight
start
for _ in 1 2 3 4 5 6; do
    for group in a b/c b/d; do work_in $group taskset 3; done
done
sleep 1
a=$(used a) b=$(used b) c=$(used b/c) d=$(used b/d)
sleep 2
a=$(($(used a) - a)) b=$(($(used b) - b)) c=$(($(used b/c) - c)) d=$(($(used b/d) - d))
echo 1 > $groups/a/cgroup.kill
echo 1 > $groups/b/cgroup.kill
[ $((a * 10)) -gt $((b * 22)) ] && [ $a -lt $((b * 4)) ] || fail "a $a, b $b"
[ $((c * 10)) -gt $((d * 22)) ] && [ $c -lt $((d * 4)) ] || fail "c $c, d $d"
stop
clean_log
echo result 1
