//! Files that a process has open: compared where it is brought back, and carried in the image.

use crate::{
    Saver,
    run::{self, User, start_with},
    verify,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use vm_checkpoint::CANNOT_GO_ON;

/// A folder with a file, and a process that has it open.
fn begin(content: &[u8]) -> (tempfile::TempDir, PathBuf, PathBuf, Saver) {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).expect("a folder");
    let (file, image) = (inside.join("data"), folder.path().join("image"));
    fs::write(&file, content).expect("it can be written");
    let saver = Saver::start(Some(&file));
    (folder, file, image, saver)
}

/// The process cannot go on, for this reason.
fn assert_refused(image: &Path, why: &str) {
    let ended = Saver::restore(image).end();
    assert_eq!(ended.status.code(), Some(CANNOT_GO_ON), "{ended:?}");
    assert!(ended.errors.contains(why), "{ended:?}, not '{why}'");
}

fn assert_reads(image: &Path, content: &str) {
    let mut back = Saver::restore(image);
    assert_eq!(back.heard(), "back");
    assert_eq!(back.ask("read"), content);
}

#[test]
fn a_log_that_has_only_grown_is_written_on() {
    let (_folder, file, image, mut saver) = begin(b"one,");
    assert_eq!(saver.ask("append two,"), "done");
    assert_eq!(saver.save(&image, ""), "saved");
    assert_eq!(saver.ask("append three,"), "done");
    let mut back = Saver::restore(&image);
    assert_eq!(back.heard(), "back");
    assert_eq!(back.ask("append four"), "done");
    assert_eq!(fs::read(&file).expect("it is there"), b"one,two,three,four");
    fs::write(&file, "one;two,three").expect("it can be written");
    assert_refused(
        &image,
        "data has changed: it holds something else; put back what it was",
    );
    fs::write(&file, "one,two").expect("it can be written");
    assert_refused(
        &image,
        "data has changed: 7 bytes in place of 8; put back what it was",
    );
}

#[test]
fn all_of_a_file_is_compared_unless_less_was_wanted() {
    let mut content = vec![b'.'; 20 << 20];
    let (_folder, file, image, mut saver) = begin(&content);
    assert_eq!(saver.save(&image, ""), "saved");
    let part = image.with_extension("part");
    assert_eq!(saver.save(&part, "checked=5000000"), "saved");
    *content.last_mut().expect("there are some") = b'!';
    fs::write(&file, &content).expect("it can be written");
    assert_refused(&image, "it holds something else");
    assert_eq!(Saver::restore(&part).heard(), "back");
    content[4_999_999] = b'!';
    fs::write(&file, &content).expect("it can be written");
    assert_refused(&part, "it holds something else");
}

#[test]
fn a_carried_file_is_made_where_it_is_missing_and_never_overwritten() {
    for words in ["carry", "carry forked", "carry rounds", "carry compress"] {
        let (_folder, file, image, mut saver) = begin(b"as it was");
        assert_eq!(saver.save(&image, words), "saved");
        let summary = verify(&image).expect("it is whole");
        assert!(
            summary
                .files
                .iter()
                .any(|file| file.fd == 3 && file.carried)
        );
        assert_eq!(saver.ask("append ,andmore"), "done");
        // There, and only grown.
        assert_reads(&image, "as it was,andmore");
        fs::write(&file, "Another").expect("it can be written");
        assert_refused(&image, "or remove it and it is made of the image");
        assert_eq!(fs::read(&file).expect("it is there"), b"Another");
        fs::remove_file(&file).expect("it is there");
        assert_reads(&image, "as it was");
        assert_eq!(fs::read(&file).expect("it was made"), b"as it was");
        fs::remove_dir_all(file.parent().expect("a folder")).expect("it is there");
        assert_refused(&image, "data again, descriptor 3: error 2");
    }
}

/// Over a pipe nothing can be read twice; compressed or not.
#[test]
fn carried_files_come_over_a_pipe_too() {
    for words in ["carry", "carry compress"] {
        let content = "as it was, ".repeat(300_000);
        let (_folder, file, image, mut saver) = begin(content.as_bytes());
        fs::remove_file(&file).expect("it is there");
        let name = "/proc/self/fd/0";
        assert_eq!(saver.save(&image, words), "saved");
        let mut cat = Command::new("cat");
        let mut cat = cat.arg(&image).stdout(Stdio::piped()).spawn().expect("cat");
        let mut command = Command::new(run::example("saver"));
        let pipe = cat.stdout.take().expect("a pipe");
        let back = start_with(command.args(["restore", name]), User::Same, pipe.into());
        let ended = back.end();
        // It reads on behind the image, and there is nothing.
        assert!(ended.is_well("back"), "{ended:?}");
        assert!(cat.wait().expect("it ends").success());
    }
}

#[test]
fn a_deleted_file_is_refused_unless_it_is_carried() {
    let (_folder, file, image, mut saver) = begin(b"kept");
    fs::remove_file(&file).expect("it is there");
    let refusal = saver.save(&image, "");
    assert!(refusal.contains("is a deleted file"), "{refusal}");
    assert_eq!(saver.save(&image, "carry"), "saved");
    let mut back = Saver::restore(&image);
    assert_eq!(back.heard(), "back");
    assert_eq!(back.ask("append ,on"), "done");
    assert_eq!(back.ask("read"), "kept,on");
    assert!(!file.exists());
}
