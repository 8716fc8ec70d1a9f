#!/bin/sh
# A job that spins in the kernel while lock holders are preempted: the verdict is to use unspin.
. "$(dirname "$0")/tools.sh"
renames='\] rename +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+)'
unspin run --ab 6 --metric "$renames" -- stress-ng --rename 8 -t 1 --metrics --stdout \
    --no-rand-seed --temp-path /tmp > /tmp/verdict || fail "$(cat /tmp/verdict)"
cat /tmp/verdict
grep -q '^Leave it on: ' /tmp/verdict || fail "the verdict"
is disabled
echo "result $(sed -n 's/^speed *\([0-9.]*\)x.*/\1/p' /tmp/verdict)"
