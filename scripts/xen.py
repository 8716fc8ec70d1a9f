"""Runs an L1 with Xen and a dom0, and a PVH guest in it. scripts/xen.sh fetches and builds them."""

import os
import shutil
from pathlib import Path

from cache import cache_folder
from nested import FIRMWARE, L1_CPU, L1_INIT, Bench, install, modules, skeleton

HYPERVISOR = "xen"
TOOLS = ("xl", "xenstored", "xenconsoled", "xenconsole", "xen-init-dom0")
# QEMU's program that starts a hypervisor with several modules.
BOOT = "multiboot_dma.bin"
LIBGCC = Path("/lib/x86_64-linux-gnu/libgcc_s.so.1")
# We tried Xen only without these features.
CPU = f"{L1_CPU},-smap,-smep,-la57"
DOM0_MIB = 1536
# spec-ctrl=no: like the kernels' mitigations=off.
XEN_APPEND = f"console=com1 com1=115200 spec-ctrl=no dom0_mem={DOM0_MIB}M,max:{DOM0_MIB}M"
DOM0_APPEND = "console=hvc0 quiet panic=-1 mitigations=off"
GUEST_MODULES = ("xen-blkfront", "xen-netfront")
DOM0_MODULES = ("loop", "xen-privcmd", "xen-evtchn", "xen-gntdev", "xenfs", "xen-netback")

# The scripts of the guest's devices. xl sets `vif` and XENBUS_PATH. Xen's own scripts need bash. 7:0 is
# the first loop device. The backend offers as many pairs of queues as its entry allows.
BLOCK = """#!/bin/sh
[ "$1" = add ] || exit 0
xenstore-write "$XENBUS_PATH/physical-device" 7:0 "$XENBUS_PATH/hotplug-status" connected
"""
VIF = """#!/bin/sh
[ "$1" = online ] || exit 0
pairs=$((${vif##*.} + 1))
ifconfig "$vif" 10.0.$pairs.1 netmask 255.255.255.0 up
xenstore-write "$XENBUS_PATH/multi-queue-max-queues" $pairs "$XENBUS_PATH/hotplug-status" connected
"""
# Starts Xen's services and the guest, prints the guest's console, and ends with the guest. `max_queues`
# gives the disk one queue.
GUEST = """#!/bin/sh
mkdir -p /etc/xen /var/lib/xen /var/log/xen /tmp/xen /tmp/xenstored /tmp/lock /dev/pts
ln -s /tmp /run
ln -s /tmp /var/run
ln -s /tmp/lock /var/lock
touch /etc/xen/xl.conf
mount -t devpts pts /dev/pts
mount -t xenfs xen /proc/xen
insmod /modules/xen-blkback.ko max_queues=1
losetup /dev/loop0 /tmp/disk
xenstored --pid-file /tmp/xenstored.pid
until [ -S /tmp/xenstored/socket ]; do usleep 100000; done
xen-init-dom0
xenconsoled --pid-file /tmp/xenconsoled.pid
xl create /guest.cfg > /tmp/xl.log 2>&1 || { cat /tmp/xl.log; exit 1; }
xenconsole --type pv "$(xl domid guest)"
"""
COMMAND = "guest"


def files() -> Path:
    """Returns the folder of Xen's files, which may not exist."""
    return Path(os.environ.get("UNSPIN_XEN") or cache_folder() / "xen")


def lacking(folder: Path) -> str:
    """Returns why the L1 with Xen cannot run, or an empty string."""
    if not (folder / HYPERVISOR).is_file():
        return "needs Xen: make xen"
    if not boot_folder():
        return f"needs QEMU's {BOOT}: apt install qemu-system-data"
    return ""


def boot_folder() -> Path | None:
    return next((folder for folder in FIRMWARE if (folder / BOOT).exists()), None)


def config(append: str, memory_mib: int, vcpus: int) -> str:
    """Returns xl's description of a guest with a disk and two interfaces. The guest reads the L1's
    time stamp counter itself, as it does under KVM."""
    quoted = append.replace("ttyS0", "hvc0").replace('"', '\\"')
    return f"""name = "guest"
type = "pvh"
hap = 0
tsc_mode = "native"
kernel = "/vmlinuz"
ramdisk = "/initramfs"
extra = "{quoted}"
memory = {memory_mib}
vcpus = {vcpus}
disk = ["format=raw,vdev=xvda,access=w,script=/bin/block,target=/dev/loop0"]
vif = ["script=/bin/vif,mac=00:16:3e:00:00:01", "script=/bin/vif,mac=00:16:3e:00:00:02"]
on_poweroff = "destroy"
on_reboot = "destroy"
on_crash = "destroy"
"""


class XenBench(Bench):
    """An L1 with Xen. Its guest has the kernel and the initramfs of another bench's guests."""

    name = "xen"
    cpu = CPU

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.unspin, self.kernel, self.folder = bench.unspin, bench.kernel, bench.folder
        self.initramfs = bench.initramfs
        self.host, self.append = folder / HYPERVISOR, XEN_APPEND
        unpacked = folder / "root"
        # QEMU's list of modules allows no blank or comma in a path, but the cache's path may have one.
        self.dom0 = self.folder / "dom0"
        shutil.copy(next(unpacked.glob("boot/vmlinuz-*")), self.dom0)
        self.root = self.folder / "xen-l1"
        skeleton(self.root, L1_INIT % {"modules": " ".join(DOM0_MODULES), "kvm_amd": ""})
        modules(unpacked, (*DOM0_MODULES, "xen-blkback"), self.root)
        libraries = unpacked / "usr/lib/x86_64-linux-gnu"
        for path in (*TOOLS, "/usr/bin/xenstore-write"):
            found = next(unpacked.glob(f"usr/lib/xen-*/bin/{path}"), unpacked / path[1:])
            install(self.root, found, found.name, libraries)
        # xl loads it at its end.
        shutil.copy(LIBGCC, self.root / "lib")
        for name, text in (("block", BLOCK), ("vif", VIF), (COMMAND, GUEST)):
            (self.root / "bin" / name).write_text(text)
            (self.root / "bin" / name).chmod(0o755)
        for file in (self.kernel / "vmlinuz", self.initramfs):
            shutil.copy(file, self.root)

    def boot(self, packed: Path) -> list[str]:
        words = ["-L", str(boot_folder()), "-kernel", str(self.host), "-append", self.append]
        return [*words, "-initrd", f"{self.dom0} {DOM0_APPEND},{packed}"]
