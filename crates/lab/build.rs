//! Rebuilds the crate when files appear in the folders that it embeds.

fn main() {
    for folder in ["experiments", "claims", "workloads"] {
        println!("cargo:rerun-if-changed=../../{folder}");
    }
}
