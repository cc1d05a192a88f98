//! Programs of the zoo in C and C++, which these tests compile.

use crate::{
    modes::{Kind, Program},
    run::{self, User, start},
};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The folder of the sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("zoo")
}

/// Compiles a source into a folder, linked with the library of this build.
fn compiled(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let built = run::built().display().to_string();
    // This path comes before the folders of LD_LIBRARY_PATH, which cargo sets, because an older
    // library may be there.
    let search = format!("-Wl,--disable-new-dtags,-rpath,{built}");
    let library = ["-L", &built, "-lvm_image", &search];
    compiled_alone(folder, source, &[flags, &library].concat())
}

/// Compiles a source into a folder, without the library.
pub fn compiled_alone(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let (stem, kind) = source.split_once('.').expect("a source has an ending");
    let path = folder.join(stem);
    let mut command = Command::new(if kind == "cc" { "c++" } else { "cc" });
    command
        .args([
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-D_GNU_SOURCE",
            "-pthread",
            "-o",
        ])
        .arg(&path)
        .arg(sources().join(source))
        .arg("-I")
        .arg(sources().join("../include"))
        .args(flags);
    let ended = start(&mut command, User::Same).end();
    assert!(ended.is_well(""), "{command:?}: {ended:?}");
    path
}

/// Compiles a program and checks it in all modes.
fn check(source: &'static str, kind: Kind, flags: &[&str]) {
    let folder = run::open_folder();
    Program {
        name: source.split('.').next().expect("a name"),
        path: compiled(folder.path(), source, flags),
        arguments: Vec::new(),
        kind,
    }
    .check();
}

#[test]
fn mutexes() {
    check("mutexes.c", Kind::Copied, &[]);
}

#[test]
fn rwlocks() {
    check("rwlocks.c", Kind::Copied, &[]);
}

#[test]
fn waits() {
    check("waits.c", Kind::Copied, &[]);
}

#[test]
fn semaphores() {
    check("semaphores.c", Kind::Copied, &[]);
}

#[test]
fn jumps() {
    check("jumps.c", Kind::Copied, &["-Wno-clobbered"]);
}

#[test]
fn library() {
    let folder = run::open_folder();
    let counter = compiled_alone(folder.path(), "counter.c", &["-shared", "-fPIC"]);
    Program {
        name: "library",
        path: compiled(folder.path(), "library.c", &[]),
        arguments: vec![counter.into()],
        kind: Kind::Copied,
    }
    .check();
}

#[test]
fn numbers() {
    check("numbers.c", Kind::Copied, &[]);
}

#[test]
fn openmp() {
    check("openmp.c", Kind::Copied, &["-fopenmp"]);
}

#[test]
fn exceptions() {
    check("exceptions.cc", Kind::Copied, &["-std=c++17"]);
}

#[test]
fn unwinding() {
    check("unwinding.cc", Kind::Copied, &["-std=c++17"]);
}

#[test]
fn restartable() {
    check("restartable.c", Kind::Copied, &[]);
}

#[test]
fn streams() {
    check("streams.c", Kind::Moved, &[]);
}

#[test]
fn thread_control() {
    check("thread_control.c", Kind::Copied, &[]);
}

#[test]
fn children() {
    check("children.c", Kind::Copied, &[]);
}

#[test]
fn arenas() {
    check("arenas.c", Kind::Copied, &[]);
}

#[test]
fn timer_threads() {
    check("timer_threads.c", Kind::Refused, &[]);
}

/// The kernel can execute the image's own program, but the loader then finds no library.
#[test]
fn a_removed_library_does_not_prevent_the_restore() {
    let folder = run::open_folder();
    let counter = compiled(folder.path(), "counter.c", &["-shared", "-fPIC"]);
    let library = folder.path().join("libcounter.so");
    fs::rename(counter, &library).expect("it was built");
    let place = folder.path().display().to_string();
    let search = format!("-Wl,-rpath,{place}");
    let program = compiled(
        folder.path(),
        "dependent.c",
        &["-L", &place, "-lcounter", &search],
    );
    let image = folder.path().join("image");
    let mut command = Command::new(program);
    let saved = start(command.env("ZOO_IMAGE", &image), User::Same).end();
    assert!(saved.is_well("ok dependent"), "{saved:?}");
    let restore = || start(&mut run::restore(&image.with_extension("1")), User::Same).end();
    let ended = restore();
    assert!(ended.is_well("ok dependent"), "{ended:?}");
    fs::write(&library, "another version").expect("it is there");
    let ended = restore();
    assert!(ended.is_well("ok dependent"), "replaced: {ended:?}");
    fs::remove_file(library).expect("it is there");
    let ended = restore();
    assert!(ended.is_well("ok dependent"), "removed: {ended:?}");
}

/// Random numbers of the kernel are not part of an image.
#[test]
fn two_restores_of_one_image_draw_different_numbers() {
    let folder = run::open_folder();
    let image = folder.path().join("image");
    let mut command = Command::new(compiled(folder.path(), "numbers.c", &[]));
    let saved = start(command.env("ZOO_IMAGE", &image), User::Same).end();
    let restore = || {
        let ended = start(&mut run::restore(&image.with_extension("1")), User::Same).end();
        assert!(ended.is_well("ok numbers"), "{ended:?}");
        ended.output
    };
    let outputs = [saved.output, restore(), restore()];
    let drawn = outputs.iter().flat_map(|output| output.lines());
    let drawn: Vec<&str> = drawn.filter(|line| line.contains("drew")).collect();
    let different: BTreeSet<&str> = drawn.iter().copied().collect();
    assert_eq!(different.len(), drawn.len(), "{outputs:?}");
}
