#!/usr/bin/env python3
"""Compares the digests of `unspin igvm measure` with those of sev-snp-measure (IBM, from PyPI): 1,000
random files with either loader, and the vectors that the sev crate (VirTEE) publishes. Returns 77
if one of them cannot be fetched. Usage: scripts/igvm-measure.py UNSPIN CLAIMS [FILES]
Writes claims for `unspin claims record` into the file CLAIMS.
"""

import hashlib
import importlib.util
import json
import random
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import NoReturn

from claims import ROOT, Claims

PACKAGE = "sev-snp-measure==0.0.13"
SEV_CRATE = "8.0.0"
SEED = 20261125
PAGE = 4096
# Page types of the SNP firmware, then platforms and data types of IGVM.
NORMAL, VMSA, ZERO, UNMEASURED, SECRETS, CPUID = range(1, 7)
SNP, SEV = 2, 4
IGVM_TYPES = {NORMAL: 0, ZERO: 0, UNMEASURED: 0, SECRETS: 1, CPUID: 2}
KVM_VMSA_GPA = 0xFFFFFFFFF000

# Launch digests by firmware, vCPUs, features, and kernel or none. From tests/measurement.rs of the sev crate.
VECTORS = [
    ("AmdSev", 1, 0x1, None, "19358ba9a7615534a9a1e2f0dfc29384dcd4dcb7062ff9c6013b26869a5fc6ecabe033c48dd6f6db5d6d76e7c5df632d"),
    ("AmdSev", 1, 0x21, None, "e1e1ca029dd7973ab9513295be68198472dcd4fc834bd9af9b63f6e8a1674dbf281a9278a4a2ebe0eed9f22adbcd0e2b"),
    ("AmdSev", 4, 0x1, "/dev/null", "5061fffb019493a903613d56d54b94912a1a2f9e4502385f5c194616753720a92441310ba6c4933de877c36e23046ad5"),
    ("AmdSev", 4, 0x21, "/dev/null", "4953b1fb416fa874980e8442b3706d345926d5f38879134e00813c5d7abcbe78eafe7b422907be0b4698e2414a631942"),
    ("OvmfX64", 1, 0x1, None, "da0296de8193586a5512078dcd719eccecbd87e2b825ad4148c44f665dc87df21e5b49e21523a9ad993afdb6a30b4005"),
    ("OvmfX64", 1, 0x21, None, "28797ae0afaba4005a81e629acebfb59e6687949d6be44007cd5506823b0dd66f146aaae26ff291eed7b493d8a64c385"),
]
# SEV's digest of the firmware alone.
SEV_VECTOR = ("OvmfX64", "b4c021e085fb83ceffe6571a3d357b4a98773c83c474e47f76c876708fe316da")


def skip(why: str) -> NoReturn:
    print(f"skipped: {why}", file=sys.stderr)
    sys.exit(77)


