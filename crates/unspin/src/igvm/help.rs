//! The ends of `--help` of `unspin igvm`.

use crate::help::{Help, NONE};

/// Help of `unspin igvm` and its verbs.
pub static VERBS: &[Help] = &[
    Help {
        verb: "igvm",
        examples: &[
            ("unspin igvm show guest.igvm", "what is in a file"),
            ("unspin igvm check guest.igvm", "whether a guest starts from it"),
        ],
        see: &["igvm-show", "igvm-build", "igvm-measure", "igvm-diff", "igvm-check"],
        ..NONE
    },
    Help {
        verb: "igvm show",
        examples: &[
            ("unspin igvm show guest.igvm", "platforms, memory, registers, digests"),
            ("unspin igvm show - --json", "a file from standard input, as JSON"),
        ],
        see: &["igvm-measure", "igvm-check"],
        ..NONE
    },
    Help {
        verb: "igvm build",
        examples: &[
            (
                "unspin igvm build --kernel vmlinuz --initramfs initrd.img --append console=ttyS0 -o guest.igvm",
                "a guest for SEV-ES",
            ),
            (
                "unspin igvm build --kernel vmlinuz --platform snp --cbit 51 --memory 2048 --vcpus 4 -o guest.igvm",
                "one for SNP, with 2 GiB and four vCPUs",
            ),
        ],
        see: &["igvm-check", "igvm-measure"],
        ..NONE
    },
    Help {
        verb: "igvm measure",
        examples: &[
            ("unspin igvm measure guest.igvm", "all its digests"),
            ("unspin igvm measure guest.igvm --platform snp --loader kvm", "the one that KVM gets"),
        ],
        see: &["igvm-show", "igvm-diff"],
        ..NONE
    },
    Help {
        verb: "igvm diff",
        examples: &[("unspin igvm diff old.igvm new.igvm", "why two digests differ")],
        status: &[("1", "failed, or the files differ")],
        see: &["igvm-measure"],
    },
    Help {
        verb: "igvm check",
        examples: &[("unspin igvm check guest.igvm --json", "errors and notes, as JSON")],
        status: &[("1", "failed, or the file has errors")],
        see: &["igvm-show", "igvm-build"],
    },
];
