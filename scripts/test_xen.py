"""Tests what scripts/xen.py gives to QEMU and xl. Run by `python3 -m unittest discover -s scripts`."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import stacks
import xen


class Xen(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_a_missing_file_is_named(self) -> None:
        self.assertEqual(xen.lacking(self.folder), "needs Xen: make xen")
        (self.folder / "xen").touch()
        with mock.patch("xen.FIRMWARE", [self.folder]):
            self.assertIn("multiboot_dma.bin", xen.lacking(self.folder))
            (self.folder / "multiboot_dma.bin").touch()
            self.assertEqual(xen.lacking(self.folder), "")

    def test_the_folder_is_in_the_cache_or_named(self) -> None:
        with mock.patch.dict(os.environ, {"UNSPIN_CACHE": "/cache", "UNSPIN_XEN": ""}):
            self.assertEqual(xen.files(), Path("/cache/xen"))
            with mock.patch.dict(os.environ, {"UNSPIN_XEN": "/mine"}):
                self.assertEqual(xen.files(), Path("/mine"))

    def test_the_guest_has_the_same_command_line_on_another_console(self) -> None:
        line = stacks.append(1)
        config = xen.config(line, 512, 2)
        values = {}
        exec(config, values)  # xl's syntax is close to Python's.
        self.assertEqual(values["extra"], line.replace("ttyS0", "hvc0"))
        self.assertIn('do="stacks-guest.sh 1"', values["extra"])
        self.assertEqual((values["memory"], values["vcpus"], values["hap"]), (512, 2, 0))

    def test_xen_starts_with_dom0_and_its_initramfs_as_modules(self) -> None:
        bench = xen.XenBench.__new__(xen.XenBench)
        bench.host, bench.append, bench.dom0 = Path("/f/xen"), "console=com1", Path("/f/dom0")
        with mock.patch("xen.boot_folder", lambda: Path("/usr/share/qemu")):
            words = bench.boot(Path("/f/packed"))
        self.assertEqual(words[words.index("-kernel") + 1], "/f/xen")
        modules = words[words.index("-initrd") + 1].split(",")
        self.assertEqual([module.split()[0] for module in modules], ["/f/dom0", "/f/packed"])

    def test_an_interface_has_the_address_and_the_queues_of_its_number(self) -> None:
        program = self.folder / "log"
        program.write_text('#!/bin/sh\necho "${0##*/} $*"\n')
        program.chmod(0o755)
        for name in ("ifconfig", "xenstore-write"):
            (self.folder / name).symlink_to(program)
        for vif, pairs in (("vif1.0", 1), ("vif1.1", 2)):
            path = f"{self.folder}:{os.environ['PATH']}"
            env = {"PATH": path, "vif": vif, "XENBUS_PATH": "backend/x"}
            said = subprocess.check_output(["sh", "-c", xen.VIF, "vif", "online"], env=env, text=True)
            self.assertIn(f"ifconfig {vif} 10.0.{pairs}.1 ", said)
            self.assertIn(f"backend/x/multi-queue-max-queues {pairs} ", said)


if __name__ == "__main__":
    unittest.main()
