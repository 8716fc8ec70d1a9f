#!/bin/sh
# The machine hibernates, which stops all tasks and all vCPUs but one, finds no disk to write to,
# and goes on. The lab's channel does not survive that, so the guest reports by its end: it crashes
# on success, and prints a message on the console on failure.
. "$(dirname "$0")/tools.sh"
trap 'echo went wrong > /dev/ttyS0; poweroff -f' EXIT
start
start_work
exec 2> /dev/ttyS0
echo shutdown > /sys/power/disk
for _ in 1 2; do
    echo disk > /sys/power/state
    sleep 1
    is enabled
    goes_on
done
dmesg | grep -c 'hibernation exit' | grep -q 2 || fail "no hibernation"
stop
clean_log
echo c > /proc/sysrq-trigger
