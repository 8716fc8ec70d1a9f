#!/bin/sh
# The scheduler serves its figures while it runs, by socket and by HTTP. A command gets our signals,
# and goes on when the kernel ends the scheduler.
. "$(dirname "$0")/tools.sh"
if [ "$1" = wait ]; then
    trap 'exit 5' TERM
    sleep 50 &
    wait
fi
if [ "$1" = end ]; then
    sleep 1
    echo S > /proc/sysrq-trigger
    sleep 1
    : > /tmp/done
    exit 3
fi
socket=/run/unspin/run.sock
unspin run --status 2> /tmp/none
[ $? = 1 ] || fail "nothing runs"
grep -q 'unspin run' /tmp/none || fail "$(cat /tmp/none)"
unspin run --actuator sched-ext --listen 127.0.0.1:9470 -- sh "$0" wait &
run=$!
wait_until test -S $socket
[ "$(stat -c %a $socket)" = 600 ] || fail "others may ask"
unspin run --status > /tmp/status || fail "exit $?"
grep -q 'of 4 vCPUs' /tmp/status || fail "$(cat /tmp/status)"
unspin run --status --json > /tmp/figures || fail "exit $?"
for figure in '"used_vcpus":.0' '"spins":[0-9]' '"actuator":"sched-ext"'; do
    grep -q "$figure" /tmp/figures || fail "$figure: $(cat /tmp/figures)"
done
wget -q -O - http://127.0.0.1:9470/metrics | grep 'unspin_run_vcpus 4' || fail "HTTP"
kill -TERM $run
wait $run
[ $? = 5 ] || fail "the command's exit code"
[ ! -e $socket ] || fail "the socket stays"
is disabled
unspin run --actuator sched-ext -- sh "$0" end 2> /tmp/ended
[ $? = 1 ] || fail "the kernel ended it"
[ -e /tmp/done ] || fail "the command was ended"
grep -q 'exit code 3' /tmp/ended || fail "$(cat /tmp/ended)"
is disabled
clean_log
echo result 1
