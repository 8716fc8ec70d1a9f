//! The guest scheduler leaves nobody waiting: whatever the priority, where it may run, or how
//! many there are.

use libtest_mimic::Failed;

use crate::scheduler::in_guest;

/// A task that looks at the clock until $2 seconds have passed, and writes down the longest
/// time between two looks, in hundredths of a second, and how often it looked.
const GAP: &str = "cat > /tmp/gap <<'END'\n\
    now() { read n _ < /proc/uptime; n=${n%.*}${n#*.}; }\n\
    now; last=$n; end=$((n + $2 * 100)); worst=0; looks=0\n\
    while [ $n -lt $end ]; do\n\
      now; gap=$((n - last)); last=$n; looks=$((looks + 1))\n\
      [ $gap -gt $worst ] && worst=$gap\n\
    done\n\
    echo $worst $looks $1 >> /tmp/gaps\n\
    END\n\
    gap() { sh /tmp/gap $1 $2 & T=\"$T $!\"; }\n\
    nobody_waited() {\n\
      sort -n /tmp/gaps; [ $(wc -l < /tmp/gaps) = $1 ] || exit 1\n\
      [ $(sort -n /tmp/gaps | tail -n 1 | cut -d ' ' -f 1) -lt 800 ] || exit 1\n\
    }\n";

