//! Installs the library for programs in C, C++ and Fortran below a prefix: `vm-c-install /usr/local`.
//!
//! Build the whole crate first: the program takes the libraries from its own folder. With the variable
//! DESTDIR, the files go below that folder, for packages.

use std::{
    env, fs,
    io::{self, ErrorKind},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// The name by which programs ask for the shared library; the build sets it, too.
const SONAME: &str = "libvm.so.0";

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let (Some(prefix), None) = (args.next().map(PathBuf::from), args.next()) else {
        eprintln!("usage: vm-c-install PREFIX, for example /usr/local");
        return ExitCode::from(2);
    };
    match install(&prefix) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vm-c-install: {error}");
            ExitCode::FAILURE
        }
    }
}

fn install(prefix: &Path) -> io::Result<()> {
    if !prefix.is_absolute() {
        let text = format!("{} is no absolute path", prefix.display());
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    let root = match env::var_os("DESTDIR") {
        Some(folder) => {
            let inside = prefix.strip_prefix("/").unwrap_or(prefix);
            PathBuf::from(folder).join(inside)
        }
        None => prefix.to_owned(),
    };
    let (include, lib) = (root.join("include"), root.join("lib"));
    write(&include.join("vm.h"), include_str!("../../include/vm.h"))?;
    write(
        &include.join("vm.f90"),
        include_str!("../../fortran/vm.f90"),
    )?;
    let pc = include_str!("../../pkgconfig/vm.pc.in")
        .replace("@PREFIX@", &prefix.display().to_string())
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    write(&lib.join("pkgconfig/vm.pc"), &pc)?;
    for (name, page) in vm::man::pages() {
        write(&root.join("share/man/man3").join(name), &page)?;
    }
    let built = env::current_exe()?;
    let built = built.parent().unwrap_or(Path::new("."));
    replace(&built.join("libvm.so"), &lib.join(SONAME))?;
    replace(&built.join("libvm.a"), &lib.join("libvm.a"))?;
    let link = lib.join("libvm.so");
    fs::remove_file(&link)
        .or_else(|error| match error.kind() {
            ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
        .and_then(|()| symlink(SONAME, &link))
        .map_err(|error| about(&link, error))
}

/// Writes a file, and makes its folder.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| about(path, error))
}

/// Puts a copy in the place of a library that running programs may have mapped.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new).map_err(|error| about(from, error))?;
    fs::rename(&new, to).map_err(|error| about(to, error))
}

fn about(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
