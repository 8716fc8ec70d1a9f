#!/bin/bash
# Counts the planted defects of a record that the checkers catch. Each test of crates/trace whose
# name ends in `is_caught` or `are_caught` plants its own defect. Prints claims for `unspin claims
# record`.
set -euo pipefail
cd "$(dirname "$0")/.."
output=$(scripts/with-rust cargo test --locked -p unspin-trace --test it check:: 2>&1) || true
all=$(grep -cE '^test .*_caught \.\.\.' <<< "$output" || true)
caught=$(grep -cE '^test .*_caught \.\.\. ok$' <<< "$output" || true)
[ "$all" -gt 0 ] || { echo "$output" >&2; exit 1; }
commit=$(git describe --always --dirty --abbrev=12 2> /dev/null || true)
printf '[{"id": "vt.checkers_caught", "what": "defects planted into a record that a checker catches", '
printf '"value": %s, "lo": null, "hi": null, "n": %s, "unit": "", "target": ">= %s", ' "$caught" "$all" "$all"
printf '"holds": %s, "label": "trace", ' "$([ "$caught" = "$all" ] && echo true || echo false)"
printf '"experiment": "scripts/vt-checkers.sh", "command": "scripts/vt-checkers.sh", '
printf '"date": "%s", "commit": "%s"}]\n' "$(date -u +%F)" "$commit"
