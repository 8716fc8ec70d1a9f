#!/bin/sh
# Real-time tasks take the vCPUs in use. Waiting tasks go on elsewhere, and `--status` reports that
# the limit does not hold.
. "$(dirname "$0")/tools.sh"
start
stress-ng --rename 8 -t 8 --temp-path /tmp > /dev/null 2>&1 &
work=$!
uses_two() { unspin run --status --json | grep -q '"used":2,.*"trial":false,'; }
wait_until uses_two
unspin run --status --json > /tmp/status || fail "no status"
vcpus=$(sed 's/.*"used_vcpus":\[\([0-9,]*\)\].*/\1/; s/,/ /g' /tmp/status)
for vcpu in $vcpus; do
    timeout 3 chrt -f 10 taskset -c "$vcpu" sh -c 'while :; do :; done' &
done
for _ in 1 2 3 4; do
    sh "$(dirname "$0")/gaps.sh" free 2 &
    free="$free $!"
done
is_refused() { unspin run --status --json | grep -q 'nobody ran the tasks that waited'; }
wait_until is_refused
# shellcheck disable=SC2086 # a list
wait $free
nobody_waited 4 100
wait $work
unspin run --status
is_kept() { unspin run --status --json > /tmp/status && ! grep -q '"failed":' /tmp/status; }
wait_until is_kept
stop
clean_log
echo result 1
