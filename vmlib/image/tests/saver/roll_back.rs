//! Files that a process can write, rolled back to their content at the save.

use crate::{Saver, broken::Small, run, verify};
use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
};
use vm_image::CANNOT_GO_ON;

/// A folder, and a process with open files there, given as for `saver`: `write=a`, `read=b`, `c`.
struct Case {
    folder: tempfile::TempDir,
    saver: Saver,
}

impl Case {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(run::example("saver"));
        for (file, content) in files {
            let (way, name) = file.split_once('=').unwrap_or(("", file));
            let path = folder.path().join(name);
            fs::write(&path, content).expect("it can be written");
            let word = if way.is_empty() { "" } else { "=" };
            command.arg(format!("{way}{word}{}", path.display()));
        }
        let mut saver = Saver::of(&mut command);
        assert_eq!(saver.heard(), "ready");
        Case { folder, saver }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn image(&self) -> PathBuf {
        self.path("image")
    }

    fn save(&mut self, words: &str) {
        let image = self.image();
        assert_eq!(self.saver.save(&image, words), "saved");
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).expect("it can be written");
    }

    #[track_caller]
    fn assert_holds(&self, name: &str, content: &[u8]) {
        let found = fs::read(self.path(name)).expect("it is there");
        assert!(found == content, "{name} has {} bytes", found.len());
    }

    fn rolled_back(&self) -> Saver {
        let mut back = Saver::roll_back(&self.image());
        assert_eq!(back.heard(), "back");
        back
    }

    #[track_caller]
    fn assert_refused(&self, why: &str) {
        let ended = Saver::roll_back(&self.image()).end();
        assert_eq!(ended.status.code(), Some(CANNOT_GO_ON), "{ended:?}");
        assert!(ended.errors.contains(why), "{ended:?}, not '{why}'");
    }
}

/// Content without repetition that is longer than one comparison.
fn long(seed: u32) -> Vec<u8> {
    let word = |at: u32| (at ^ seed).wrapping_mul(0x9e37_79b9).to_le_bytes();
    (0..300_000u32).flat_map(word).collect()
}

#[test]
fn a_grown_log_is_truncated_whether_it_is_carried_or_not() {
    for words in ["", "carry", "carry=3", "carry rounds", "carry=0+0"] {
        let mut case = Case::new(&[("log", b"one,")]);
        assert_eq!(case.saver.ask("append two,"), "done");
        case.save(words);
        assert_eq!(case.saver.ask("append three,"), "done");
        let mut back = case.rolled_back();
        case.assert_holds("log", b"one,two,");
        assert_eq!(back.ask("append four"), "done");
        case.assert_holds("log", b"one,two,four");
    }
}

#[test]
fn a_file_that_was_empty_is_empty_again() {
    let mut case = Case::new(&[("log", b"")]);
    case.save("");
    case.write("log", b"something");
    case.rolled_back();
    case.assert_holds("log", b"");
}

#[test]
fn a_rewritten_truncated_or_removed_file_gets_its_content() {
    let content = long(1);
    let mut grown = long(2);
    grown.extend_from_slice(b"and more");
    let mut at_its_end = content.clone();
    *at_its_end.last_mut().expect("there are some") ^= 1;
    let beginning = content[..300_000].to_vec();
    for now in [
        long(2),
        grown,
        at_its_end,
        beginning,
        Vec::new(),
        b"short".to_vec(),
    ] {
        let mut case = Case::new(&[("log", b"one,"), ("write=state", &content)]);
        case.save("carry=2000000+0");
        case.write("state", &now);
        case.rolled_back();
        case.assert_holds("state", &content);
        fs::remove_file(case.path("state")).expect("it is there");
        case.rolled_back();
        case.assert_holds("state", &content);
        case.assert_holds("log", b"one,");
    }
}

/// The file stays the same file for other processes and under other names.
#[test]
fn a_file_is_rolled_back_in_place() {
    let mut case = Case::new(&[("write=state", b"as it was")]);
    case.save("carry");
    case.write("state", b"anything");
    fs::hard_link(case.path("state"), case.path("other")).expect("a second name");
    case.rolled_back();
    case.assert_holds("other", b"as it was");
}

#[test]
fn a_process_resumes_at_its_position_in_the_file() {
    let mut case = Case::new(&[("write=state", b"as it was")]);
    case.save("carry");
    assert_eq!(case.saver.ask("append AS_IT_IS_NOW"), "done");
    assert_eq!(case.saver.ask("at"), "12");
    let mut back = case.rolled_back();
    assert_eq!(back.ask("at"), "0");
    case.assert_holds("state", b"as it was");
    assert_eq!(back.ask("append As"), "done");
    assert_eq!(back.ask("read"), "As it was");
}

