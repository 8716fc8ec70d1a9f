#!/bin/sh
# If the host pins several vCPUs to one pCPU, `unspin run` uses one vCPU of each pCPU first.
. "$(dirname "$0")/tools.sh"
if [ "$1" = load ]; then
    for _ in 1 2 3 4; do busy 20 & done
    wait
    exit
fi
unspin run --actuator sched-ext --pack steal-governor --json --stats 1 -- \
    sh "$0" load > /tmp/stats || fail "exit $?"
cat /tmp/stats
tail -n 1 /tmp/stats | grep -q '"stacks":.\[0,1\],\[2,3\].' || fail "the stacks"
grep '"used":2,' /tmp/stats | tail -n 1 | grep -q '"used_vcpus":.[01],[23]\]' || fail "the vCPUs"
is disabled
clean_log
echo result 1
