#!/bin/sh
# However `unspin run --ab` ends, the kernel's own scheduler is back, and its exit code says how.
. "$(dirname "$0")/tools.sh"
if [ "$1" = once ]; then
    cat "$state" >> /tmp/states
    exit
fi
if [ "$1" = fails ]; then
    # The third round is the second of the first pair.
    echo round >> /tmp/rounds
    [ "$(wc -l < /tmp/rounds)" -lt 3 ] || { echo its output; exit 4; }
    exit
fi

# The warm-up round is under the kernel's own scheduler, and half of the others are.
unspin run --actuator sched-ext --ab 6 --json -- sh "$0" once > /tmp/judged || fail "$(cat /tmp/judged)"
[ "$(head -n 1 /tmp/states)" = disabled ] || fail "the warm-up round"
[ "$(grep -c disabled /tmp/states)" = 7 ] || fail "$(cat /tmp/states)"
[ "$(grep -c enabled /tmp/states)" = 6 ] || fail "$(cat /tmp/states)"
[ "$(grep -c '"arm"' /tmp/judged)" = 12 ] || fail "$(cat /tmp/judged)"
grep -q '"kernel": "' /tmp/judged || fail "$(cat /tmp/judged)"
is disabled

unspin run --actuator sched-ext --ab 6 -- sh "$0" fails > /tmp/none 2> /tmp/said
[ $? = 1 ] || fail "a command that fails"
grep -q 'its output$' /tmp/said || fail "$(cat /tmp/said)"
[ "$(wc -l < /tmp/rounds)" = 3 ] || fail "it went on"
is disabled

# A signal between commands, and one while a command runs.
unspin run --actuator sched-ext --ab 6 --round 1 > /tmp/interval 2>&1 &
run=$!
is enabled
kill -INT $run
wait $run
[ $? = 130 ] || fail "interrupted: $(cat /tmp/interval)"
grep -q 'Too few pairs to judge' /tmp/interval || fail "$(cat /tmp/interval)"
is disabled
unspin run --actuator sched-ext --ab 6 -- sleep 2 > /tmp/sleep 2>&1 &
run=$!
is enabled
kill -TERM $run
wait $run
[ $? = 130 ] || fail "interrupted: $(cat /tmp/sleep)"
is disabled

# When the kernel ends the scheduler, the round is void.
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
[ $? = 77 ] || fail "another scheduler runs: $(cat /tmp/taken)"
kill -KILL $run
is disabled
clean_log
echo result 1
