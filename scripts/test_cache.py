"""Tests how scripts find the cache. Run by `python3 -m unittest discover -s scripts`."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import cache

SCRIPTS = Path(__file__).resolve().parent
# An environment, and the cache folder that unspin uses in it.
CASES = [
    ({}, "/root/.cache/unspin"),
    ({"HOME": "/home/one"}, "/home/one/.cache/unspin"),
    ({"HOME": "/home/one", "XDG_CACHE_HOME": ""}, "/home/one/.cache/unspin"),
    ({"HOME": "/home/one", "XDG_CACHE_HOME": "/big disk"}, "/big disk/unspin"),
    ({"XDG_CACHE_HOME": "/big", "UNSPIN_CACHE": ""}, "/big/unspin"),
    ({"XDG_CACHE_HOME": "/big", "UNSPIN_CACHE": "/own"}, "/own"),
    ({"UNSPIN_CACHE": "own"}, f"{SCRIPTS}/own"),
    ({"XDG_CACHE_HOME": "big"}, f"{SCRIPTS}/big/unspin"),
]


class Cache(unittest.TestCase):
    def test_scripts_in_both_languages_look_where_unspin_does(self) -> None:
        shell = ["sh", "-c", ". ./cache.sh; unspin_cache"]
        before = Path.cwd()
        os.chdir(SCRIPTS)
        self.addCleanup(os.chdir, before)
        for given, wanted in CASES:
            with self.subTest(given), mock.patch.dict(os.environ, given, clear=True):
                self.assertEqual(cache.cache_folder(), Path(wanted))
                env = {"PATH": "/usr/bin:/bin", **given}
                printed = subprocess.check_output(shell, env=env, text=True)
                self.assertEqual(printed, f"{wanted}\n")

    def test_the_newest_kernel_is_that_of_the_highest_version(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with mock.patch.dict(os.environ, {"UNSPIN_CACHE": folder}):
                self.assertIsNone(cache.cached_kernel())
                for version in ("6.12.118", "10.0.1", "6.12.95", "7.3.4"):
                    kernel = Path(folder, f"kernels/debian-cloud-{version}")
                    kernel.mkdir(parents=True)
                    (kernel / "vmlinuz").touch()
                Path(folder, "kernels/debian-cloud-11.0.1").mkdir()
                found = cache.cached_kernel()
        self.assertEqual(found and found.name, "debian-cloud-10.0.1")


if __name__ == "__main__":
    unittest.main()
