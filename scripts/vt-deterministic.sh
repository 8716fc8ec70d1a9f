#!/bin/bash
# Checks that virtual time repeats the same bytes. It runs twenty cells from this checkout, and
# again under load from a second checkout with its own build and an empty cache, which fetches the
# kernel and builds the QEMU again. Prints claims for `unspin claims record`. Needs stress-ng, and
# half an hour. Usage: scripts/vt-deterministic.sh UNSPIN FOLDER
set -euo pipefail
unspin=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
command -v stress-ng > /dev/null || { echo "skipped: needs stress-ng" >&2; exit 77; }
unset UNSPIN_VT_QEMU CARGO_TARGET_DIR
for name in first second checkout cache; do rm -rf "${folder:?}/$name"; done
cd "$(dirname "$0")/.."

run() { # PROGRAM OUT
    mkdir -p "$2"
    # Not in a checkout, because unspin would take over its committed results.
    cd "$2"
    "$1" lab run vt-abandoned --runs 0-11 --out vt-abandoned >&2
    # A busy neighbour, without and with unspin.
    "$1" lab run vt-everywhere --runs 78-81 --out vt-everywhere >&2
    "$1" lab run vt-cvm --runs 0-3 --out vt-cvm >&2
}

(run "$unspin" "$folder/first")
git clone --quiet . "$folder/checkout"
(cd "$folder/checkout" && scripts/with-rust cargo build --release --locked --workspace >&2)
export UNSPIN_CACHE="$folder/cache"
"$folder/checkout/target/release/unspin" lab qemu build >&2
stress-ng --cpu 4 --vm 2 --vm-bytes 128M --quiet &
load=$!
trap 'kill $load' EXIT
(run "$folder/checkout/target/release/unspin" "$folder/second")
kill -0 $load
scripts/vt-compare.py "$folder/first" "$folder/second"
