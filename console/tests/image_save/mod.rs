//! `vm image save`: a running process saves itself; or the reason is reported, and the process runs
//! on.

use crate::{
    built, json,
    screen::{self, Guarded, text},
};
use rustix::process::Signal;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

/// The program, compiled with these flags; none if this host cannot compile it.
fn compiled(folder: &Path, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/image_save/program.c");
    let program = folder.join("program");
    let mut cc = Command::new("cc");
    let output = cc.arg(source).arg("-o").arg(&program).args(flags).output();
    let output = output.expect("there is a compiler");
    output.status.success().then_some(program)
}

/// Starts the program, and waits until it is ready.
fn started(program: &Path, what: &str, is_preloaded: bool) -> Guarded {
    let mut command = Command::new(program);
    if is_preloaded {
        command.env("LD_PRELOAD", &built()[1]);
    }
    command
        .arg(what)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut running = Guarded::spawn(&mut command);
    let mut line = String::new();
    let output = running.0.stdout.as_mut().expect("a pipe");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("it says it");
    assert_eq!(line, "ready\n");
    running
}

fn save(folder: &Path, words: &[&str], pid: u32) -> Output {
    let mut console = screen::vm(&folder.join("no daemon"));
    console.args(["--json", "image", "save"]).args(words);
    let console = console.arg(pid.to_string()).arg(folder.join("image"));
    console.output().expect("a console")
}

fn program() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled(folder.path(), &[]).expect("it compiles");
    (folder, program)
}

/// The other files in the folder.
fn others(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).expect("a folder").map(|entry| {
        let entry = entry.expect("a file");
        entry.file_name().to_string_lossy().into_owned()
    });
    names.filter(|name| name != "program").collect()
}

#[test]
fn a_process_that_was_started_with_the_library_is_saved() {
    let (folder, program) = program();
    let image = folder.path().join("image");
    // The C library leaves the signal open, even if the program blocks all signals.
    for (words, what) in [
        (&["--rounds"][..], ""),
        (&["--forked", "--carry"], "blocks"),
        (&[], ""),
    ] {
        let mut running = started(&program, what, true);
        let saved = save(folder.path(), words, running.0.id());
        assert!(saved.status.success(), "{words:?}: {saved:?}");
        let value = json(&saved.stdout);
        assert_eq!(value["pid"], running.0.id());
        assert_eq!(
            value["bytes"],
            fs::metadata(&image).expect("an image").len()
        );
        let mut verify = screen::vm(&folder.path().join("no daemon"));
        let verified = verify.args(["image", "verify"]).arg(&image).output();
        assert!(verified.expect("a console").status.success());
        assert!(running.0.try_wait().expect("a child").is_none());
        assert_eq!(others(folder.path()), ["image"]);
    }
    let mut running = started(&program, "", true);
    let saved = save(folder.path(), &["--exit"], running.0.id());
    assert!(saved.status.success(), "{saved:?}");
    assert!(running.wait().success());
}

/// Tries to save the process. Returns the reason of the refusal. The process runs on, and the
/// existing image is unchanged.
fn refused(folder: &Path, running: &mut Guarded) -> String {
    fs::write(folder.join("image"), "an earlier one").expect("room");
    let saved = save(folder, &[], running.0.id());
    assert_eq!(saved.status.code(), Some(1), "{saved:?}");
    assert!(
        running.0.try_wait().expect("a child").is_none(),
        "{saved:?}"
    );
    assert_eq!(others(folder), ["image"]);
    let kept = fs::read_to_string(folder.join("image")).expect("it is there");
    assert_eq!(kept, "an earlier one");
    text(&saved.stderr).to_owned()
}

#[test]
fn a_process_that_the_signal_would_end_gets_no_signal() {
    let (folder, program) = program();
    let why = refused(folder.path(), &mut started(&program, "", false));
    assert!(why.contains("LD_PRELOAD"), "{why}");
    if compiled(folder.path(), &["-static"]).is_none() {
        return println!("note: this host cannot link statically");
    }
    let why = refused(folder.path(), &mut started(&program, "", true));
    assert!(why.contains("linked statically"), "{why}");
}

#[test]
fn a_process_that_would_not_reply_is_named_with_the_reason() {
    let (folder, program) = program();
    let check = |what: &str, is_preloaded, reason: &str| {
        let mut running = started(&program, what, is_preloaded);
        let why = refused(folder.path(), &mut running);
        assert!(why.contains(reason), "{what}: {why}");
    };
    check("takes", false, "a handler of its own for signal 61");
    check("takes", true, "has not handled signal 61 within 5 seconds");
    check(
        "blocks by a bare call",
        true,
        "all its threads block signal 61",
    );
    let mut running = started(&program, "", true);
    running.signal(Signal::STOP);
    let why = refused(folder.path(), &mut running);
    assert!(why.contains("is stopped"), "{why}");
    running.signal(Signal::CONT);
    let gone = running.0.id();
    drop(running);
    let saved = save(folder.path(), &[], gone);
    assert!(
        text(&saved.stderr).contains("there is no process"),
        "{saved:?}"
    );
}
