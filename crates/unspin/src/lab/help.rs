//! The ends of `--help` of `unspin lab kernel` and `unspin lab qemu`.

use crate::help::{Help, NONE};

/// Help of `unspin lab kernel`, `unspin lab qemu` and their verbs.
pub static VERBS: &[Help] = &[
    Help {
        verb: "lab kernel",
        examples: &[("unspin lab kernel list", "the kernels in the cache")],
        see: &["lab-kernel-build", "lab-kernel-fetch", "lab-run"],
        ..NONE
    },
    Help {
        verb: "lab kernel list",
        examples: &[("unspin lab kernel list --json", "all of them, as JSON")],
        see: &["lab-kernel-show"],
        ..NONE
    },
    Help {
        verb: "lab kernel fetch",
        examples: &[("unspin lab kernel fetch debian-cloud", "download and unpack it")],
        see: &["lab-kernel-build"],
        ..NONE
    },
    Help {
        verb: "lab kernel build",
        examples: &[
            ("unspin lab kernel build", "the lab's own kernel"),
            ("unspin lab kernel build --source linux-source-7.3", "another source"),
        ],
        see: &["lab-kernel-fetch"],
        ..NONE
    },
    Help {
        verb: "lab kernel show",
        examples: &[("unspin lab kernel show lab", "release, source and image")],
        see: &["lab-kernel-list"],
        ..NONE
    },
    Help {
        verb: "lab qemu",
        examples: &[("unspin lab qemu build", "needed once for virtual time")],
        see: &["lab-run"],
        ..NONE
    },
    Help {
        verb: "lab qemu build",
        examples: &[("unspin lab qemu build -j 1", "with one compiler at a time")],
        see: &["lab-qemu-show"],
        ..NONE
    },
    Help {
        verb: "lab qemu show",
        examples: &[("unspin lab qemu show --json", "versions, patches and options")],
        see: &["lab-qemu-build"],
        ..NONE
    },
];
