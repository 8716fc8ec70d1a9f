"""Reads which protection keys each thread of unspin-vmm may use, in an L1 with protection keys.

scripts/pages.py runs it. The guest has emulated SEV-ES, because only such a guest has private memory. Its VMM has
every kind of thread.
"""

import re
import subprocess
from pathlib import Path

from checks import want
from claims import ROOT
from es_emu_guest import MEMORY
from nested import Bench
from sev_es_bench import test_kernel

# Kinds of threads besides vCPUs, by name. The first one is the main thread.
OTHERS = ("unspin-vmm", "console", "block", "net", "revoker")
VCPU = "vcpu0"
# Instructions of a vCPU's thread that are executed one by one.
STEPS = 30000
# Most instructions between KVM_RUN and the change of the key, on either side. Those are library calls.
NEAR = 100
# The reader of the guest's GHCBs: unspin-vmm accesses the shared memory, or KVM.
WAYS = ("mapped", "kernel")

SCRIPT = f"""
echo 1 > /proc/sys/kernel/printk; grep -o -w -m 1 ospke /proc/cpuinfo
dd if=/dev/zero of=/tmp/disk bs=1M count=1 2> /dev/null
for way in {" ".join(WAYS)}; do
    rm -f /tmp/done
    {{ until [ -f /tmp/done ]; do sleep 1; done; echo; }} |
        unspin-vmm --emulated-sev-es --igvm /guest.igvm --memory {MEMORY} --ghcb $way --disk /tmp/disk \\
        --console /tmp/console --net tap=tap0 --page-access cache --revoke-per-s 100 > /tmp/out 2>&1 &
    vmm=$!
    until grep -q '^guest: ' /tmp/out || ! kill -0 $vmm; do sleep 1; done
    echo way $way
    awk '/^[0-9a-f]+-/ {{ what = $2 " " $6 }} /^Size:/ {{ kib = $2 }}
        /^ProtectionKey:/ && $2 {{ print "key", $2, kib, what }}' /proc/$vmm/smaps | tee /tmp/keys
    isolation $vmm "$(awk '/ rw-p / {{ print $2 }}' /tmp/keys)" {STEPS} 2>&1
    touch /tmp/done; wait $vmm; echo status $?; grep -E '^guest: |FAIL|protection key' /tmp/out
done
"""


def program(folder: Path) -> Path:
    """Builds the program that reads a process's keys."""
    out = folder / "isolation"
    source = ROOT / "scripts/isolation.c"
    subprocess.run(["gcc", "-O2", "-static", "-Wall", "-o", out, source], check=True)
    return out


def is_denied(rights: int, key: int) -> bool:
    """Returns whether PKRU forbids all access to memory with a key."""
    return bool(rights >> 2 * key & 1)


def keys(part: str) -> tuple[int, int]:
    """Returns the keys of the vCPUs' mapping of shared memory, and of private memory."""
    found = re.findall(r"^key (\d+) (\d+) (\S+) ?(\S*)", part, re.MULTILINE)
    found = {(mode, name): int(key) for key, kib, mode, name in found if int(kib) == MEMORY << 10}
    wanted = {("rw-s", "/memfd:guest"), ("rw-p", "")}
    want(found.keys() == wanted and len(set(found.values())) == 2, f"mappings with keys: {found}", part)
    return found["rw-s", "/memfd:guest"], found["rw-p", ""]


def judge(part: str) -> tuple[list[str], str]:
    """Returns the violations of a VMM's threads, and what was found."""
    want("isolation: end" in part and "guest: passed" in part, "the threads were not read", part)
    want(re.findall(r"^status (\d+)", part, re.MULTILINE) == ["0"], "the guest failed", part)
    shared, private = keys(part)
    threads = re.findall(r"^thread (\S+) (\S+)$", part, re.MULTILINE)
    want(sorted(name for name, _ in threads) == sorted([*OTHERS, VCPU]), f"threads {threads}", part)
    wrong = []
    for name, rights in threads:
        for what, key in (("the vCPUs' mapping", shared), ("private memory", private)):
            if name in OTHERS and not is_denied(int(rights, 16), key):
                wrong.append(f"{name} may use {what}")
    stretches = re.findall(rf"^between {VCPU} (\d+) (\d+) (\d+) (\d+)$", part, re.MULTILINE)
    want(len(stretches) >= 3, f"{len(stretches)} entries into KVM", part)
    near = 0
    for before, denied, after, mixed in (map(int, stretch) for stretch in stretches):
        near = max(near, before, after)
        if not denied or mixed or near > NEAR:
            wrong.append(f"{VCPU} may use private memory outside of KVM_RUN: {before}, {denied}, {after}")
            break
    found = f"{len(threads)} threads, {len(stretches)} stretches between two KVM_RUN, at most {near} instructions"
    return wrong, f"{found} from KVM_RUN to a change of the key"


def isolation(bench: Bench) -> str:
    """Returns what was found. Raises Failed if a thread may use too much."""
    bench.program(program(bench.folder), "isolation")
    files = {"guest.igvm": bench.igvm("isolation", test_kernel(bench.folder, "-DKVM"), MEMORY)}
    log = bench.run("isolation", SCRIPT, files, cpu="max", seconds=900)
    want("ospke" in log and "no protection key" not in log, "the L1 has no keys", log)
    parts = log.split("\nway ")[1:]
    want([part.split()[0] for part in parts] == list(WAYS), "not all guests ran", log)
    wrong, lines = [], []
    for way, part in zip(WAYS, parts, strict=True):
        bad, found = judge(part)
        wrong += [f"{way}: {what}" for what in bad]
        lines.append(f"{way}: {found}")
    want(not wrong, "; ".join(wrong))
    return "; ".join(lines)