/// 51 tasks of every kind on four vCPUs: none waits for as long as the kernel's watchdog
/// allows, which is 10 s.
pub fn all_kinds() -> Result<(), Failed> {
    in_guest(&format!(
        "{GAP} unspin run --json > /tmp/stats 2>&1 & P=$!; is enabled; set +x
         run() {{ how=$1; shift; \"$@\" sh /tmp/gap \"$how\" 15 & T=\"$T $!\"; }}
         for n in -20 -20 -20 -10 -10 -5 0 0 0 0 0 0 5 10 15 19 19; do run nice$n nice -n $n; done
         for m in 1 2 4 8; do
           for n in 0 19 -20; do run bound$m,$n nice -n $n taskset $m; done
         done
         for m in 3 c 7 9; do run mask$m taskset $m; done
         for i in 1 2 3 4; do run batch chrt -b 0; run idle chrt -i 0; done
         for i in 1 2 3 4 5 6 7 8 9 10; do run plain env; done
         wait $T; set -x; is enabled; nobody_waited 51
         kill -INT $P; is disabled; wait $P || exit 1; clean; echo result 1"
    ))
}

/// Two cgroups get time by their weights, three to one, and not by how many tasks they have,
/// nor does a cgroup in one of them, on two vCPUs; the bounds tell three from one.
pub fn groups_by_weight() -> Result<(), Failed> {
    in_guest(
        "G=/sys/fs/cgroup; echo +cpu > $G/cgroup.subtree_control; mkdir $G/a $G/b
         echo +cpu > $G/b/cgroup.subtree_control; mkdir $G/b/c $G/b/d
         echo 300 > $G/a/cpu.weight; echo 300 > $G/b/c/cpu.weight
         work() { (echo 0 > $G/$1/cgroup.procs
           exec timeout 60 taskset 3 sh -c 'while :; do :; done') & }
         used() { grep usage_usec $G/$1/cpu.stat | cut -d ' ' -f 2; }
         unspin run > /tmp/one 2>&1 & P=$!; is enabled
         for i in 1 2 3 4 5 6; do work a; work b/c; work b/d; done; sleep 2
         A=$(used a); B=$(used b); C=$(used b/c); D=$(used b/d); sleep 6
         A=$(($(used a) - A)); B=$(($(used b) - B)); C=$(($(used b/c) - C)); D=$(($(used b/d) - D))
         echo 1 > $G/a/cgroup.kill; echo 1 > $G/b/cgroup.kill
         [ $((A * 10)) -gt $((B * 16)) ] && [ $((C * 10)) -gt $((D * 16)) ] || exit 1
         [ $A -lt $((B * 6)) ] && [ $C -lt $((D * 6)) ] || exit 1
         kill -INT $P; is disabled; wait $P || exit 1; clean; echo result 1",
    )
}

/// Cgroups with limits get no more time than those allow, nor much less, however many tasks they
/// have: one with a limit, and one in another that is limited; a limit that is lifted ends
/// at once. And 100 tasks for which there is hardly any time do not wait for so long that the
/// kernel's watchdog ends the scheduler.
pub fn groups_by_limit() -> Result<(), Failed> {
    in_guest(
        "G=/sys/fs/cgroup; echo +cpu > $G/cgroup.subtree_control; mkdir $G/a $G/b $G/c
         echo +cpu > $G/b/cgroup.subtree_control; mkdir $G/b/d
         echo '40000 100000' > $G/a/cpu.max; echo '20000 50000' > $G/b/cpu.max
         work() { (echo 0 > $G/$1/cgroup.procs
           exec timeout 90 sh -c 'while :; do :; done') & }
         used() { grep usage_usec $G/$1/cpu.stat | cut -d ' ' -f 2; }
         now() { read n _ < /proc/uptime; n=${n%.*}${n#*.}; }
         share() { echo $((100 * ($2 - $1) / ((n - t) * 10000))); }
         unspin run --json > /tmp/stats 2>&1 & P=$!; is enabled
         for i in 1 2 3 4 5 6; do work a; work b/d; done; work c; sleep 2
         A=$(used a); B=$(used b); C=$(used c); now; t=$n; sleep 6
         now; A=$(share $A $(used a)); B=$(share $B $(used b)); C=$(share $C $(used c))
         [ $A -ge 25 ] && [ $A -le 43 ] && [ $B -ge 25 ] && [ $B -le 43 ] && [ $C -ge 60 ] || exit 1
         echo max > $G/a/cpu.max; sleep 1; A=$(used a); now; t=$n; sleep 3
         now; A=$(share $A $(used a)); [ $A -ge 60 ] || exit 1
         echo 1 > $G/a/cgroup.kill; echo 1 > $G/b/cgroup.kill; echo 1 > $G/c/cgroup.kill
         mkdir $G/e; echo '1000 100000' > $G/e/cpu.max; set +x
         for i in $(seq 100); do work e; done; set -x; sleep 15; is enabled
         echo 1 > $G/e/cgroup.kill
         kill -INT $P; is disabled; wait $P || exit 1
         grep -q '\"throttled\":[1-9]' /tmp/stats || { cat /tmp/stats; exit 1; }
         clean; echo result 1",
    )
}

/// Tasks that change cgroups, weights, limits and vCPUs while they run, then more tasks than
/// may be started; Ctrl-C gets the kernel's own scheduler back in the midst of them.
pub fn cgroups_and_forks() -> Result<(), Failed> {
    in_guest(&format!(
        "{GAP} G=/sys/fs/cgroup; echo '+cpu +cpuset +pids' > $G/cgroup.subtree_control
         mkdir $G/a $G/b $G/bomb
         unspin run > /tmp/one 2>&1 & P=$!; is enabled
         for i in 1 2 3 4 5 6 7 8; do gap task 15; done
         set $T
         for round in 1 2 3 4 5 6 7 8; do
           for t; do echo $t > $G/a/cgroup.procs; done
           echo 1 > $G/a/cpu.weight; echo '20000 100000' > $G/a/cpu.max
           echo 0-1 > $G/a/cpuset.cpus; sleep 0.3
           for t; do echo $t > $G/b/cgroup.procs; done
           echo 10000 > $G/b/cpu.weight; echo $((round % 4)) > $G/b/cpuset.cpus; sleep 0.3
           echo 'max' > $G/a/cpu.max; echo 0-3 > $G/a/cpuset.cpus
           echo 1-3 > $G/b/cpuset.cpus
         done
         wait $T; is enabled; nobody_waited 8
         echo 400 > $G/bomb/pids.max
         sh -c 'echo 0 > /sys/fs/cgroup/bomb/cgroup.procs
           bomb() {{ while :; do bomb & done; }}; bomb' > /dev/null 2>&1 &
         for i in $(seq 100); do grep -q 'max [1-9]' $G/bomb/pids.events && break; sleep 0.1; done
         grep -q 'max [1-9]' $G/bomb/pids.events || exit 1
         sleep 5; is enabled; kill -INT $P; is disabled; wait $P || exit 1
         echo 1 > $G/bomb/cgroup.kill; clean; echo result 1"
    ))
}
