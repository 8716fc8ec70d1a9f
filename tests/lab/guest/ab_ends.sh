#!/bin/sh
# However `unspin run --ab` ends, it restores the guest, and its exit code reports the reason.
. "$(dirname "$0")/tools.sh"

# acts PID: whether the process has BPF programs loaded.
acts() {
    for fd in /proc/"$1"/fd/*; do
        case $(readlink "$fd") in *bpf*) return 0 ;; esac
    done
    return 1
}

if [ "$1" = once ]; then
    if acts $PPID; then echo acts; else echo rests; fi >> /tmp/states
    exit
fi
if [ "$1" = fails ]; then
    # The third round is the second round of the first pair.
    echo round >> /tmp/rounds
    [ "$(wc -l < /tmp/rounds)" -lt 3 ] || { echo its output; exit 4; }
    exit
fi

# The warm-up round and half of the other rounds run without unspin.
unspin run --ab 6 --json -- sh "$0" once > /tmp/judged || fail "$(cat /tmp/judged)"
[ "$(head -n 1 /tmp/states)" = rests ] || fail "the warm-up round"
[ "$(grep -c rests /tmp/states)" = 7 ] || fail "$(cat /tmp/states)"
[ "$(grep -c acts /tmp/states)" = 6 ] || fail "$(cat /tmp/states)"
[ "$(grep -c '"arm"' /tmp/judged)" = 12 ] || fail "$(cat /tmp/judged)"
grep -q '"kernel": "' /tmp/judged || fail "$(cat /tmp/judged)"

unspin run --ab 6 -- sh "$0" fails > /tmp/none 2> /tmp/said
[ $? = 1 ] || fail "a command that fails"
grep -q 'its output$' /tmp/said || fail "$(cat /tmp/said)"
[ "$(wc -l < /tmp/rounds)" = 3 ] || fail "it went on"

# Sends a signal between commands, and another one while a command runs.
unspin run --ab 6 --round 1 > /tmp/interval 2>&1 &
run=$!
wait_until acts $run
kill -INT $run
wait $run
[ $? = 130 ] || fail "interrupted: $(cat /tmp/interval)"
grep -q 'Too few pairs to judge' /tmp/interval || fail "$(cat /tmp/interval)"
unspin run --ab 6 -- sleep 2 > /tmp/sleep 2>&1 &
run=$!
wait_until acts $run
kill -TERM $run
wait $run
[ $? = 130 ] || fail "interrupted: $(cat /tmp/sleep)"

# If the kernel ends the scheduler, the round is void.
unspin run --actuator sched-ext --ab 6 -- sleep 5 > /tmp/ended 2>&1 &
run=$!
is enabled
echo S > /proc/sysrq-trigger
wait $run
[ $? = 1 ] || fail "the kernel ended it: $(cat /tmp/ended)"
grep -q 'disabled by sysrq-S' /tmp/ended || fail "$(cat /tmp/ended)"
unspin run --actuator sched-ext &
run=$!
is enabled
unspin run --actuator sched-ext --ab 6 -- true 2> /tmp/taken
[ $? = 1 ] || fail "another scheduler runs: $(cat /tmp/taken)"
kill -KILL $run
is disabled
clean_log
echo result 1
