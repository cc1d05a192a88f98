//! An unmodified interpreter, saved by a signal.

use crate::run::{self, User, restore, start};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The interpreter itself, not a script that looks for it; preferably Debian's, which has numpy.
fn interpreter() -> Option<String> {
    ["/usr/bin/python3", "python3"].iter().find_map(|name| {
        let mut command = Command::new(name);
        command.args(["-c", "import sys; print(sys.executable)"]);
        let output = command.output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| path.trim().to_owned())
    })
}

fn has_numpy(python: &str) -> bool {
    let mut command = Command::new(python);
    let output = command.args(["-c", "import numpy"]).output();
    output.is_ok_and(|output| output.status.success())
}

fn command(python: &str, source: &str) -> Command {
    let mut command = Command::new(python);
    command
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("zoo")
                .join(source),
        )
        .env("PYTHONHASHSEED", "1");
    command
}

/// The command with the library preloaded, so that a signal saves the process.
fn preloaded(python: &str, source: &str, image: &Path, mode: &str) -> Command {
    let mut command = command(python, source);
    command
        .env("LD_PRELOAD", run::built().join("libvm_image.so"))
        .env("VM_IMAGE_FILE", image)
        .env("VM_IMAGE_MODE", mode);
    command
}

/// The lines after "ready".
fn results(output: &str) -> String {
    output
        .lines()
        .filter(|line| *line != "ready")
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn python_continues_its_computation() {
    let Some(python) = interpreter() else {
        return println!("note: there is no python3");
    };
    let expected = start(&mut command(&python, "compute.py"), User::Same).end();
    assert!(expected.status.success(), "{expected:?}");
    let expected = results(&expected.output);
    if expected.contains("no numpy") {
        println!("note: there is no numpy for {python}");
    }
    let folder = run::open_folder();
    let image: PathBuf = folder.path().join("image");
    let mut running = start(
        &mut preloaded(&python, "compute.py", &image, "exit"),
        User::Same,
    );
    assert_eq!(running.line().as_deref(), Some("ready\n"));
    running.signal(vm_image::TRIGGER);
    let ended = running.end();
    assert!(image.exists(), "no image; {ended:?}");
    assert!(ended.is_well("ready"), "{ended:?}");
    for _ in 0..2 {
        let ended = start(&mut restore(&image), User::Same).end();
        assert!(ended.is_well(&expected), "{ended:?} in place of {expected}");
    }
}

/// An interpreter with numpy, and the output of `matrices.py` without saves; `None` without numpy.
fn steps() -> Option<(String, String)> {
    let python = interpreter().filter(|python| has_numpy(python));
    let Some(python) = python else {
        println!("note: there is no numpy");
        return None;
    };
    let ended = start(&mut command(&python, "matrices.py"), User::Same).end();
    assert!(ended.status.success(), "{ended:?}");
    Some((python, ended.output))
}

/// Three saves, each of the restored process of the previous one. Their outputs together are that
/// of a run without saves.
#[test]
fn numpy_continues_in_a_chain_of_saves() {
    let Some((python, expected)) = steps() else {
        return;
    };
    let folder = run::open_folder();
    let image = folder.path().join("image");
    let mut said = String::new();
    let mut command = preloaded(&python, "matrices.py", &image, "exit");
    for _ in 0..3 {
        let mut running = start(&mut command, User::Same);
        let _ = running.line().expect("it goes on");
        running.signal(vm_image::TRIGGER);
        let ended = running.end();
        assert!(
            ended.status.success() && ended.errors.is_empty(),
            "{ended:?}"
        );
        said.push_str(&ended.output);
        assert!(image.exists(), "no image; {ended:?}");
        let last = folder.path().join("last");
        std::fs::rename(&image, &last).expect("the image is whole");
        command = restore(&last);
    }
    said.push_str(&start(&mut command, User::Same).end().output);
    assert_eq!(said, expected);
}

/// A copy of the process writes the image; the process and the restored process both continue.
#[test]
fn numpy_continues_beside_its_copy() {
    let Some((python, expected)) = steps() else {
        return;
    };
    let folder = run::open_folder();
    let image = folder.path().join("image");
    let mut command = preloaded(&python, "matrices.py", &image, "forked");
    let mut running = start(&mut command, User::Same);
    let first = running.line().expect("it begins");
    running.signal(vm_image::TRIGGER);
    let ended = running.end();
    assert!(ended.is_well(&expected), "{ended:?} in place of {expected}");
    assert!(image.exists(), "no image; {ended:?}");
    for _ in 0..2 {
        // The image has the steps that were printed before.
        let ended = start(&mut restore(&image), User::Same).end();
        let is_rest = !ended.output.is_empty() && expected.ends_with(&ended.output);
        assert!(
            ended.status.success() && is_rest && !ended.output.contains(&first),
            "{ended:?} in place of the rest of {expected}"
        );
    }
}