def fetch(folder: Path) -> Path:
    """Makes the package importable, and returns the crate's folder with the firmware."""
    # Debian's Python comes without pip.
    if importlib.util.find_spec("pip") is None:
        skip("needs apt install python3-pip")
    cargo = [ROOT / "scripts/with-rust", "cargo"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    if subprocess.run([*pip, PACKAGE], check=False).returncode != 0:
        skip(f"pip cannot install {PACKAGE}")
    sys.path.insert(0, str(folder))
    (folder / "src").mkdir()
    (folder / "src/lib.rs").write_text("")
    manifest = folder / "Cargo.toml"
    manifest.write_text(
        '[package]\nname = "fetch"\nversion = "0.1.0"\nedition = "2024"\n[dependencies]\n'
        f'sev = {{ version = "={SEV_CRATE}", default-features = false }}\n[workspace]\n'
    )
    fetch_it = [*cargo, "fetch", "--quiet", "--manifest-path", manifest]
    if subprocess.run(fetch_it, check=False).returncode != 0:
        skip(f"cargo cannot fetch sev {SEV_CRATE}")
    described = [*cargo, "metadata", "--offline", "--format-version", "1"]
    described += ["--manifest-path", manifest]
    packages = json.loads(subprocess.check_output(described))["packages"]
    crate = next(package for package in packages if package["name"] == "sev")
    return Path(crate["manifest_path"]).parent / "tests/measurement"


def igvm(platform: int, pages: list[tuple[int, int, bytes]]) -> bytes:
    """Returns a file that adds these pages, each given as type, address and contents (empty if none)."""
    headers = [(1, struct.pack("<IBBHQ", 1, 0, platform, 1, 0))]
    if platform == SNP:
        headers.append((0x101, struct.pack("<QII", 0x30000, 1, 0)))
    vcpus = sum(kind == VMSA for kind, _, _ in pages)
    section = sum(8 + (len(body) + 7) // 8 * 8 for _, body in headers) + 32 * len(pages)
    data = b"\0"
    vcpu = 0
    for kind, gpa, contents in pages:
        offset = 24 + section + len(data) if contents else 0
        data += contents
        if kind == VMSA:
            headers.append((0x304, struct.pack("<QIIHH", gpa, 1, offset, vcpu, 0)))
            vcpu += 1
        else:
            flags = 2 if kind == UNMEASURED else 0
            headers.append((0x302, struct.pack("<QIIIHH", gpa, 1, offset, flags, IGVM_TYPES[kind], 0)))
    assert vcpu == vcpus
    body = b"".join(
        struct.pack("<II", kind, len(body)) + body + bytes(-len(body) % 8) for kind, body in headers
    )
    assert len(body) == section
    fixed = [1, 24, section, 24 + section + len(data)]
    checksum = zlib.crc32(b"IGVM" + struct.pack("<5I", *fixed, 0) + body)
    return b"IGVM" + struct.pack("<5I", *fixed, checksum) + body + data


def measure(unspin: str, file: bytes) -> dict[str, str]:
    """Returns the digest for each loader."""
    printed = subprocess.check_output([unspin, "igvm", "measure", "-", "--json"], input=file)
    return {digest["loader"]: digest["digest"] for digest in json.loads(printed)["digests"]}


def random_pages(dice: random.Random) -> list[tuple[int, int, bytes]]:
    pages = []
    for _ in range(dice.randrange(1, 24)):
        kind = dice.choice([NORMAL, NORMAL, NORMAL, ZERO, UNMEASURED, SECRETS, CPUID, VMSA])
        full = kind in (NORMAL, VMSA) or (kind == UNMEASURED and dice.random() < 0.5)
        contents = bytes([dice.randrange(256)]) * PAGE if dice.random() < 0.3 else dice.randbytes(PAGE)
        pages.append((kind, dice.randrange(1 << 36) * PAGE, contents if full else b""))
    return pages


def expected(pages: list[tuple[int, int, bytes]], kvm: bool) -> str:
    """Returns the package's digest of these pages, in the way that the loader adds them."""
    from sevsnpmeasure.gctx import GCTX

    context = GCTX()
    ordered = sorted(pages, key=lambda page: page[0] == VMSA) if kvm else pages
    for kind, gpa, contents in ordered:
        if kind == ZERO and not kvm:
            context.update_normal_pages(gpa, bytes(PAGE))
        elif kind == VMSA and kvm:
            context.update_vmsa_page(contents)
        elif kind in (NORMAL, VMSA):
            context._update(kind, gpa, hashlib.sha384(contents).digest())
        else:
            context._update(kind, gpa, bytes(48))
    return context.ld().hex()


def recorded(firmware: Path, vcpus: int, features: int, kernel: str | None):
    """Returns the package's digest of a guest with this firmware, and the pages that the package adds."""
    from sevsnpmeasure import guest
    from sevsnpmeasure.gctx import GCTX
    from sevsnpmeasure.vcpu_types import CPU_SIGS

    pages: list[tuple[int, int, bytes]] = []

    class Recorder(GCTX):
        def update_normal_pages(self, start_gpa, data):
            for at in range(0, len(data), PAGE):
                pages.append((NORMAL, start_gpa + at, data[at : at + PAGE]))
            super().update_normal_pages(start_gpa, data)

        def update_vmsa_page(self, data):
            pages.append((VMSA, KVM_VMSA_GPA, data))
            super().update_vmsa_page(data)

        def update_zero_pages(self, gpa, length_bytes):
            pages.extend((ZERO, gpa + at, b"") for at in range(0, length_bytes, PAGE))
            super().update_zero_pages(gpa, length_bytes)

        def update_secrets_page(self, gpa):
            pages.append((SECRETS, gpa, b""))
            super().update_secrets_page(gpa)

        def update_cpuid_page(self, gpa):
            pages.append((CPUID, gpa, b""))
            super().update_cpuid_page(gpa)

    guest.GCTX = Recorder
    signature = CPU_SIGS["EPYC-v4"]
    digest = guest.snp_calc_launch_digest(vcpus, signature, str(firmware), kernel, kernel, None, features, "")
    return digest.hex(), pages


def main() -> int:
    if len(sys.argv) < 3 or not sys.argv[2].endswith(".json"):
        print(__doc__, file=sys.stderr)
        return 2
    unspin, file = sys.argv[1:3]
    files = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        firmware = fetch(Path(folder))
        for name, vcpus, features, kernel, published in VECTORS:
            suffix = firmware / f"ovmf_{name}_suffix.bin"
            theirs, pages = recorded(suffix, vcpus, features, kernel)
            ours = measure(unspin, igvm(SNP, pages))["kvm"]
            wrong += not ours == theirs == published
        suffix = (firmware / f"ovmf_{SEV_VECTOR[0]}_suffix.bin").read_bytes()
        pages = [(NORMAL, at, suffix[at : at + PAGE]) for at in range(0, len(suffix), PAGE)]
        wrong += list(measure(unspin, igvm(SEV, pages)).values()) != [SEV_VECTOR[1]]
        vectors = len(VECTORS) + 1
        print(f"{vectors} vectors, {wrong} differ")
        dice = random.Random(SEED)
        differ = 0
        for _ in range(files):
            pages = random_pages(dice)
            ours = measure(unspin, igvm(SNP, pages))
            differ += ours != {"igvm-crate": expected(pages, False), "kvm": expected(pages, True)}
        print(f"{files} random files, {differ} differ")
    claims = Claims("arithmetic, no machine", "igvm-measure.py", "make igvm-measure")
    for claim, what, count, failed in (
        ("random", "digests of random IGVM files that are those of sev-snp-measure, too", files, differ),
        ("published", "published launch digests that are those of the same pages in an IGVM file", vectors, wrong),
    ):
        percent = 100 * (count - failed) / count
        claims.add(f"cvm.igvm_digests.{claim}", what, percent, "%", count, ">= 100")
    claims.save(Path(file))
    return 1 if wrong + differ else 0


if __name__ == "__main__":
    sys.exit(main())
