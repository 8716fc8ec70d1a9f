#!/usr/bin/env python3
"""Prints the licences of the code in the static programs.

Rust crates: those that Cargo links into PACKAGE for TARGET, with the licence files in their sources.
C libraries: the Debian packages of the static libraries. LIBRARY=DEBIAN-PACKAGE adds another linked
library, such as libzstd.a=libzstd-dev.

usage: scripts/third-party.py TARGET PACKAGE... [LIBRARY=DEBIAN-PACKAGE...]
"""

import json
import pathlib
import subprocess
import sys

# The crate libbpf-sys contains libbpf. The GCC Runtime Library Exception asks for no notice of
# libgcc_eh, the unwinder.
LIBRARIES = {"libc.a": "libc6-dev", "libelf.a": "libelf-dev", "libz.a": "zlib1g-dev"}
NAMES = ("LICEN", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE")
RULE = "=" * 80


def output(*command: str) -> str:
    """Returns a command's output."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def linked(target: str, packages: list[str]) -> set[str]:
    """Returns the `name version` of every linked crate, without build scripts and macros."""
    chosen = [word for package in packages for word in ("-p", package)]
    tree = output("cargo", "tree", "--locked", "--edges=normal,no-proc-macro", "--prefix=none",
                  "--format={p}", f"--target={target}", *chosen)
    return {" ".join(line.split()[:2]).replace(" v", " ") for line in tree.splitlines() if line}


def licence_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the licence files of a crate, and those of its libbpf."""
    folders = [folder, folder / "libbpf"]
    files = (file for place in folders if place.is_dir() for file in sorted(place.iterdir()))
    return [file for file in files if file.is_file() and file.name.upper().startswith(NAMES)]


def crates(target: str, packages: list[str]) -> list[dict]:
    """Returns the linked third-party crates, by name."""
    wanted = linked(target, packages)
    metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version=1"))
    found = [one for one in metadata["packages"]
             if one["source"] and f"{one['name']} {one['version']}" in wanted]
    return sorted(found, key=lambda one: (one["name"], one["version"]))


def main() -> None:
    """Prints the names, then each licence text once with the names of its owners."""
    target, *words = sys.argv[1:]
    packages = [word for word in words if "=" not in word]
    libraries = LIBRARIES | dict(word.split("=", 1) for word in words if "=" in word)
    texts: dict[str, list[str]] = {}
    print("What the programs of unspin contain beside its own code, and its licences.\n")
    for crate in crates(target, packages):
        name = f"{crate['name']} {crate['version']}"
        print(f"{name}: {crate['license'] or 'see below'}; {crate['repository'] or ''}")
        for file in licence_files(pathlib.Path(crate["manifest_path"]).parent):
            text = file.read_text(errors="replace").strip()
            texts.setdefault(text, []).append(f"{name}: {file.name}")
    rust = output("rustc", "--version").strip()
    print(f"The standard library of {rust}: MIT OR Apache-2.0; https://github.com/rust-lang/rust")
    for library, package in libraries.items():
        version = output("dpkg-query", "-W", "-f", "${Version}", package)
        source = output("dpkg-query", "-W", "-f", "${source:Package}", package)
        print(f"{library} of Debian's {package} {version}, source package {source}")
        text = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_text(errors="replace")
        texts.setdefault(text.strip(), []).append(f"{library}: copyright")
    for text, owners in texts.items():
        print(f"\n{RULE}\n" + "\n".join(owners) + f"\n{RULE}\n\n{text}")


if __name__ == "__main__":
    main()
