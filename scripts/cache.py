"""The folder of unspin's cache, by the rules of crates/sources/src/cache.rs."""

import os
import re
from pathlib import Path


def cache_folder() -> Path:
    """Returns $UNSPIN_CACHE, else $XDG_CACHE_HOME/unspin, else ~/.cache/unspin. Empty variables do not
    count."""
    home = Path(os.environ.get("HOME") or "/root") / ".cache"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or home) / "unspin"
    return Path(os.environ.get("UNSPIN_CACHE") or folder).absolute()


def version(folder: Path) -> tuple[list[int], float]:
    """Returns the version of a folder such as debian-cloud-6.12.118 as numbers, which sort 6.12 after
    6.9, and the time of its description, which orders two revisions of one version."""
    name = folder.name.partition("~")[0]
    description = folder / "kernel.json"
    made = description.stat().st_mtime if description.exists() else 0.0
    return [int(number) for number in re.findall(r"\d+", name)], made


def cached_kernel() -> Path | None:
    """Returns the newest of Debian's cloud kernels that the lab has fetched."""
    images = cache_folder().glob("kernels/debian-cloud-*/vmlinuz")
    return max((image.parent for image in images), key=version, default=None)
