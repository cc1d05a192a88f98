//! Open files of a process: compared at the restore, and carried in the image.

use crate::{
    Saver, make_pipe,
    run::{self, User, start_with},
    verify,
};
use std::{
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};
use vm_image::CANNOT_GO_ON;

/// A folder with a file, and a process that has the file open.
fn begin(content: &[u8]) -> (tempfile::TempDir, PathBuf, PathBuf, Saver) {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).expect("a folder");
    let (file, image) = (inside.join("data"), folder.path().join("image"));
    fs::write(&file, content).expect("it can be written");
    let saver = Saver::start(Some(&file));
    (folder, file, image, saver)
}

/// Asserts that the process cannot resume, for this reason.
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
fn a_log_that_has_only_grown_is_continued() {
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
        "data has changed: its content is different; restore its former content",
    );
    fs::write(&file, "one,two").expect("it can be written");
    assert_refused(
        &image,
        "data has changed: 7 bytes in place of 8; restore its former content",
    );
}

#[test]
fn all_of_a_file_is_compared_unless_the_option_says_less() {
    let mut content = vec![b'.'; 20 << 20];
    let (_folder, file, image, mut saver) = begin(&content);
    assert_eq!(saver.save(&image, ""), "saved");
    let part = image.with_extension("part");
    assert_eq!(saver.save(&part, "checked=5000000"), "saved");
    *content.last_mut().expect("there are some") = b'!';
    fs::write(&file, &content).expect("it can be written");
    assert_refused(&image, "its content is different");
    assert_eq!(Saver::restore(&part).heard(), "back");
    content[4_999_999] = b'!';
    fs::write(&file, &content).expect("it can be written");
    assert_refused(&part, "its content is different");
}

#[test]
fn a_missing_carried_file_is_made_and_an_existing_one_never_overwritten() {
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
        // The file exists and has only grown.
        assert_reads(&image, "as it was,andmore");
        fs::write(&file, "Another").expect("it can be written");
        assert_refused(&image, "or remove it: then it is made from the image");
        assert_eq!(fs::read(&file).expect("it is there"), b"Another");
        fs::remove_file(&file).expect("it is there");
        assert_reads(&image, "as it was");
        assert_eq!(fs::read(&file).expect("it was made"), b"as it was");
        fs::remove_dir_all(file.parent().expect("a folder")).expect("it is there");
        let why = format!("the folder of {} is missing here: make it", file.display());
        assert_refused(&image, &why);
    }
}

/// A log that the process left behind when it moved to another host, and finds again when it moves
/// back.
#[test]
fn a_carried_log_that_is_behind_gets_the_rest() {
    for before in ["one,", "", "one,two,"] {
        let (_folder, file, image, mut saver) = begin(b"one,two,");
        assert_eq!(saver.save(&image, "carry"), "saved");
        fs::write(&file, before).expect("it can be written");
        let mut back = Saver::restore(&image);
        assert_eq!(back.heard(), "back");
        assert_eq!(back.ask("append three"), "done");
        assert_eq!(fs::read(&file).expect("it is there"), b"one,two,three");
        fs::write(&file, "two,").expect("it can be written");
        assert_refused(&image, "data has changed: 4 bytes in place of 8");
        assert_eq!(fs::read(&file).expect("it is there"), b"two,");
    }
}

/// The other host has the user's files in another folder.
#[test]
fn files_below_a_folder_are_opened_below_another_one() {
    let (folder, file, image, mut saver) = begin(b"one,");
    let inside = file.parent().expect("a folder").to_owned();
    let other = folder.path().join("other");
    fs::create_dir(&other).expect("a folder");
    let words = format!("carry folders={}:{}", inside.display(), other.display());
    assert_eq!(saver.save(&image, &words), "saved");
    assert_eq!(saver.ask("append here"), "done");
    let mut back = Saver::restore(&image);
    assert_eq!(back.heard(), "back");
    assert_eq!(back.ask("append there"), "done");
    assert_eq!(fs::read(&file).expect("it is there"), b"one,here");
    assert_eq!(
        fs::read(other.join("data")).expect("it was made"),
        b"one,there"
    );
    // A name that only begins like the folder is not below it.
    let words = format!(
        "carry folders={}:{}",
        folder.path().join("insi").display(),
        other.display()
    );
    assert_eq!(saver.save(&image, &words), "saved");
    let mut back = Saver::restore(&image);
    assert_eq!(back.heard(), "back");
    assert_eq!(back.ask("read"), "one,here");
}

