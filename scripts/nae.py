"""Counts a guest's NAE exits, those that SEV-ES gives back to the guest as #VC, and those that a hypervisor
handled although the guest never got a #VC."""

import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from checks import want

# SVM's exit codes of NAEs. The last is that of an access outside of RAM.
NAES = {
    0x27: "DR7 read", 0x37: "DR7 write", 0x6F: "RDPMC", 0x72: "CPUID", 0x76: "INVD", 0x7B: "port I/O",
    0x7C: "MSR", 0x81: "VMMCALL", 0x89: "WBINVD", 0x8A: "MONITOR", 0x8B: "MWAIT", 0x400: "MMIO",
}
CPUID, MSR, VMMCALL, MMIO = 0x72, 0x7C, 0x81, 0x400
# An access outside of RAM has other codes in the GHCB.
BY_GHCB = {0x80000001: MMIO, 0x80000002: MMIO}
# The request for a register of CPUID in the GHCB MSR. A #VC makes four of them.
MSR_CPUID, REGISTERS = 0x004, 4

# The kind of an exit in the simulator's record, and the reasons (enum host_exit in policy/host/prices.h) of
# each NAE that has a price.
VH_EXIT = 5
PRICED = {CPUID: (3,), MSR: (1, 2, 4), MMIO: (5,), 0x7B: (6,), VMMCALL: (8,)}

# MSRs that es_emu_msr_is_cpus() of kernel/es-emu leaves to the CPU.
CPUS_MSRS = {
    0x48, 0x49, 0x174, 0x175, 0x176, 0x277, 0xDA0, 0xC0000080, 0xC0000081, 0xC0000082, 0xC0000083, 0xC0000084,
    0xC0000100, 0xC0000101, 0xC0000102, 0xC0000103, 0xC0010130, 0xC0010131,
}  # fmt: skip


# Lines of an L1 that count in its kernel: exits, VMGEXITs and accesses to MSRs by KVM's tracepoints, and #VCs
# by a probe at the function of es_emu.c that pushes them.
COUNT = """
cd /sys/kernel/tracing
echo 'hist:keys=exit_reason.hex,guest_rip.hex' > events/kvm/kvm_exit/trigger
echo 'hist:keys=exit_reason.hex' > events/kvm/kvm_vmgexit_enter/trigger
echo 'hist:keys=vcpu_id' > events/kvm/kvm_vmgexit_msr_protocol_enter/trigger
echo 'hist:keys=ecx.hex' > events/kvm/kvm_msr/trigger
echo 'p:nae/vc es_emu_push_vc code=%si:u32' >> kprobe_events
echo 'hist:keys=code.hex' > events/nae/vc/trigger
cd /tmp
"""
COUNTED = """
cd /sys/kernel/tracing/events
for one in kvm/kvm_exit kvm/kvm_vmgexit_enter kvm/kvm_vmgexit_msr_protocol_enter kvm/kvm_msr nae/vc; do
    echo histogram ${one#*/}; cat $one/hist
done
cd /tmp
"""


def vmgexits(record: Path) -> Iterator[tuple[int, int]]:
    """Yields the exit code of each VMGEXIT in a file of `x-record` and 0, or 0 and the request in the GHCB
    MSR."""
    with record.open("rb") as file:
        while entry := file.read(16):
            request = struct.unpack("<QQ", entry)[1] & 0xFFF
            yield (0, request) if request else (struct.unpack_from("<Q", file.read(4096), 0x390)[0], 0)


def raised(log: Path) -> Counter:
    """Returns the number of #VCs by their error code in QEMU's log of exceptions (`-d int`)."""
    with log.open(errors="replace") as lines:
        found = (re.search(r": v=1d e=(\w+) ", line) for line in lines if "v=1d " in line)
        return Counter(int(match[1], 16) for match in found if match)


def recorded(record: Path) -> Counter:
    """Returns the number of exits by their reason in the simulated host's record."""
    events = struct.iter_unpack("<QBBHI", record.read_bytes()[32:])
    return Counter(argument & 0xFF for _, kind, _, _, argument in events if kind == VH_EXIT)


