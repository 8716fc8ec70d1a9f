"""Writes the script of an L1 whose KVM emulates SEV-ES (kernel/es-emu), and reads the L1's console."""

import random
import re
from pathlib import Path

from checks import want
from nested import L2_APPEND, Bench

FEATURES = "Memory Encryption Features active: AMD SEV SEV-ES"

# A random value for the test guest, which the hypervisor must not see, and the value that it must see (of
# tests/sev-es/guest.c). The shell searches lines, so no byte of them is a zero or ends a line.
CANARY = int.from_bytes(random.SystemRandom().choices([*range(1, 10), *range(11, 256)], k=8), "little")
SHOWN = 0x0BE9CA9A215E7000
# The guest puts it together at run time, because the VMM has the guest's file.
PART = random.SystemRandom().getrandbits(64)
OPTIONS = ("-DKVM", f"-DCANARY_LEFT={PART:#x}ul", f"-DCANARY_RIGHT={PART ^ CANARY:#x}ul")
# Memory of the test guest, in MiB and in pages.
MEMORY = 64
PAGES = MEMORY << 8
# The value in KVM's trace of exits that replaces the instruction pointer.
POISON = "0xe4e4e4e4e4e4e4e4"

# Warnings of an L1's kernel. They exclude soft lockups, because emulation may delay the L1.
WARNINGS = "WARNING:|BUG:|Oops|general protection fault[,:]|blocked for more than"


# Prints how often the kernel has warned.
WARNED = f"""
dmesg > /tmp/all || echo "BUG: dmesg fails" > /tmp/all
grep -v 'soft lockup' /tmp/all > /tmp/dmesg
echo warnings $(grep -c -E '{WARNINGS}' /tmp/dmesg)
grep -A 12 -E '{WARNINGS}' /tmp/dmesg | head -n 40 | sed 's/^/dmesg: /'
"""


def octal(value: int) -> str:
    """Returns the bytes of a number, without zeros, for the shell's printf."""
    return "".join(f"\\{byte:03o}" for byte in value.to_bytes(8, "little").lstrip(b"\0"))


# Counts the lines of /tmp/raw that have what the guest shows, and those that have a canary.
GREP = f"""tr -s '\\000' '\\n' < /tmp/raw > /tmp/memory
    echo $3 shown $(grep -c -F "$(printf '{octal(SHOWN)}')" /tmp/memory) \\
        canary $(grep -c -F "$(printf '{octal(CANARY)}')" /tmp/memory)"""


def looking(search: str = GREP) -> str:
    """Returns the lines with which the L1 searches the VMM's memory after the guest's last output. It then
    lets the guest read a byte. `search` looks into /tmp/raw, which has a part with the name $3."""
    return f"""
look() {{
    dd if=/proc/$vmm/mem bs=4096 skip=$1 count=$2 of=/tmp/raw 2> /dev/null
    echo $3 has $(wc -c < /tmp/raw) bytes
    {search}
}}
until grep -q '^guest: ' /tmp/out; do sleep 1; done
echo own $(awk '/^RssAnon/ {{ print $2 }}' /proc/$vmm/status)
while IFS='- ' read -r start end rest; do
    first=$((0x$start / 4096)); pages=$((0x$end / 4096 - first))
    case "$rest" in
    *kvm-vcpu*) look $first $pages kvm_run ;;
    rw-p*)
        [ $((pages % {PAGES})) = 0 ] || look $first $pages own
        [ $((pages % {PAGES})) = 0 ] || continue
        while [ $pages -gt 0 ]; do
            look $first {PAGES} memory
            first=$((first + {PAGES})); pages=$((pages - {PAGES}))
        done ;;
    esac
done < /proc/$vmm/maps
touch /tmp/looked
"""


TYPE = "until [ -f /tmp/looked ]; do sleep 1; done; echo"


