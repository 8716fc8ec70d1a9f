#!/bin/sh
# Two cgroups on two vCPUs share time by their weights, three to one, regardless of their numbers of
# tasks. The same holds for two cgroups inside one of them. The test counts work instead of CPU
# time, because a cgroup's CPU time includes random off time of its vCPU.
. "$(dirname "$0")/tools.sh"

# counts_in GROUP NUMBER: starts a task in a cgroup that counts in its own file.
counts_in() {
    group=$1
    number=$2
    (
        set +x
        echo 0 > $groups/"$group"/cgroup.procs
        # shellcheck disable=SC2016 # for the other shell
        exec taskset 3 sh -c 'n=0
            while :; do n=$((n + 1)); [ $((n % 500)) -ne 0 ] || echo $n > "$1"; done' \
            sh "/tmp/work-$(echo "$group" | tr / -)-$number"
    ) &
}

# counted NAME: prints the sum of a cgroup's counts.
counted() { cat /tmp/work-"$1"-* | awk '{ sum += $1 } END { print sum + 0 }'; }

echo +cpu > $groups/cgroup.subtree_control
mkdir $groups/a $groups/b
echo +cpu > $groups/b/cgroup.subtree_control
mkdir $groups/b/c $groups/b/d
echo 300 > $groups/a/cpu.weight
echo 300 > $groups/b/c/cpu.weight
start
for task in 1 2 3 4 5 6; do
    for group in a b/c b/d; do counts_in $group $task; done
done
sleep 0.4
a=$(counted a) c=$(counted b-c) d=$(counted b-d)
sleep 2
a=$(($(counted a) - a)) c=$(($(counted b-c) - c)) d=$(($(counted b-d) - d))
b=$((c + d))
echo 1 > $groups/a/cgroup.kill
echo 1 > $groups/b/cgroup.kill
[ $((a * 10)) -gt $((b * 22)) ] && [ $a -lt $((b * 4)) ] || fail "a $a, b $b"
[ $((c * 10)) -gt $((d * 22)) ] && [ $c -lt $((d * 4)) ] || fail "c $c, d $d"
stop
clean_log
echo result 1