def simulated(folder: Path) -> tuple[int, str]:
    """Returns the number of NAEs that a simulated host handled without #VC, and a summary, from the files of
    a run: the record of exits, the record of VMGEXITs, and QEMU's log of exceptions."""
    asked: Counter = Counter()
    by_msr = 0
    for code, request in vmgexits(folder / "seen"):
        asked[BY_GHCB.get(code, code)] += 1
        by_msr += request == MSR_CPUID
    exits, vcs = recorded(folder / "record.bin"), raised(folder / "int.log")
    total = without = 0
    for code in NAES:
        # CPUID by the GHCB MSR has an exit for each register.
        many = by_msr if code == CPUID else 0
        without += abs(vcs[code] - asked[code] - many // REGISTERS)
        if code in PRICED:
            had = sum(exits[reason] for reason in PRICED[code])
            total += had
            without += abs(had - asked[code] - many)
    want(total > 0, "no exits are recorded")
    return without, f"{without} without #VC; {total} exits of NAEs with a price; #VC: {shares(vcs)}"


def shares(counts: Counter) -> str:
    return ", ".join(f"{NAES.get(code, hex(code))} {count}" for code, count in counts.most_common())


def histograms(log: str) -> dict[str, list[tuple[dict[str, int], int]]]:
    """Returns keys and hits of the histograms in an L1's output, by their names."""
    found = {}
    for part in log.split("histogram ")[1:]:
        name = part.split()[0]
        totals = re.search(r"Hits: (\d+)\s+Entries: \d+\s+Dropped: (\d+)", part)
        want(totals and totals[2] == "0", f"the histogram of {name} is incomplete", part)
        rows = re.findall(r"^\{ (.+?) \} hitcount: +(\d+)", part, re.MULTILINE)
        pairs = (dict(re.findall(r"(\w+): +(\w+)", keys)) for keys, _ in rows)
        numbers = [{key: int(value, 16) for key, value in keys.items()} for keys in pairs]
        found[name] = [(keys, int(hits)) for keys, (_, hits) in zip(numbers, rows, strict=True)]
        want(sum(hits for _, hits in found[name]) == int(totals[1]), f"{name}: lines are missing", part)
    return found


def by(rows: list[tuple[dict[str, int], int]], key: str) -> Counter:
    found: Counter = Counter()
    for keys, hits in rows:
        found[keys[key]] += hits
    return found


def nested(log: str) -> tuple[int, str]:
    """Returns the number of NAEs that KVM handled without #VC, and a summary, from the output of COUNTED."""
    rows = histograms(log)
    exits, vcs = by(rows["kvm_exit"], "exit_reason"), by(rows["vc"], "code")
    asked, msrs = by(rows["kvm_vmgexit_enter"], "exit_reason"), by(rows["kvm_msr"], "ecx")
    by_msr = sum(hits for _, hits in rows["kvm_vmgexit_msr_protocol_enter"])
    without = 0
    # VMGEXIT is a VMMCALL with a prefix.
    exits[VMMCALL] -= sum(asked.values()) + by_msr
    for code in NAES.keys() - {MSR, MMIO}:
        without += abs(exits[code] - vcs[code])
    # The CPU itself serves some MSRs. KVM may have served others only by VMGEXIT.
    without += abs(sum(msrs[msr] for msr in msrs.keys() - CPUS_MSRS) - asked[MSR])
    want(exits[MSR] >= vcs[MSR] and vcs[CPUID], f"exits {exits}, #VC {vcs}")
    # An access outside of RAM is a page fault until es_emu.c knows better.
    without += abs(vcs[MMIO] - sum(asked[code] for code in BY_GHCB))
    own = exits[MSR] - vcs[MSR]
    return without, f"{without} without #VC; #VC: {shares(vcs)}; {own} accesses to the CPU's own MSRs"
