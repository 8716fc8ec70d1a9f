#!/bin/sh
# Runs random stressors under `unspin run` in a guest for $1 minutes, with seed $2. Fails, with the
# kernel's log, if the scheduler ends early or does not unload, or if the kernel complains.
MINUTES=$1 SEED=$2
ROUND_S=30 WORKERS=8
STATE=/sys/kernel/sched_ext/state

# Excluded stressors, because they break a guest under any scheduler. They restart the guest, or
# write to its devices, its firmware or its settings:
OUT="reboot watchdog smi dev sysfs ioport physpage rawdev efivar memhotplug gpu nvme cpu-online"
# They call the kernel at random, as root:
OUT="$OUT sysinval sysbadaddr enosys"
# They take all memory, and the guest has no swap:
OUT="$OUT bigheap brk stack oom-pipe malloc vm mmapmany mlockmany swap resources forkheavy pageswap"
# They run at real-time priority as long as they can:
OUT="$OUT softlockup cyclic"
# They patch code while it runs, which sometimes crashes an emulated guest:
OUT="$OUT uprobe"

fail() {
    echo "failed: $1"
    cat /tmp/agent
    dmesg | tail -n 60
    exit 1
}

# within CONDITION MESSAGE: waits up to 60 s until the condition holds.
within() {
    for _ in $(seq 600); do
        eval "$1" && return
        sleep 0.1
    done
    fail "$2"
}

# Reads the clock for $1 seconds, and records the longest time between two reads, in 1/100 s.
cat > /tmp/look <<'END'
now() { read n _ < /proc/uptime; n=${n%.*}${n#*.}; }
now; last=$n; end=$((n + $1 * 100)); worst=0
while [ $n -lt $end ]; do
    now; gap=$((n - last)); last=$n
    [ $gap -gt $worst ] && worst=$gap
done
echo $worst >> /tmp/waits
END

known=" $(stress-ng --stressors | tr '\n' ' ') "
left_out=
for name in $OUT; do
    case $known in *" $name "*) left_out=$left_out${left_out:+,}$name ;; esac
done

up_s() { cut -d. -f1 /proc/uptime; }
began=$(up_s)
unspin run --actuator sched-ext --json > /tmp/agent 2>&1 &
agent=$!
within "grep -q enabled $STATE" "the scheduler does not load"
echo "loaded in $(($(up_s) - began)) s"
end=$(($(up_s) + MINUTES * 60))
rounds=0 started=0 odd=0
until [ "$(up_s)" -ge $end ]; do
    looks=
    for mask in 1 2 4 8 f; do
        taskset $mask sh /tmp/look $ROUND_S &
        looks="$looks $!"
    done
    timeout -s KILL $((ROUND_S * 4)) stress-ng --random $WORKERS -x "$left_out" --oomable \
        -t $ROUND_S --seed $((SEED + rounds)) --temp-path /tmp > /tmp/round 2>&1
    code=$?
    ran=$(grep -o 'dispatching hogs: .*' /tmp/round)
    echo "round $rounds, exit code $code, ${ran#*: }"
    started=$((started + $(echo "$ran" | tr ',' '\n' | grep -c '[a-z]')))
    [ $code = 0 ] || odd=$((odd + 1))
    grep -q enabled $STATE || fail "the scheduler ended in round $rounds"
    wait $looks
    rounds=$((rounds + 1))
done
kill -INT $agent
within "grep -q disabled $STATE" "the scheduler does not leave"
wait $agent || fail "exit code $? at its end"
# Stressors cause general protection faults on purpose. Those messages lack a `,` or `:`.
complaints='BUG:|WARNING:|Oops|general protection fault[,:]|runtime error|task stall|hung_task'
complaints="$complaints|self-detected stall|detected (expedited )?stalls|blocked for more than"
dmesg > /tmp/dmesg || fail "dmesg"
grep -E "$complaints" /tmp/dmesg && fail "the kernel complains"
[ $rounds -gt 0 ] || fail "no round was run"
[ $started -gt 0 ] && [ $odd -lt $rounds ] ||
    fail "no stressor ran: $started started, and $odd of $rounds rounds ended oddly"
worst=$(sort -n /tmp/waits | tail -n 1)
echo "rounds $rounds started $started odd $odd"
echo "result $((worst / 100)).$(printf %02d $((worst % 100)))"
