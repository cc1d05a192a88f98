//! A lock that another process has taken since the save.

use crate::run::{self, User, start};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::{fs::File, process::Command};

/// Saves a program that holds locks, and ends it. Another process then takes one of the locks.
/// Returns the error of the restore.
fn taken(name: &str, lock: impl Fn(&File)) -> String {
    let folder = run::open_folder();
    let image = folder.path().join("image");
    let mut command = Command::new(run::zoo());
    command
        .arg("locks_on_files")
        .env("ZOO_IMAGE", &image)
        .env("ZOO_FOLDER", folder.path())
        .env("ZOO_LEAVE", "1");
    let ended = start(&mut command, User::Same).end();
    assert!(ended.is_well(""), "{ended:?}");
    let path = folder.path().join(name);
    let file = File::options().read(true).write(true).open(path);
    let file = file.expect("it is there");
    lock(&file);
    let restore = || start(&mut run::restore(&image.with_extension("1")), User::Same).end();
    let ended = restore();
    assert_eq!(
        ended.status.code(),
        Some(vm_image::CANNOT_GO_ON),
        "{ended:?}"
    );
    assert_eq!(ended.output, "", "it went on");
    drop(file);
    let after = restore();
    assert!(after.is_well("ok locks_on_files"), "{after:?}");
    ended.errors
}

#[test]
fn a_lock_taken_since_the_save_is_not_taken_away() {
    let errors = taken("shared", |file| {
        flock(file, FlockOperation::NonBlockingLockExclusive).expect("it is free");
    });
    let expected = "was locked, and another process has locked it since";
    assert!(
        errors.contains("/shared, descriptor") && errors.contains(expected),
        "{errors}"
    );
    let errors = taken("ranges", |file| {
        fcntl_lock(file, FlockOperation::NonBlockingLockExclusive).expect("it is free");
    });
    let expected = format!("process {} has locked it since", std::process::id());
    assert!(
        errors.contains("/ranges, descriptor") && errors.contains(&expected),
        "{errors}"
    );
}
