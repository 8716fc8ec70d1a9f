#!/bin/sh
# Runs random stressors of stress-ng under `unspin run`, in a guest with four vCPUs on one pCPU.
# Usage: stress.sh UNSPIN [MINUTES [SEED]]; 30 minutes by default, 55 at most. The result is in
# out/stress-SEED/runs.jsonl. `outcome` is "done" if the scheduler lasted and the kernel's log is
# clean. `metric` is then the longest wait of a computing task, in seconds. Otherwise, `detail` has
# the reason. out/stress-SEED/claims.json has claims for `unspin claims record`.
set -eu
unspin=$1 minutes=${2:-30} seed=${3:-$(date +%s)}
# The lab's time limit is an hour, and the guest needs some of it to start and end.
case $minutes in
    [1-9] | [1-4][0-9] | 5[0-5]) ;;
    *)
        echo "stress: MINUTES must be a number from 1 to 55, unlike $minutes: run it again with" \
            "another SEED instead" >&2
        exit 2
        ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
out=$PWD/out/stress-$seed
rm -rf "$out"
mkdir -p "$out"
cat > "$out/stress.toml" <<END
name = "stress"
title = "random stressors for $minutes minutes, seed $seed"
stresses = "the guest scheduler, by everything that stress-ng has"
packages = ["stress-ng"]
programs = ["stress-ng", "unspin"]
files = ["$here/stress-guest.sh"]
command = ["sh", "$here/stress-guest.sh", "$minutes", "$seed"]
time_limit_s = $((minutes * 60 + 300))
metric = { name = "worst_wait_s", unit = "s", better = "lower" }
read = { regex = 'result (\S+)' }

[[co_metric]]
name = "load_s"
read = { regex = 'loaded in (\d+)' }

[[co_metric]]
name = "rounds"
read = { regex = 'rounds (\d+)' }

[[co_metric]]
name = "stressors"
read = { regex = 'started (\d+)' }

# Rounds in which a stressor failed, found nothing to do, or was killed.
[[co_metric]]
name = "rounds_odd"
read = { regex = 'odd (\d+)' }
END
cat > "$out/stress-experiment.toml" <<END
name = "stress"
title = "The guest scheduler under random stressors"
about = "Does it last, does it leave, is the kernel's log clean, and how long do tasks wait?"
repeats = 1
accel = "real"
kernels = ["debian-cloud"]
schedulers = ["stock"]
workloads = ["stress.toml"]

[[topology]]
name = "4:1"
vcpus = 4
pcpus = 1
memory_mib = 2048
END
"$unspin" lab run "$out/stress-experiment.toml" --out "$out/lab"
mv "$out/lab"/* "$out"
grep -q '"outcome":"done"' "$out/runs.jsonl"

# field NAME: prints the last field of that name in the record of the completed attempt.
field() { sed -n '/"outcome":"done"/s/.*"'"$1"'":"\{0,1\}\([^,"}]*\).*/\1/p' "$out/runs.jsonl"; }
cat > "$out/claims.json" <<END
[{"id": "sched.stress.worst_wait",
  "what": "the longest that a computing task was kept from the clock under unspin run, in rounds of random stressors that took $minutes minutes, four vCPUs on one pCPU, with the kernel's log clean",
  "value": $(field value), "lo": null, "hi": null, "n": $(field rounds | cut -d. -f1), "unit": "s",
  "target": "", "holds": null, "reason": "",
  "label": "lab/$(field accel), kernel $(field kernel)", "experiment": "scripts/stress.sh",
  "command": "make stress MINUTES=$minutes SEED=$seed", "date": "$(date -u +%F)",
  "commit": "$(git -C "$here" rev-parse --short=12 HEAD 2> "$out/no-git" || true)"}]
END
rm -f "$out/no-git"
