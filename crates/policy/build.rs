//! Compiles the unchanged headers of `policy/` into functions that Rust can call.

fn main() {
    println!("cargo:rerun-if-changed=../../policy");
    println!("cargo:rerun-if-changed=src/policy.c");
    println!("cargo:rerun-if-changed=src/host.c");
    cc::Build::new()
        .file("src/policy.c")
        .file("src/host.c")
        .include("../../policy")
        .warnings_into_errors(true)
        .compile("policy");
}
