#!/bin/bash
# How many defects that are planted into the guest scheduler `unspin lab fuzz` finds, and finds again:
# each patch of tests/plants is built into a program of its own, whose first failing seed must
# fail again in an empty folder, in the same words. Takes about 10 minutes on two CPUs. Prints what
# `unspin claims record` takes. SEEDS=0-39 tries other seeds than those that a patch names.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/out/plants
export CARGO_TARGET_DIR=$work/target

# first_failure OUT SEEDS SCHEDULER: "SEED WHAT" of the first seed that fails; empty if none does.
first_failure() {
    { "$CARGO_TARGET_DIR/release/unspin" lab fuzz --seeds "$2" --scheduler "$3" --shrink 0 \
        --out "$1" --json 2> "$1.log" || true; } |
        python3 -c 'import json, sys
for failure in json.load(sys.stdin)["failures"][:1]:
    print(failure["seed"], failure["what"])'
}

found=0 all=0
for plant in tests/plants/*.patch; do
    name=$(basename "$plant" .patch)
    scheduler=$(sed -n 's/^Scheduler: //p' "$plant")
    seeds=${SEEDS:-$(sed -n 's/^Seeds: //p' "$plant")}
    rm -rf "${work:?}/source" "${work:?}/$name" "${work:?}/$name-again"
    mkdir -p "$work/source"
    git ls-files -z | xargs -0 cp --parents -t "$work/source"
    patch -s -p1 -d "$work/source" < "$plant"
    (cd "$work/source" && scripts/with-rust cargo build --release --locked -q --workspace)
    all=$((all + 1))
    first=$(first_failure "$work/$name" "$seeds" "$scheduler")
    again=$([ -z "$first" ] || first_failure "$work/$name-again" "${first%% *}" "$scheduler")
    echo "$name: ${first:-no seed fails}; again: ${again:--}" >&2
    [ -z "$first" ] || [ "$first" != "$again" ] || found=$((found + 1))
done
commit=$(git rev-parse --short=12 HEAD 2> /dev/null || true)
printf '[{"id": "run.fuzz.planted", "what": "defects planted into the guest scheduler that fuzzing finds, and finds again by the seed", '
printf '"value": %s, "lo": null, "hi": null, "n": %s, "unit": "", "target": ">= %s", ' "$found" "$all" "$all"
printf '"holds": %s, "label": "lab/vt", ' "$([ "$found" = "$all" ] && echo true || echo false)"
printf '"experiment": "scripts/fuzz-plants.sh", "command": "scripts/fuzz-plants.sh", '
printf '"date": "%s", "commit": "%s"}]\n' "$(date -u +%F)" "$commit"