#[test]
fn holes_stay_holes() {
    const LEN: u64 = 40 << 20;
    let mut case = Case::new(&[("write=state", b"")]);
    let file = fs::File::options().write(true).open(case.path("state"));
    let file = file.expect("a file");
    file.set_len(LEN).expect("it can grow");
    file.write_all_at(b"in the midst", LEN / 2)
        .expect("it can be written");
    let before = fs::read(case.path("state")).expect("it is there");
    case.save("carry");
    file.write_all_at(b"elsewhere", LEN / 4)
        .expect("it can be written");
    file.set_len(LEN / 3).expect("it can be cut");
    case.rolled_back();
    case.assert_holds("state", &before);
    let metadata = fs::metadata(case.path("state")).expect("it is there");
    let blocks = std::os::unix::fs::MetadataExt::blocks(&metadata);
    assert!(blocks * 512 < LEN / 4, "{blocks} blocks");
}

/// All files are compared before the first one is changed.
#[test]
fn a_refused_rollback_has_changed_nothing() {
    let mut case = Case::new(&[
        ("log", b"one,"),
        ("write=state", b"as it was"),
        ("write=large", b"twenty bytes or more"),
        ("read=input", b"for reading"),
    ]);
    case.save("carry=10+0");
    assert_eq!(case.saver.ask("append two,"), "done");
    case.write("state", b"another");
    let unchanged = |case: &Case| {
        case.assert_holds("log", b"one,two,");
        case.assert_holds("state", b"another");
    };
    let no_copy = "the image has no copy of it to roll it back to: restore its former content";
    case.write("large", b"twenty bytes, no more");
    case.assert_refused(&format!(
        "large has changed: its content is different; {no_copy}"
    ));
    unchanged(&case);
    case.write("large", b"short");
    case.assert_refused(&format!(
        "large has changed: 5 bytes in place of 20; {no_copy}"
    ));
    unchanged(&case);
    fs::remove_file(case.path("large")).expect("it is there");
    case.assert_refused(
        "large is missing, which was open as descriptor 5, and its 20 bytes are not",
    );
    case.assert_refused("which carries up to 10 bytes of open files: put a copy there");
    unchanged(&case);
    fs::create_dir(case.path("large")).expect("a folder");
    case.assert_refused("descriptor 5: error 21");
    unchanged(&case);
    fs::remove_dir(case.path("large")).expect("it is there");
    case.write("large", b"twenty bytes or more");
    // A file that the process only reads is not rolled back.
    case.write("input", b"for reading, longer");
    case.assert_refused("input has changed: 19 bytes in place of 11; restore its former content");
    unchanged(&case);
    case.write("input", b"for reading");
    case.rolled_back();
    case.assert_holds("log", b"one,");
    case.assert_holds("state", b"as it was");
}

#[test]
fn a_file_that_is_only_read_is_not_rolled_back_even_if_carried() {
    let mut case = Case::new(&[("log", b"one,"), ("read=input", b"for reading")]);
    case.save("carry");
    case.write("log", b"one,two,");
    case.write("input", b"for writing");
    case.assert_refused("input has changed: its content is different; restore its former content");
    case.assert_holds("input", b"for writing");
    case.assert_holds("log", b"one,two,");
    fs::remove_file(case.path("input")).expect("it is there");
    case.rolled_back();
    case.assert_holds("input", b"for reading");
}

#[test]
fn rewritable_files_are_carried_first_and_have_a_limit_of_their_own() {
    let mut case = Case::new(&[
        ("read=input", b"0123456789"),
        ("log", b"01234"),
        ("write=state", b"0123456789"),
        ("write=table", b"0123456789"),
    ]);
    let mut carried = |words: &str| {
        case.save(words);
        let summary = verify(&case.image()).expect("it is whole");
        let carried = summary.files.iter().filter(|file| file.carried);
        carried.map(|file| file.fd).collect::<Vec<_>>()
    };
    assert_eq!(carried("carry=20+15"), [3, 4, 5, 6]);
    assert_eq!(carried("carry=19+14"), [3, 5]);
    assert_eq!(carried("carry=9+9"), [4]);
    assert!(carried("carry=0+0").is_empty());
}

