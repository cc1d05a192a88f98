//! Builds the restorer: a separate program without a C library, which the library embeds.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=restorer");
    println!("cargo::rerun-if-changed=src/raw");
    let target = env::var("TARGET").expect("cargo sets it");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("restorer");
    if !target.starts_with("x86_64") || !target.contains("linux") {
        std::fs::write(out, []).expect("the folder of the build can be written");
        return;
    }
    let rustc = env::var("RUSTC").expect("cargo sets it");
    let status = Command::new(rustc)
        .args([
            "restorer/main.rs",
            "--crate-name",
            "restorer",
            "--edition",
            "2024",
        ])
        .args(["--target", &target, "-o"])
        .arg(&out)
        .args([
            "-C",
            "panic=abort",
            "-C",
            "opt-level=3",
            "-C",
            "relocation-model=pic",
        ])
        .args([
            "-C",
            "overflow-checks=off",
            "-C",
            "debug-assertions=off",
            "-C",
            "strip=symbols",
        ])
        .args(["-C", "link-arg=-nostartfiles", "-C", "link-arg=-nostdlib"])
        .args(["-C", "link-arg=-static", "-C", "link-arg=-no-pie"])
        // An address far from those that programs, libraries and the kernel choose by themselves.
        .args(["-C", "link-arg=-Wl,--image-base=0x200000000000"])
        .env_remove("RUSTC_WRAPPER")
        .status()
        .expect("the compiler can be started");
    assert!(status.success(), "the restorer cannot be built");
}
