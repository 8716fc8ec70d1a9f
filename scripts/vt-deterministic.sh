#!/bin/bash
# Whether virtual time gives the same bytes again: eighteen runs of vt-abandoned and two of
# vt-micro here, and once more from a second checkout that is built for it, beside a load.
# Prints what `unspin claims record` takes. Needs stress-ng, and half an hour.
# Usage: scripts/vt-deterministic.sh UNSPIN FOLDER
set -euo pipefail
unspin=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
cd "$(dirname "$0")/.."

run() { # PROGRAM OUT
    "$1" lab run vt-abandoned --runs 0-17 --out "$2/vt-abandoned" >&2
    "$1" lab run vt-micro --runs 0-1 --out "$2/vt-micro" >&2
}

run "$unspin" "$folder/first"
[ -d "$folder/checkout" ] || git clone --quiet . "$folder/checkout"
(cd "$folder/checkout" && scripts/with-rust cargo build --release --locked --workspace >&2)
stress-ng --cpu 4 --vm 2 --vm-bytes 128M --quiet &
load=$!
trap 'kill $load' EXIT
(cd "$folder/checkout" && run target/release/unspin "$folder/second")
scripts/vt-compare.py "$folder/first" "$folder/second"
