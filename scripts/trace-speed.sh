#!/bin/sh
# How fast `unspin trace` reads: writes a trace of 160 MB like one of perf, reads it several
# times, prints each time's MB/s. Usage: scripts/trace-speed.sh [UNSPIN]
set -eu
unspin=${1:-unspin}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
trap 'exit 130' INT TERM
awk 'BEGIN {
    srand(1)
    for (line = 0; bytes < 160e6; line++) {
        vcpu = int(rand() * 8)
        us += 1 + int(rand() * 5)
        head = sprintf("CPU %d/KVM %d [%03d] %d.%06d: ", vcpu, 2679 + vcpu, vcpu, us / 1e6, us % 1e6)
        if (line % 2)
            text = sprintf("kvm:kvm_entry: vcpu %d", vcpu)
        else
            text = sprintf("kvm:kvm_exit: vcpu %d reason %s rip 0xffffffffb72e29e%d info 0 0",
                vcpu, rand() < 0.8 ? "PAUSE_INSTRUCTION" : "EPT_VIOLATION", vcpu)
        print head text
        bytes += length(head) + length(text) + 1
    }
}' > "$folder/trace.txt"
size=$(wc -c < "$folder/trace.txt")
for run in 1 2 3 4 5 6 7 8 9 10; do
    start=$(date +%s%N)
    "$unspin" trace "$folder/trace.txt" --json > "$folder/out.json"
    end=$(date +%s%N)
    echo "$size $start $end" | awk '{ printf "%.0f MB/s\n", $1 * 1e3 / ($3 - $2) }'
done
