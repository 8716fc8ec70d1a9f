#!/bin/sh
# A job that computes without any lock: the comparison finds no gain.
. "$(dirname "$0")/tools.sh"
unspin run --ab 6 --metric 'events per second: +(\S+)' -- \
    sysbench cpu --threads=4 --time=1 run > /tmp/verdict || fail "$(cat /tmp/verdict)"
cat /tmp/verdict
grep -q '^No difference shown after 6 pairs' /tmp/verdict || fail "the verdict"
is disabled
echo "result $(sed -n 's/^speed *\([0-9.]*\)x.*/\1/p' /tmp/verdict)"
