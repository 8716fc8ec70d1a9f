#!/bin/sh
# A real-time task takes a vCPU for seconds. Tasks that waited in the kernel's queue of that vCPU go
# on, and so do tasks that may run elsewhere.
. "$(dirname "$0")/tools.sh"
gaps=$(dirname "$0")/gaps.sh
start
for mask in 1 2 4; do
    timeout 3 chrt -f 10 taskset $mask sh -c 'while :; do :; done' &
done
for _ in 1 2 3 4 5 6; do
    sh "$gaps" free 2 &
    tasks="$tasks $!"
done
# shellcheck disable=SC2086 # a list
wait $tasks
is enabled
nobody_waited 6 100
unspin run --status --json > /tmp/figures || fail "no figures"
[ "$(count reenqueued /tmp/figures)" -gt 0 ] || fail "no task left the queue of a vCPU that was taken"
stop
clean_log
echo result 1
