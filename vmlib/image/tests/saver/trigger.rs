//! Saves that a signal from another process requests.

use crate::{Saver, run};
use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};
use vm_image::TRIGGER;

/// The time limit of each wait.
const LIMIT: Duration = Duration::from_secs(60);

fn start(image: &Path, mode: &str, file: Option<&Path>) -> Saver {
    let mut command = Command::new(run::example("saver"));
    command
        .args(file)
        .env("VM_IMAGE_FILE", image)
        .env("VM_IMAGE_MODE", mode);
    let mut saver = Saver::of(&mut command);
    assert_eq!(saver.heard(), "ready");
    saver
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        thread::yield_now();
    }
}

/// The names of the files in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<_> = entries.map(|entry| name(entry.expect("a file"))).collect();
    names.sort();
    names
}

/// The children of one shell have the same environment, and so the same file name.
#[test]
fn two_processes_with_one_image_file_do_not_mix() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let mut savers = [start(&image, "", None), start(&image, "", None)];
    for _ in 0..5 {
        savers.iter().for_each(|saver| saver.0.signal(TRIGGER));
        // A process that replies has left the signal handler.
        for saver in &mut savers {
            assert_eq!(saver.ask("look"), "well");
        }
        // The part file disappears when the image gets its name.
        until("both are saved", || names(folder.path()) == ["image"]);
        crate::verify(&image).expect("it is whole");
    }
    // With a pattern, each process has a file of its own.
    let pattern = folder.path().join("of-%p");
    let savers = [start(&pattern, "", None), start(&pattern, "", None)];
    savers.iter().for_each(|saver| saver.0.signal(TRIGGER));
    for saver in &savers {
        let own = folder.path().join(format!("of-{}", saver.0.id()));
        until("it has its name", || own.exists());
        crate::verify(&own).expect("it is whole");
    }
}

/// Another user with access to the folder has put links at the names of the files.
#[test]
fn no_link_is_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (image, other) = (folder.path().join("image"), folder.path().join("other"));
    let error = folder.path().join("image.error");
    fs::write(&other, "not touched").expect("room");
    for name in ["image", "image.part", "image.error"] {
        std::os::unix::fs::symlink(&other, folder.path().join(name)).expect("a link");
    }
    let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_file());
    let mut saver = start(&image, "", None);
    if saver.ask("poison") == "done" {
        saver.0.signal(TRIGGER);
        until("it says why", || is_file(&error));
        let why = fs::read_to_string(&error).expect("a reason");
        assert!(why.starts_with("reading the memory at 0x"), "{why}");
        assert_eq!(saver.ask("cure"), "done");
    }
    saver.0.signal(TRIGGER);
    until("it is saved", || is_file(&image));
    crate::verify(&image).expect("it is whole");
    assert!(!is_file(&error));
    assert_eq!(fs::read_to_string(&other).expect("a file"), "not touched");
    assert_eq!(names(folder.path()), ["image", "image.part", "other"]);
}

#[test]
fn a_signal_saves_the_content_of_files_in_mode_carry() {
    let folder = tempfile::tempdir().expect("a folder");
    let (image, file) = (folder.path().join("image"), folder.path().join("data"));
    fs::write(&file, "carried").expect("it can be written");
    let saver = start(&image, "exit,carry", Some(&file));
    saver.0.signal(TRIGGER);
    // The process reads its input until the image is there.
    until("it is saved", || image.exists());
    assert!(saver.end().status.success());
    fs::remove_file(&file).expect("it is there");
    let mut back = Saver::restore(&image);
    assert_eq!(back.ask("read"), "carried");
}