#[test]
fn a_lock_of_another_process_is_found_before_any_change() {
    let mut case = Case::new(&[("log", b"one,"), ("write=state", b"as it was")]);
    assert_eq!(case.saver.ask("lock"), "done");
    case.save("carry");
    let Case { folder, saver } = case;
    saver.end();
    let saver = Saver::start(None);
    let case = Case { folder, saver };
    case.write("log", b"one,two,");
    let other = fs::File::open(case.path("state")).expect("it is there");
    other.lock().expect("it is free");
    case.assert_refused("was locked, and another process has locked it since");
    case.assert_holds("log", b"one,two,");
    other.unlock().expect("it was locked");
    let _back = case.rolled_back();
    case.assert_holds("log", b"one,");
    let taken = other.try_lock();
    assert!(matches!(taken, Err(fs::TryLockError::WouldBlock)));
}

/// The disk gets full in the middle of a rollback, as if the power had failed.
#[test]
fn an_interrupted_rollback_is_completed_the_next_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = folder.path().join("small");
    fs::create_dir(&inside).expect("a folder");
    let Some(small) = Small::mount(&inside) else {
        return println!("note: this user cannot mount a file system");
    };
    let (state, filler) = (small.0.join("state"), small.0.join("filler"));
    let content = long(1);
    fs::write(&state, &content).expect("there is room");
    let image = folder.path().join("image");
    let mut command = Command::new(run::example("saver"));
    let mut saver = Saver::of(command.arg(format!("write={}", state.display())));
    assert_eq!(saver.heard(), "ready");
    assert_eq!(saver.save(&image, "carry"), "saved");
    assert!(saver.end().status.success());
    fs::write(&state, &long(2)[..600_000]).expect("there is room");
    // Fills the disk.
    fs::write(&filler, vec![0; 100 << 20]).expect_err("there is no room");
    let ended = Saver::roll_back(&image).end();
    assert_eq!(ended.status.code(), Some(CANNOT_GO_ON), "{ended:?}");
    let why = format!("rolling {} back, descriptor 3: error 28", state.display());
    assert!(ended.errors.contains(&why), "{ended:?}");
    assert!(fs::read(&state).expect("it is there") != content);
    fs::remove_file(&filler).expect("it is there");
    assert_eq!(Saver::roll_back(&image).heard(), "back");
    assert!(fs::read(&state).expect("it is there") == content);
}

/// Two tasks that have the same files open roll them back at the same time.
#[test]
fn processes_can_roll_the_same_files_back_at_once() {
    let content = long(1);
    let files: [(&str, &[u8]); 3] = [
        ("log", b"one,"),
        ("write=state", &content),
        ("write=gone", &content),
    ];
    let mut case = Case::new(&files);
    case.save("carry");
    for _ in 0..5 {
        case.write("log", b"one,two,");
        case.write("state", &long(2));
        // The file may not exist any more.
        let _ = fs::remove_file(case.path("gone"));
        let mut all = [(); 4].map(|()| Saver::roll_back(&case.image()));
        for back in &mut all {
            assert_eq!(back.heard(), "back");
        }
        case.assert_holds("log", b"one,");
        case.assert_holds("state", &content);
        case.assert_holds("gone", &content);
    }
}

/// Two descriptors, one for reading and one for writing, of one file, which the image carries once.
#[test]
fn a_file_that_is_open_twice_is_rolled_back_for_both() {
    let mut case = Case::new(&[("read=state", b"as it was"), ("write=state", b"as it was")]);
    case.save("carry");
    let second = |case: &Case| {
        let mut back = case.rolled_back();
        assert_eq!(back.ask("read"), "as it was");
        case.assert_holds("state", b"as it was");
    };
    case.write("state", b"something else");
    second(&case);
    fs::remove_file(case.path("state")).expect("it is there");
    second(&case);
}

/// A folder that does not exist: no file can be made in it.
#[test]
fn a_missing_folder_is_found_before_any_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).expect("a folder");
    let (log, state) = (folder.path().join("log"), inside.join("state"));
    for path in [&log, &state] {
        fs::write(path, "one,").expect("it can be written");
    }
    let mut saver = Saver::of(Command::new(run::example("saver")).args([&log, &state]));
    assert_eq!(saver.heard(), "ready");
    let image: &Path = &folder.path().join("image");
    assert_eq!(saver.save(image, "carry"), "saved");
    fs::write(&log, "one,two,").expect("it can be written");
    fs::remove_dir_all(&inside).expect("it is there");
    let ended = Saver::roll_back(image).end();
    let why = format!("the folder of {} is missing here: make it", state.display());
    assert!(ended.errors.contains(&why), "{ended:?}");
    assert_eq!(fs::read(&log).expect("it is there"), b"one,two,");
}
