//! An interpreter that nobody changed, saved by a signal from outside.

use crate::run::{self, User, restore, start};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The interpreter itself, not a script that looks for it.
fn interpreter() -> Option<String> {
    let mut command = Command::new("python3");
    command.args(["-c", "import sys; print(sys.executable)"]);
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn command(python: &str) -> Command {
    let mut command = Command::new(python);
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("zoo/compute.py"))
        .env("PYTHONHASHSEED", "1");
    command
}

/// What it says after "ready".
fn results(output: &str) -> String {
    output
        .lines()
        .filter(|line| *line != "ready")
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn python_goes_on_where_it_was() {
    let Some(python) = interpreter() else {
        return println!("note: there is no python3");
    };
    let expected = start(&mut command(&python), User::Same).end();
    assert!(expected.status.success(), "{expected:?}");
    let expected = results(&expected.output);
    if expected.contains("no numpy") {
        println!("note: there is no numpy for {python}");
    }
    let folder = run::open_folder();
    let image: PathBuf = folder.path().join("image");
    let mut command = command(&python);
    command
        .env("LD_PRELOAD", run::built().join("libvm_checkpoint.so"))
        .env("VM_CHECKPOINT_FILE", &image)
        .env("VM_CHECKPOINT_MODE", "exit");
    let mut running = start(&mut command, User::Same);
    assert_eq!(running.line().as_deref(), Some("ready\n"));
    running.signal(vm_checkpoint::TRIGGER);
    let ended = running.end();
    assert!(image.exists(), "no image; {ended:?}");
    assert!(ended.is_well("ready"), "{ended:?}");
    for _ in 0..2 {
        let ended = start(&mut restore(&image), User::Same).end();
        assert!(ended.is_well(&expected), "{ended:?} in place of {expected}");
    }
}
