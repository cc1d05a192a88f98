//! The Fortran module is what the header says. `UPDATE_GOLDENFILES=1` writes it anew.

use std::{env, fs, path::Path};

#[test]
fn the_fortran_module_is_that_of_the_header() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fortran/vm.f90");
    let module = vm::fortran::module();
    if env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(&path, &module).expect("the file can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == module,
        "UPDATE_GOLDENFILES=1 cargo test -p vm-c --test fortran"
    );
}

#[test]
fn no_line_is_too_long_for_a_compiler() {
    let module = vm::fortran::module();
    let long: Vec<&str> = module.lines().filter(|line| line.len() > 132).collect();
    assert!(long.is_empty(), "{long:?}");
}
