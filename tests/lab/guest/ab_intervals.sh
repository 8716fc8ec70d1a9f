#!/bin/sh
# Rounds of a job that runs all the time: unspin measures its useful time, or a command's counter.
. "$(dirname "$0")/tools.sh"
sysbench cpu --threads=4 --time=200 run > /dev/null 2>&1 &
work=$!
unspin run --ab 6 --round 500ms > /tmp/proxy || fail "$(cat /tmp/proxy)"
grep -q '^No difference shown after 6 pairs' /tmp/proxy || fail "$(cat /tmp/proxy)"
grep -q 'a proxy' /tmp/proxy || fail "$(cat /tmp/proxy)"
is disabled
# The figure is the time since boot in seconds, which no scheduler changes.
unspin run --ab 6 --round 500ms --metric '^(\S+)' --metric-cmd 'cat /proc/uptime' > /tmp/verdict ||
    fail "$(cat /tmp/verdict)"
cat /tmp/proxy /tmp/verdict
grep -q '^No difference shown after 6 pairs' /tmp/verdict || fail "the verdict"
kill $work
is disabled
echo "result $(sed -n 's/^speed *\([0-9.]*\)x.*/\1/p' /tmp/verdict)"
