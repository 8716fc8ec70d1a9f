"""Compares the registers of a vCPU that has not run yet with its VMSA (AMD's manual, volume 2, table B-4)."""

import re

from checks import want

# The offset of each register in a VMSA, by the name that QEMU's monitor prints.
OFFSETS = {
    "EFER": 0xD0, "CR4": 0x148, "CR3": 0x150, "CR0": 0x158, "RFL": 0x170, "RIP": 0x178, "RSP": 0x1D8, "RAX": 0x1F8,
    "RCX": 0x308, "RDX": 0x310, "RBX": 0x318, "RBP": 0x328, "RSI": 0x330, "RDI": 0x338,
    **{f"R{number}": 0x340 + 8 * (number - 8) for number in range(8, 16)},
}
# A VMSA has EFER.SVME, because VMRUN demands it; the guest does not see it.
SVME = 1 << 12


def expected(vmsa: bytes) -> dict[str, int]:
    """Returns what the registers must be."""
    values = {name: int.from_bytes(vmsa[at : at + 8], "little") for name, at in OFFSETS.items()}
    return {**values, "EFER": values["EFER"] & ~SVME}


def registers(text: str) -> dict[str, int]:
    """Returns the registers in the output of `info registers`."""
    found = {name: int(value, 16) for name, value in re.findall(r"(\w+) *=([0-9a-f]+)", text)}
    return {**found, "EFER": found.get("EFER", 0) & ~SVME}


def compared(text: str, vmsa: bytes) -> str:
    """Checks that a vCPU has the registers of its VMSA, and returns how many were compared."""
    found = registers(text)
    for name, value in expected(vmsa).items():
        want(found.get(name) == value, f"{name} is not {value:x}", text)
    return f"{len(OFFSETS)} registers"
