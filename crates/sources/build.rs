//! Rebuilds the crate when files appear in the folders that it embeds.

fn main() {
    for folder in ["kernel", "policy", "qemu"] {
        println!("cargo:rerun-if-changed=../../{folder}");
    }
}
