# The devices of the lab's QEMU: replaces configs/devices/i386-softmmu/default.mak.
# One machine, with what a guest of the lab talks to; nothing else is compiled.
CONFIG_Q35=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_SERIAL=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_NET=y
CONFIG_SERIAL_ISA=y
CONFIG_HPET=y
