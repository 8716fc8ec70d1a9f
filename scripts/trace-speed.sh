#!/bin/sh
# Measures how fast `unspin trace` reads: writes a trace of 160 MB in perf's format, reads it ten
# times, and prints claims for `unspin claims record`. Usage: scripts/trace-speed.sh [UNSPIN]
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
for _ in 1 2 3 4 5 6 7 8 9 10; do
    start=$(date +%s%N)
    "$unspin" trace "$folder/trace.txt" --json > "$folder/out.json"
    end=$(date +%s%N)
    echo "$size $start $end" | awk '{ printf "%.0f\n", $1 * 1e3 / ($3 - $2) }'
done > "$folder/speeds"
echo "MB/s: $(tr "\n" " " <"$folder/speeds")" >&2
# Of ten samples, the second and the ninth are an interval of 97.9 % for the median.
sort -n "$folder/speeds" | awk -v date="$(date -u +%F)" \
    -v commit="$(git -C "$(dirname "$0")" describe --always --dirty --abbrev=12 2> "$folder/no-git" || true)" \
    -v machine="$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" '
    { speed[NR] = $1 }
    END {
        printf "[{\"id\": \"sense.trace_mb_s\", "
        printf "\"what\": \"megabytes a second that `unspin trace` reads of the text of perf\", "
        printf "\"value\": %g, \"lo\": %g, \"hi\": %g, ", (speed[5] + speed[6]) / 2, speed[2], speed[9]
        printf "\"n\": %d, \"unit\": \"MB/s\", \"target\": \">= 300\", \"holds\": null, ", NR
        printf "\"label\": \"host: %s\", \"experiment\": \"scripts/trace-speed.sh\", ", machine
        printf "\"command\": \"make trace-speed\", \"date\": \"%s\", \"commit\": \"%s\"}]\n", date, commit
    }'
