//! Saves that a signal from outside asks for.

use crate::{Saver, make_pipe, run};
use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};
use vm_checkpoint::{TRIGGER, image::Summary};

/// How long anything may take that is waited for.
const LIMIT: Duration = Duration::from_secs(60);

fn start(image: &Path, mode: &str, file: Option<&Path>) -> Saver {
    let mut command = Command::new(run::example("saver"));
    command
        .args(file)
        .env("VM_CHECKPOINT_FILE", image)
        .env("VM_CHECKPOINT_MODE", mode);
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

/// The image goes into a pipe that nobody reads yet, so the first save is surely under way.
#[test]
fn a_second_signal_leaves_the_image_of_the_first_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let part = folder.path().join("image.part");
    make_pipe(&part);
    let mut saver = start(&image, "forked", None);
    // Before the first, lest it could end for want of a reader.
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let held = rustix::fs::open(&part, flags, rustix::fs::Mode::empty()).expect("a pipe");
    saver.0.signal(TRIGGER);
    until("the first save writes", || {
        rustix::io::ioctl_fionread(&held).expect("a pipe") > 0
    });
    // A second one would empty what it finds under that name.
    let aside = folder.path().join("aside");
    fs::rename(&part, &aside).expect("it is there");
    fs::write(&part, "not touched").expect("it can be written");
    saver.0.signal(TRIGGER);
    let error = folder.path().join("image.error");
    until("the second is refused", || {
        let text = fs::read_to_string(&error).unwrap_or_default();
        text == "another save of this process is under way\n"
    });
    assert!(!image.exists());
    assert_eq!(fs::read(&part).expect("it is there"), b"not touched");
    fs::rename(&aside, &part).expect("it is there");
    let read = Summary::read(File::from(held)).expect("the image of the first is whole");
    assert_eq!(read.name, "saver");
    until("it has its name", || image.exists());
    assert_eq!(saver.ask("look"), "well");
    assert!(saver.end().status.success());
}

#[test]
fn a_signal_saves_the_content_of_files_where_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let (image, file) = (folder.path().join("image"), folder.path().join("data"));
    fs::write(&file, "carried").expect("it can be written");
    let saver = start(&image, "exit,carry", Some(&file));
    saver.0.signal(TRIGGER);
    // Only then is it told no more.
    until("it is saved", || image.exists());
    assert!(saver.end().status.success());
    fs::remove_file(&file).expect("it is there");
    let mut back = Saver::restore(&image);
    assert_eq!(back.ask("read"), "carried");
}
