#!/bin/sh
# The host offers PV spinlocks and steal time, so `unspin run` limits only on request.
. "$(dirname "$0")/limit_tools.sh"
mount -t tracefs tracefs /sys/kernel/tracing
counts() { grep -q queued_spin_lock_slowpath /sys/kernel/tracing/enabled_functions; }

unspin run -- sh -c 'exit 3' 2>/tmp/said
[ $? = 3 ] || fail "another exit code than the command's"
grep -q "PV spinlocks and steal time" /tmp/said || fail "$(cat /tmp/said)"

unspin run -- cut -d ' ' -f 41 /proc/self/stat >/tmp/policy 2>/tmp/said || fail "exit $?"
[ "$(cat /tmp/policy)" = 0 ] || fail "the command has policy $(cat /tmp/policy)"

unspin run 2>/tmp/said & run=$!
wait_until unspin run --status >/tmp/status
counts && fail "spins are counted"
grep -q "has done nothing" /tmp/status || fail "$(cat /tmp/status)"
grep -q "PV spinlocks" /tmp/status || fail "$(cat /tmp/status)"
unspin watch --once --for 0.2 >/tmp/watched 2>&1 || fail "watch beside it: $(cat /tmp/watched)"
kill -INT "$run"
wait "$run" || fail "exit $?: $(cat /tmp/said)"

# `--status` asks the acting `unspin run`, even while an idle one runs.
unspin run 2>/tmp/idle_said & idle=$!
wait_until unspin run --status >/tmp/status
unspin run --actuator cpuset 2>/tmp/said & run=$!
acts() { unspin run --status | grep -q "has been at work"; }
wait_until acts
counts || fail "spins are not counted"
kill -INT "$run"
wait "$run" || fail "exit $?: $(cat /tmp/said)"
rests() { unspin run --status | grep -q "has done nothing"; }
wait_until rests
kill -INT "$idle"
wait "$idle" || fail "exit $?: $(cat /tmp/idle_said)"
echo result 1
