//! Names the shared library for the dynamic linker: programs ask for `libvm.so.0`, so that a later,
//! incompatible interface can be installed beside this one.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvm.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
