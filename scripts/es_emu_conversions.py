"""Checks that pages which a guest under emulated SEV-ES makes private are taken from devices."""

import json
import re
import subprocess
from pathlib import Path

from checks import claims_that, want
from claims import ROOT
from es_emu_guest import MEMORY, guest, hidden, run, status
from nested import Bench, archive, install
from sev_es_bench import test_kernel

# Pages of the guest's RAM, about. Linux makes all of it private first.
RAM_PAGES = 512 << 8
# Reports in tests/sev-es/reports.h that are refused, and those among them that KVM refuses itself.
WRONG, WRONG_FOR_KVM = 12, 2
# The disk and its driver, as tests/sev-es/stray.c names them. The console is the first device.
DISK = "0000:00:02.0 virtio1 virtio_blk"
DRIVER = "/sys/bus/virtio/drivers/virtio_blk"
WRITE = "seq 1 20000 > /seq; cat /seq > /dev/vda; sync; "
READ = "; head -c $(wc -c < /seq) /dev/vda | cmp - /seq && echo the disk is right"
READ += "; echo by virtio > /dev/hvc0; sleep 1"


def stats(log: str) -> dict:
    """Returns the counters of page access that unspin-vmm prints."""
    (line,) = re.findall(r'^\{"policy".*\}', log, re.MULTILINE)
    return json.loads(line)


def boot(bench: Bench, name: str, initramfs: Path, policy: str, act: str) -> tuple[dict, str]:
    """Returns the counters and the output of a stock guest. Around `act`, it uses a disk."""
    more = f"--disk /disk --console /tmp/console --page-access {policy} --stats /tmp/stats"
    do, after = WRITE + act + READ, "cat /tmp/stats /tmp/console"
    log = guest(bench, name, bench.kernel / "vmlinuz", 1, do, more, after, initramfs=initramfs)
    want("the disk is right" in log, "the disk has something else", log)
    want(re.search(r"^by virtio$", log, re.MULTILINE), "the console's output is missing", log)
    found = stats(log)
    want("to_private" in found, "unspin-vmm has no counters of conversions", log)
    want(found["to_private"] > 0 and found["to_shared"] > 0, f"no conversions: {found}", log)
    want(found["pages_to_private"] > 0.9 * RAM_PAGES, f"RAM did not become private: {found}", log)
    want(found["reports_refused"] == 0, f"a report was refused: {found}", log)
    return found, log


@claims_that(
    (
        "cvm.page_access.conversions",
        "pages that a stock guest makes private are taken from devices, and refused to them, emulated SEV-ES",
    ),
)
def check_conversions(bench: Bench) -> str:
    """Boots a stock kernel, which reports its conversions, and takes the disk's driver away, so
    that the disk's ring becomes private. Then a program lets the disk go on with that ring, which
    must be refused. Finally, the test guest reports ranges that make no sense."""
    stray = bench.folder / "stray"
    command = ["gcc", "-O1", "-static", "-o", stray, ROOT / "tests/sev-es/stray.c"]
    subprocess.run(command, check=True)
    root, initramfs = bench.folder / "l2", bench.folder / "stray-initramfs"
    install(root, stray, "stray")
    archive(root, initramfs)
    lines = []
    unbind = f"echo virtio1 > {DRIVER}/unbind; echo virtio1 > {DRIVER}/bind"
    for policy in ("cache", "request"):
        found, log = boot(bench, f"conversions-{policy}", initramfs, policy, unbind)
        # Under each policy, a ring stays open while its device is idle.
        want(found["converted_open"] > 0, f"the ring was not revoked: {found}", log)
        want(found["refused"] == 0, f"the driver's own page was refused: {found}", log)
        private, shared = (
            f"{found[f'to_{to}']} conversions to {to} of {found[f'pages_to_{to}']} pages"
            for to in ("private", "shared")
        )
        open_pages = f"{found['converted_open']} of them open; none was refused"
        lines.append(f"{policy}: {shared}, {private}, {open_pages}")
    found, log = boot(bench, "conversions-stray", initramfs, "cache", f"stray {DISK}")
    ring = re.search(r"^stray: ring (.+), status 0xf$", log, re.MULTILINE)
    want(ring and "stray: ok" in log, "the disk was not started with its old ring", log)
    want(found["refused_private"] > 0, f"nothing was refused: {found}", log)
    lines.append(f"a disk was refused its old ring at {ring[1]}, and works after a reset")
    lines.append(reports(bench))
    return "\n".join([*lines, hidden(log)])


def reports(bench: Bench) -> str:
    """Runs the test guest, which judges the answers to its reports."""
    kernel = test_kernel(bench.folder, "-DKVM", "-DREPORTS")
    files = {"guest.igvm": bench.igvm("reports", kernel, MEMORY)}
    more = "--page-access pregrant --stats /tmp/stats"
    log = bench.run("reports", run(MEMORY, more, "cat /tmp/stats", typed=True), files)
    failures = "\n".join(line for line in log.splitlines() if not line.startswith("ok "))
    want("guest: passed" in log and "FAIL" not in log, "the test guest failed", failures)
    want(status(log) == 0, f"status {status(log)}", log)
    hidden(log)
    found, pages = stats(log), MEMORY << 8
    want(found["reports_refused"] == WRONG - WRONG_FOR_KVM, f"{found}", log)
    # The first report made all memory private, which was open. Its second part found nothing open.
    want(found["converted_open"] == pages, f"{found}", log)
    made = [(found[f"to_{to}"], found[f"pages_to_{to}"]) for to in ("private", "shared")]
    want(made == [(2, pages + 1), (2, 513)], f"{found}", log)
    return f"of {WRONG + 4} reports, {WRONG} make no sense, and KVM's error answers them"
