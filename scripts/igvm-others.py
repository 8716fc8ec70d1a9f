#!/usr/bin/env python3
"""Checks that unspin reads the IGVM files of another implementation, and loads them or refuses them with a
reason. igvm-wrap (virtfw-igvm-tools, from crates.io) wraps Debian's OVMF in several ways. Returns 77 if one
of them cannot be fetched. Usage: scripts/igvm-others.py UNSPIN-VMM UNSPIN CLAIMS
Writes claims for `unspin claims record` into the file CLAIMS.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from cache import cached_kernel
from claims import ROOT, Claims
from nested import Bench, missing

TOOLS = "virtfw-igvm-tools@0.2.6"
FIRMWARE = "usr/share/OVMF/OVMF_CODE_4M.fd"
VARIABLES = "usr/share/OVMF/OVMF_VARS_4M.fd"
# Name of each file, options of igvm-wrap, and whether the file is for SNP and has a digest.
FILES = (
    ("native", [], False),
    ("native-32-bit", ["--flat32"], False),
    ("native-plain", ["--no-params"], False),
    ("snp-and-native", ["--snp"], True),
    ("snp", ["--snp", "--no-native"], True),
)


def skip(why: str) -> NoReturn:
    print(f"skipped: {why}", file=sys.stderr)
    sys.exit(77)


def fetch(folder: Path) -> Path:
    """Returns the program igvm-wrap, and unpacks OVMF into the folder."""
    install = [ROOT / "scripts/with-rust", "cargo", "install", "--quiet", "--locked"]
    install += ["--root", folder / "tools", TOOLS]
    if subprocess.run(install).returncode:
        skip(f"cargo cannot install {TOOLS}")
    package = folder / "package"
    package.mkdir()
    if subprocess.run(["apt-get", "download", "--quiet", "ovmf"], cwd=package).returncode:
        skip("apt cannot download ovmf")
    (deb,) = package.glob("*.deb")
    subprocess.run(["dpkg", "-x", str(deb), str(folder)], check=True)
    return folder / "tools/bin/igvm-wrap"


def wrong_answers(unspin: Path, file: Path, has_digest: bool) -> list[str]:
    """Returns the verbs with a wrong answer. `show` and `check` must read the file. `measure` must print the
    digest of a file for SNP, and the reason for any other file."""
    wrong = []
    for verb, status in (("show", 0), ("check", 0), ("measure", 0 if has_digest else 1)):
        done = subprocess.run([unspin, "igvm", verb, file], capture_output=True, text=True)
        says = done.stdout if status == 0 else done.stderr
        if done.returncode != status or not says.strip():
            wrong.append(f"igvm {verb} {file.name}: status {done.returncode}: {done.stderr}")
    return wrong


def refusals(vmm: Path, unspin: Path, kernel: Path, folder: Path, files: list[Path]) -> dict[str, str]:
    """Returns why unspin-vmm refuses each file. It runs on a real KVM, in a machine that QEMU emulates."""
    bench = Bench(vmm, unspin, kernel, folder)
    script = "".join(f"unspin-vmm --igvm /{file.name} < /dev/null; echo status $?\n" for file in files)
    log = bench.run("others", script, {file.name: file.read_bytes() for file in files})
    refused = re.findall(r"^unspin-vmm: /(\S+): (.+)\nstatus 1$", log.replace("\r", ""), re.MULTILINE)
    return dict(refused)


def main() -> int:
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    vmm, unspin, out = (Path(argument).resolve() for argument in sys.argv[1:])
    kernel = cached_kernel()
    reason = missing(kernel)
    if reason or kernel is None:
        skip(reason)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrap = fetch(folder)
        files, wrong = [], []
        for file, options, has_digest in FILES:
            igvm = folder / f"{file}.igvm"
            command = [wrap, "-i", folder / FIRMWARE, "--vars", folder / VARIABLES, *options, "-o", igvm]
            subprocess.run(command, check=True, capture_output=True)
            wrong.append(wrong_answers(unspin, igvm, has_digest))
            files.append(igvm)
        # unspin-vmm has no firmware, and these files contain little besides firmware, so it must refuse each
        # file.
        refused = refusals(vmm, unspin, kernel, folder, files)
    for file, found in zip(files, wrong, strict=True):
        why = refused.get(file.name)
        found += [] if why else [f"unspin-vmm does not refuse {file.name}"]
        print(f"{file.name}: {'; '.join(found) or f'read; not loaded: {why}'}")
    right = sum(not found for found in wrong)
    claims = Claims("kvm nested in tcg", "igvm-others.py", "make igvm-others")
    what = "IGVM files of another implementation that are read, and loaded or refused with a reason"
    claims.add("cvm.igvm_others", what, 100 * right / len(files), "%", len(files), ">= 100")
    claims.save(out)
    return 0 if right == len(files) else 1


if __name__ == "__main__":
    sys.exit(main())
