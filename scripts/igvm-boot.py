#!/usr/bin/env python3
"""Boots a native IGVM file in QEMU from its memory and registers alone, and waits for Linux to bring
up its CPUs. Usage: scripts/igvm-boot.py FILE [VCPUS]; returns 77 if QEMU is missing.

A firmware of a hundred bytes loads the file's values of CR0, CR3, CR4, EFER, RSI and the descriptor
table, and enters 64-bit mode. The rest of the memory comes from the file.
"""

import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 180
ROM_BYTES = 0x10000
ROM = 0x1_0000_0000 - ROM_BYTES
PAGE_DATA = 0x302
VP_CONTEXT = 0x304
# Offset of each register in IgvmNativeVpContextX64.
REGISTERS = {"rsi": 48, "rip": 128, "gdt_limit": 158, "gdt": 160, "cr0": 200, "cr3": 208, "cr4": 216, "efer": 224}


def headers(file: bytes):
    """Yields the type and body of each variable header."""
    at, size = struct.unpack_from("<II", file, 8)
    end = at + size
    while at < end:
        kind, length = struct.unpack_from("<II", file, at)
        yield kind, file[at + 8 : at + 8 + length]
        at += 8 + (length + 7) // 8 * 8


def read(file: bytes) -> tuple[dict[int, bytearray], dict[str, int]]:
    """Returns the file's memory as a few ranges, and its registers."""
    ranges: dict[int, bytearray] = {}
    last = -1
    registers: dict[str, int] = {}
    for kind, body in headers(file):
        if kind == PAGE_DATA:
            gpa, _, offset = struct.unpack_from("<QII", body)
            page = file[offset : offset + 4096] if offset else bytes(4096)
            if last < 0 or last + len(ranges[last]) != gpa:
                last = gpa
                ranges[last] = bytearray()
            ranges[last] += page
        if kind == VP_CONTEXT:
            (offset,) = struct.unpack_from("<I", body, 12)
            for name, at in REGISTERS.items():
                form = "<H" if name == "gdt_limit" else "<Q"
                (registers[name],) = struct.unpack_from(form, file, offset + at)
    return ranges, registers


def firmware(r: dict[str, int]) -> bytes:
    """Returns code at the reset vector that loads these registers and jumps to RIP."""
    flat = struct.pack("<4Q", 0, 0x00CF9B000000FFFF, 0, 0x00CF93000000FFFF)
    rom = bytearray(ROM_BYTES)
    own_gdt, own_pointer, pointer, protected = 0x200, 0x220, 0x228, 0x100
    rom[own_gdt : own_gdt + 32] = flat
    rom[own_pointer : own_pointer + 6] = struct.pack("<HI", 31, ROM + own_gdt)
    rom[pointer : pointer + 6] = struct.pack("<HI", r["gdt_limit"], r["gdt"])
    # cli; lgdt; set CR0.PE; far jump to the protected part.
    real = b"\xfa\x66\x2e\x0f\x01\x16" + struct.pack("<H", own_pointer)
    real += b"\x0f\x20\xc0\x0c\x01\x0f\x22\xc0"
    real += b"\x66\xea" + struct.pack("<IH", ROM + protected, 0x08)
    rom[: len(real)] = real
    load = lambda register, value: b"\xb8" + struct.pack("<I", value) + b"\x0f\x22" + register  # noqa: E731
    code = b"\x66\xb8\x18\x00\x8e\xd8\x8e\xc0\x8e\xd0"
    code += load(b"\xe0", r["cr4"]) + load(b"\xd8", r["cr3"])
    # Load EFER without LMA, which the processor sets.
    code += b"\xb9\x80\x00\x00\xc0\xb8" + struct.pack("<I", r["efer"] & ~0x400) + b"\x31\xd2\x0f\x30"
    code += b"\xbe" + struct.pack("<I", r["rsi"])
    code += b"\x0f\x01\x15" + struct.pack("<I", ROM + pointer)
    code += load(b"\xc0", r["cr0"]) + b"\xea" + struct.pack("<IH", r["rip"], 0x10)
    rom[protected : protected + len(code)] = code
    rom[0xFFF0:0xFFF3] = b"\xe9\x0d\x00"
    return bytes(rom)


def run(command: list[str], wanted: str) -> bool:
    """Returns whether the guest prints `wanted`."""
    print(f"waiting for: {wanted}", file=sys.stderr)
    guest = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    assert guest.stdout
    try:
        for line in guest.stdout:
            print(line, end="")
            if wanted in line:
                return True
        return False
    finally:
        # SIGTERM, because `timeout` passes it on to QEMU. SIGKILL would leave QEMU running.
        guest.terminate()
        guest.wait()


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    qemu = shutil.which("qemu-system-x86_64")
    if not qemu:
        print("skipped: needs QEMU: apt install qemu-system-x86", file=sys.stderr)
        return 77
    vcpus = sys.argv[2] if len(sys.argv) == 3 else "1"
    ranges, registers = read(Path(sys.argv[1]).read_bytes())
    if not registers:
        print("the file has no registers: build it with --platform native", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        rom = Path(folder, "rom")
        rom.write_bytes(firmware(registers))
        machine = "microvm,acpi=off,x-option-roms=off,rtc=on,pit=on,pic=on,isa-serial=on"
        command = ["timeout", str(SECONDS), qemu, "-M", machine, "-cpu", "max", "-m", "512"]
        # One thread runs all CPUs. With one thread each, an interrupt can be lost, and the guest waits
        # forever.
        command += ["-accel", "tcg,thread=single", "-smp", vcpus, "-bios", str(rom)]
        command += ["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]
        for gpa, data in ranges.items():
            part = Path(folder, f"{gpa:x}")
            part.write_bytes(data)
            command += ["-device", f"loader,file={part},addr={gpa:#x},force-raw=on"]
        cpus = "1 CPU" if vcpus == "1" else f"{vcpus} CPUs"
        booted = run(command, f"Brought up 1 node, {cpus}")
    print("booted" if booted else "did not boot", file=sys.stderr)
    return 0 if booted else 1


if __name__ == "__main__":
    sys.exit(main())
