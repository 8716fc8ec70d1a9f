"""Compares a kernel of the lab's cache with the one in Debian's package, which apt gets again and verifies."""

import hashlib
import json
import os
import re
import struct
import subprocess
import tarfile
import tempfile
from pathlib import Path

from cache import cache_folder
from checks import want

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Where crates/sources/src/kernel/debian_cloud.rs gets the kernel `debian-cloud`.
SPEC, SUITE = "debian-cloud", "trixie-backports"
# The packages that may have the image: Debian's later kernels are in several packages.
PACKAGES = ("linux-image-", "linux-binary-", "linux-modules-")


def mirror() -> str:
    """Returns the mirror from which the lab has fetched its kernels."""
    sources = cache_folder() / "apt/sources.list"
    found = re.search(r"(\S+/debian) ", sources.read_text()) if sources.exists() else None
    want(found, f"{sources} names no mirror: run `unspin lab kernel fetch {SPEC}`")
    assert found
    return found[1]


def configured(root: Path) -> dict[str, str]:
    """Returns the environment of an apt that has its own folders, and does not touch this machine's."""
    for folder in ("parts", "state/lists/partial", "cache/archives/partial"):
        (root / folder).mkdir(parents=True)
    (root / "status").touch()
    (root / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main\n")
    settings = {
        "Dir::Etc": f"{root}/",
        "Dir::Etc::sourcelist": root / "sources.list",
        "Dir::Etc::sourceparts": root / "parts",
        "Dir::Etc::parts": root / "parts",
        "Dir::Etc::main": "/dev/null",
        "Dir::State": root / "state",
        "Dir::State::status": root / "status",
        "Dir::Cache": root / "cache",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    conf = root / "apt.conf"
    conf.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    return os.environ | {"APT_CONFIG": str(conf), "LC_ALL": "C"}


def image_in(package: Path) -> bytes | None:
    """Returns the kernel in a package, as `dpkg-deb --fsys-tarfile` unpacks it, or None without one."""
    unpacking = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    with unpacking, tarfile.open(fileobj=unpacking.stdout, mode="r|") as files:
        for file in files:
            if file.isfile() and Path(file.name).name.startswith("vmlinuz"):
                content = files.extractfile(file)
                assert content
                image = content.read()
                unpacking.kill()
                return image
    return None


def loaded(kernel: Path) -> bytes:
    """Returns what a boot loader loads of a kernel, without zeros at the end: the part after the setup
    sectors, up to the length in the header."""
    image = kernel.read_bytes()
    start = (image[0x1F1] + 1) * 512
    return image[start : start + 16 * struct.unpack_from("<I", image, 0x1F4)[0]].rstrip(b"\0")


def as_packaged(kernel: Path) -> str:
    """Checks that the file `vmlinuz` in a folder of the lab's cache is, byte by byte, that of Debian's
    package. apt verifies the package by Debian's signature. Returns package and digest."""
    entry = json.loads((kernel / "kernel.json").read_text())
    release, version = entry["release"], entry["source"].split()[1]
    want(entry["spec"] == SPEC, f"{kernel} is {entry['spec']}, not {SPEC}")
    booted = (kernel / "vmlinuz").read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        environment = configured(root)

        def apt(*words: str) -> bool:
            done = subprocess.run(["apt-get", "-qq", *words], cwd=root, env=environment, capture_output=True)
            return not done.returncode

        want(apt("update", "--error-on=any"), f"no index from {mirror()}: this check needs the network")
        for prefix in PACKAGES:
            if not apt("download", f"{prefix}{release}={version}"):
                continue
            (package,) = root.glob(f"{prefix}*.deb")
            packaged = image_in(package)
            if packaged is None:
                continue
            digest = hashlib.sha256(packaged).hexdigest()
            mine = hashlib.sha256(booted).hexdigest()
            want(mine == digest, f"{kernel / 'vmlinuz'} has SHA-256 {mine}, that of {package.name} has {digest}")
            return f"{prefix}{release} {version}, SHA-256 {digest}"
    want(False, f"no package of {release} {version} has a kernel: is it still in {SUITE}?")
    return ""