/// Files are carried in the order of descriptors, as long as they fit.
#[test]
fn as_many_files_are_carried_as_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let names = ["a", "b", "c"].map(|name| folder.path().join(name));
    for (name, len) in names.iter().zip([10, 20, 5]) {
        fs::write(name, vec![b'.'; len]).expect("it can be written");
    }
    let mut saver = Saver::of(Command::new(run::example("saver")).args(&names));
    assert_eq!(saver.heard(), "ready");
    let mut carried = |bytes: u64| {
        assert_eq!(saver.save(&image, &format!("carry={bytes}")), "saved");
        let summary = verify(&image).expect("it is whole");
        let carried = summary.files.iter().filter(|file| file.carried);
        carried.map(|file| file.fd).collect::<Vec<_>>()
    };
    assert_eq!(carried(35), [3, 4, 5]);
    assert_eq!(carried(34), [3, 4]);
    assert_eq!(carried(29), [3, 5]);
    assert_eq!(carried(9), [5]);
    assert!(carried(0).is_empty());
    assert_eq!(carried(15), [3, 5]);
    fs::remove_file(&names[0]).expect("it is there");
    fs::remove_file(&names[2]).expect("it is there");
    assert_eq!(Saver::restore(&image).heard(), "back");
    assert!(names[0].exists() && names[2].exists());
    fs::remove_file(&names[1]).expect("it is there");
    let why = "b is missing, which was open as descriptor 4, and its 20 bytes are not in the image, \
               which carries up to 15 bytes of open files: put a copy there";
    assert_refused(&image, why);
}

#[test]
fn a_missing_file_or_folder_is_named_with_the_remedy() {
    let (_folder, file, image, mut saver) = begin(b"as it was");
    assert_eq!(saver.save(&image, ""), "saved");
    fs::remove_file(&file).expect("it is there");
    let why = "data is missing, which was open as descriptor 3: put a copy there";
    assert_refused(&image, why);

    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let inside = folder
        .path()
        .canonicalize()
        .expect("a folder")
        .join("inside");
    fs::create_dir(&inside).expect("a folder");
    let mut saver = Saver::of(Command::new(run::example("saver")).current_dir(&inside));
    assert_eq!(saver.heard(), "ready");
    assert_eq!(saver.save(&image, ""), "saved");
    assert_eq!(Saver::restore(&image).heard(), "back");
    fs::remove_dir(&inside).expect("it is empty");
    let (inside, missing) = (inside.display(), "is missing here: make it first");
    assert_refused(&image, &format!("its working directory {inside} {missing}"));
}

/// A deleted file cannot be restored otherwise, so it comes first.
#[test]
fn a_deleted_file_has_to_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let names = ["a", "b"].map(|name| folder.path().join(name));
    for name in &names {
        fs::write(name, "kept").expect("it can be written");
    }
    let mut saver = Saver::of(Command::new(run::example("saver")).args(&names));
    assert_eq!(saver.heard(), "ready");
    fs::remove_file(&names[1]).expect("it is there");
    let refusal = saver.save(&image, "carry=3");
    let wanted = "descriptor 4 is a deleted file: 4 bytes, with room for 3";
    assert!(refusal.contains(wanted), "{refusal}");
    assert_eq!(saver.save(&image, "carry=4"), "saved");
    let summary = verify(&image).expect("it is whole");
    let carried = summary.files.iter().filter(|file| file.carried);
    assert_eq!(carried.map(|file| file.fd).collect::<Vec<_>>(), [4]);
    assert_eq!(Saver::restore(&image).heard(), "back");
}

/// Another process writes into the carried file while the image is written. Growth is harmless.
#[test]
fn a_file_that_grows_during_the_save_is_carried_with_its_old_length() {
    let content = vec![b'.'; 8 << 20];
    for grows in [true, false] {
        let (folder, file, image, mut saver) = begin(&content);
        let pipe = folder.path().join("pipe");
        make_pipe(&pipe);
        let (from, into, other) = (pipe.clone(), image.clone(), file.clone());
        let reader = thread::spawn(move || {
            let mut pipe = fs::File::open(from).expect("a pipe");
            let mut bytes = vec![0; 3 << 20];
            // In the middle of the file's content.
            pipe.read_exact(&mut bytes).expect("an image comes");
            let mut options = fs::OpenOptions::new();
            let mut other = options
                .write(true)
                .append(grows)
                .open(other)
                .expect("a file");
            other.write_all(b"!").expect("it can be written");
            pipe.read_to_end(&mut bytes).expect("the rest comes");
            fs::write(into, bytes).expect("an image");
        });
        let answer = saver.save(&pipe, "carry");
        reader.join().expect("it has read");
        if !grows {
            let wanted = "the file at descriptor 3 changed while it was saved";
            assert!(answer.contains(wanted), "{answer}");
            continue;
        }
        assert_eq!(answer, "saved");
        assert_eq!(Saver::restore(&image).heard(), "back");
        fs::remove_file(&file).expect("it is there");
        assert_eq!(Saver::restore(&image).heard(), "back");
        assert!(fs::read(&file).expect("it was made") == content);
    }
}

/// Through a pipe, with and without compression.
#[test]
fn an_image_with_carried_files_can_be_read_from_a_pipe() {
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
        // The restored process reads behind the image, and finds the end.
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
