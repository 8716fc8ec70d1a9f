"""Tests that an NAE without #VC is noticed. Run by `python3 -m unittest discover -s scripts`."""

import struct
import tempfile
import unittest
from pathlib import Path

import nae

# Keys and hits of histograms: an L1 whose guest has raised #VC for a CPUID and an access to an MSR, and has
# written the GHCB MSR twice.
ROWS = {
    "kvm_exit": [("exit_reason: 72", 1), ("exit_reason: 7c", 3), ("exit_reason: 81", 2)],
    "kvm_vmgexit_enter": [("exit_reason: 72", 1), ("exit_reason: 7c", 1)],
    "kvm_vmgexit_msr_protocol_enter": [],
    "kvm_msr": [("ecx: 1b", 1), ("ecx: c0000080", 1)],
    "vc": [("code: 72", 1), ("code: 7c", 1)],
}


def histograms(rows: dict[str, list[tuple[str, int]]]) -> str:
    text = ""
    for name, lines in rows.items():
        text += f"histogram {name}\n# event histogram\n"
        text += "".join(f"{{ {keys} }} hitcount:          {hits}\n" for keys, hits in lines)
        total = sum(hits for _, hits in lines)
        text += f"\nTotals:\n    Hits: {total}\n    Entries: {len(lines)}\n    Dropped: 0\n"
    return text


class Nested(unittest.TestCase):
    def test_all_have_a_vc(self) -> None:
        self.assertEqual(nae.nested(histograms(ROWS))[0], 0)

    def test_each_kind_without_vc_counts(self) -> None:
        for changed in (
            {"kvm_exit": [*ROWS["kvm_exit"], ("exit_reason: 89", 1)]},
            {"kvm_exit": [("exit_reason: 72", 2), *ROWS["kvm_exit"][1:]]},
            {"kvm_exit": [*ROWS["kvm_exit"][:2], ("exit_reason: 81", 3)]},
            {"kvm_msr": [*ROWS["kvm_msr"], ("ecx: 200", 1)]},
        ):
            with self.subTest(changed=changed):
                self.assertEqual(nae.nested(histograms(ROWS | changed))[0], 1)


class Simulated(unittest.TestCase):
    def without(self, exits: list[int], codes: list[int], vcs: list[int]) -> int:
        """Returns what is counted of a run with exits by reason, VMGEXITs by code, and #VCs by error code."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            events = (struct.pack("<QBBHI", 0, nae.VH_EXIT, 0, 0, reason) for reason in exits)
            (folder / "record.bin").write_bytes(bytes(32) + b"".join(events))
            page = bytes(0x390) + b"%s" + bytes(4096 - 0x398)
            pages = (page % struct.pack("<Q", code) for code in codes)
            (folder / "seen").write_bytes(b"".join(bytes(16) + page for page in pages))
            lines = (f"    0: v=1d e={code:04x} i=0 cpl=0\n" for code in vcs)
            (folder / "int.log").write_text("".join(lines))
            return nae.simulated(folder)[0]

    def test_an_exit_or_a_vc_that_is_missing_counts(self) -> None:
        self.assertEqual(self.without([3, 6], [0x72, 0x7B], [0x72, 0x7B]), 0)
        self.assertEqual(self.without([3, 6, 6], [0x72, 0x7B], [0x72, 0x7B]), 1)
        self.assertEqual(self.without([3, 6], [0x72, 0x7B], [0x72]), 1)
        self.assertEqual(self.without([5], [0x80000002], [0x400]), 0)