def run(
    memory: int, more: str = "", after: str = "", look: bool = False, typed: bool = False, traced: str = ""
) -> str:
    """Returns the lines of the L1 that run a guest and print its status, KVM's counts and KVM's trace. The
    guest gets a byte after `look`, or at once if `typed` is true. `traced` sets up more traces."""
    first = TYPE if look else "echo" if typed else "true"
    return f"""
echo 1 > /proc/sys/kernel/printk
mount -t debugfs debug /sys/kernel/debug
mount -t tracefs trace /sys/kernel/tracing
echo 8192 > /sys/kernel/tracing/buffer_size_kb
echo 1 > /sys/kernel/tracing/events/kvm/kvm_exit/enable
{traced}
{{ {first}; }} |
    unspin-vmm --emulated-sev-es --igvm /guest.igvm --memory {memory} {more} {"> /tmp/out" if look else ""} &
vmm=$!
{looking() if look else ""}
while kill -0 $vmm 2> /dev/null; do
    for dir in /sys/kernel/debug/kvm/[0-9]*; do
        [ -f $dir/es_emu_vc ] || continue
        now="$(cd $dir; for one in es_emu_* pause_loops; do echo $one=$(cat $one); done 2> /dev/null)"
        # The files may have gone between two of them.
        echo "$now" | grep -q '=$' || counts="$now"
    done
    sleep 1
done
wait $vmm; status=$?; {"cat /tmp/out;" if look else ""} echo status $status; echo counts $counts
echo 0 > /sys/kernel/tracing/events/kvm/kvm_exit/enable
echo exits $(grep -c kvm_exit: /sys/kernel/tracing/trace) \
    $(grep -c 'kvm_exit:.*rip {POISON}' /sys/kernel/tracing/trace)
{after}
{WARNED}"""


def status(log: str) -> int:
    found = re.findall(r"^status (\d+)", log, re.MULTILINE)
    return int(found[0]) if found else -1


def counted(log: str) -> dict[str, int]:
    """Returns KVM's counts for a guest up to a second before its end, or nothing if the guest ended too
    soon."""
    found = re.search(r"^counts (.+)", log, re.MULTILINE)
    pairs = (one.split("=") for one in (found[1].split() if found else ()))
    return {name: int(value) for name, value in pairs}


def counts(log: str) -> str:
    found = counted(log)
    return f"{found['es_emu_vc']} #VC, {found['es_emu_vmgexits']} VMGEXIT" if found else "not counted"


def hidden(log: str) -> str:
    """Checks that all traced exits show poison instead of the guest's registers."""
    found = re.search(r"^exits (\d+) (\d+)", log, re.MULTILINE)
    want(found, "no exits were traced", log)
    want("warnings 0" in log, "the kernel warns", log)
    exits, poisoned = map(int, found.groups())
    want(exits > 0 and exits == poisoned, f"{exits - poisoned} of {exits} exits show a register", log)
    return f"none of the {exits} traced exits shows an instruction pointer"


def guest(
    bench: Bench, name: str, kernel: Path, vcpus: int, do: str,
    more: str = "", after: str = "", before: str = "", traced: str = "", initramfs: Path | None = None,
) -> str:
    """Returns the output of an L1 with a Linux guest, whose init runs `do`. No traced exit may show a
    register, and the L1's kernel must not warn."""
    words = ("--initramfs", initramfs or bench.initramfs, "--append", f'{L2_APPEND} do="{do}"')
    file = bench.igvm(name, kernel, 512, *words, "--vcpus", str(vcpus))
    files = {"guest.igvm": file, "disk": bytes(4 << 20)}
    log = bench.run(name, before + run(512, f"--vcpus {vcpus} {more}", after, traced=traced), files)
    want(FEATURES in log and f"init: {vcpus} CPUs" in log, "it did not boot", log)
    want(status(log) == 0 and "init: end" in log, f"status {status(log)}", log)
    hidden(log)
    return log


def stock(bench: Bench, name: str, vcpus: int, do: str, more: str = "", after: str = "") -> str:
    """Runs a guest like `guest`, with Debian's kernel."""
    return guest(bench, name, bench.kernel / "vmlinuz", vcpus, do, more, after)
