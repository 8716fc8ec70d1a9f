#!/bin/sh
# Work that runs anyway: unspin sees its useful time, and counts what a command reads.
. "$(dirname "$0")/tools.sh"
stress-ng --rename 8 -t 200 --no-rand-seed --temp-path /tmp > /dev/null 2>&1 &
work=$!
unspin run --ab 6 --round 500ms > /tmp/verdict || fail "$(cat /tmp/verdict)"
cat /tmp/verdict
grep -q '^Leave it on: ' /tmp/verdict || fail "the verdict"
grep -q 'proxy' /tmp/verdict || fail "it is one"
is disabled
unspin run --ab 6 --round 500ms --metric 'ctxt (\d+)' --metric-cmd 'cat /proc/stat' > /tmp/verdict ||
    fail "$(cat /tmp/verdict)"
cat /tmp/verdict
kill $work
is disabled
echo "result $(sed -n 's/^speed *\([0-9.]*\)x.*/\1/p' /tmp/verdict)"
