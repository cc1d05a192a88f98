//! Images whose files have changed since the save: the restore names them.

use crate::run::{self, Ended, User, restore, start};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// A folder with the image of a process that has ended, and the path of its open file.
fn saved(program: &str, file: &str) -> (TempDir, PathBuf) {
    let folder = run::open_folder();
    let mut command = Command::new(run::zoo());
    command
        .arg(program)
        .env("ZOO_IMAGE", folder.path().join("image"))
        .env("ZOO_FOLDER", folder.path())
        .env("ZOO_LEAVE", "1");
    let ended = start(&mut command, User::Same).end();
    assert!(ended.is_well(""), "{ended:?}");
    let file = folder.path().join(file);
    (folder, file)
}

fn brought_back(folder: &Path) -> Ended {
    start(&mut restore(&folder.join("image.1")), User::Same).end()
}

/// Asserts that the restore failed with all of these texts.
fn is_refused(ended: &Ended, texts: &[&str]) {
    let code = ended.status.code();
    let known = [vm_image::CANNOT_RESTORE, vm_image::CANNOT_GO_ON].map(Some);
    assert!(known.contains(&code), "{ended:?}");
    for text in texts {
        assert!(
            ended.errors.contains(text),
            "no '{text}' in {:?}",
            ended.errors
        );
    }
    assert_eq!(
        (ended.output.as_str(), ended.errors.lines().count()),
        ("", 1)
    );
}

#[test]
fn a_file_of_another_size_is_named() {
    let (folder, file) = saved("file_read", "read");
    fs::write(&file, "0123456789 and more").expect("it can be written");
    let ended = brought_back(folder.path());
    is_refused(
        &ended,
        &[
            &file.to_string_lossy(),
            "has changed: 19 bytes in place of 10",
        ],
    );
}

#[test]
fn a_file_with_other_content_is_named() {
    let (folder, file) = saved("file_read", "read");
    fs::write(&file, "0123456780").expect("it can be written");
    let ended = brought_back(folder.path());
    is_refused(
        &ended,
        &[
            &file.to_string_lossy(),
            "has changed: its content is different",
        ],
    );
}

#[test]
fn a_missing_file_is_named() {
    let (folder, file) = saved("file_read", "read");
    fs::remove_file(&file).expect("it can be removed");
    is_refused(
        &brought_back(folder.path()),
        &["is missing", &file.to_string_lossy()],
    );
}

#[test]
fn a_missing_folder_is_named() {
    let (folder, dir) = saved("working_directory", "a folder");
    fs::remove_dir_all(&dir).expect("it can be removed");
    is_refused(
        &brought_back(folder.path()),
        &["working directory", &dir.to_string_lossy()],
    );
}

#[test]
fn a_missing_mapped_file_is_named() {
    let (folder, file) = saved("shared_file", "shared");
    fs::remove_file(&file).expect("it can be removed");
    is_refused(
        &brought_back(folder.path()),
        &["mapped file", &file.to_string_lossy()],
    );
}

#[test]
fn a_file_with_its_content_put_back_is_accepted() {
    let (folder, file) = saved("file_read", "read");
    fs::remove_file(&file).expect("it can be removed");
    fs::write(&file, "0123456789").expect("it can be written");
    let ended = brought_back(folder.path());
    assert!(ended.is_well("ok file_read"), "{ended:?}");
}
