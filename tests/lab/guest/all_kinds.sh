#!/bin/sh
# 51 tasks of every kind on four vCPUs. The kernel's watchdog allows waits of 10 s, and no task may
# wait for a quarter of that.
. "$(dirname "$0")/tools.sh"
gaps=$(dirname "$0")/gaps.sh
watched() {
    name=$1
    shift
    "$@" sh "$gaps" "$name" 3 &
    tasks="$tasks $!"
}
start
set +x
for n in -20 -20 -20 -10 -10 -5 0 0 0 0 0 0 5 10 15 19 19; do watched nice$n nice -n $n; done
for mask in 1 2 4 8; do
    for n in 0 19 -20; do watched bound$mask,$n nice -n $n taskset $mask; done
done
for mask in 3 c 7 9; do watched mask$mask taskset $mask; done
for _ in 1 2 3 4; do
    watched batch chrt -b 0
    watched idle chrt -i 0
done
for _ in 1 2 3 4 5 6 7 8 9 10; do watched plain env; done
# shellcheck disable=SC2086 # a list
wait $tasks
set -x
is enabled
nobody_waited 51 250
stop
clean_log
echo result 1
