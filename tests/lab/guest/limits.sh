#!/bin/sh
# Cgroups get no more time than their limits allow, and not much less, however many tasks they have.
# One cgroup has a limit, and another one is inside a limited cgroup. A lifted limit ends at once.
# Two seconds can include 21 periods of 20 (42 %), and off intervals of four vCPUs, 16 ms each (3
# %).
. "$(dirname "$0")/tools.sh"
echo +cpu > $groups/cgroup.subtree_control
mkdir $groups/a $groups/b $groups/c
echo +cpu > $groups/b/cgroup.subtree_control
mkdir $groups/b/d
echo '40000 100000' > $groups/a/cpu.max
echo '20000 50000' > $groups/b/cpu.max
# share BEFORE AFTER: prints the used percentage of a vCPU between `since` and `now`.
share() { echo $((100 * ($2 - $1) / ((now - since) * 10000))); }
start
for _ in 1 2 3 4 5 6; do
    work_in a
    work_in b/d
done
work_in c
sleep 0.4
a=$(used a) b=$(used b) c=$(used c)
look_at_clock
since=$now
sleep 2
look_at_clock
a=$(share "$a" "$(used a)") b=$(share "$b" "$(used b)") c=$(share "$c" "$(used c)")
[ "$a" -ge 25 ] && [ "$a" -le 46 ] || fail "a $a %"
[ "$b" -ge 25 ] && [ "$b" -le 46 ] || fail "b $b %"
[ "$c" -ge 60 ] || fail "c $c %"
echo max > $groups/a/cpu.max
sleep 0.2
a=$(used a)
look_at_clock
since=$now
sleep 1
look_at_clock
a=$(share "$a" "$(used a)")
[ "$a" -ge 60 ] || fail "a $a % without a limit"
stop
clean_log
echo result 1
