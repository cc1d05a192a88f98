//! Zeros in images, and memory that a copy of the process writes and gives back while the process
//! runs.

use crate::{Saver, make_pipe, verify};
use std::{
    fs,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

/// Memory of the program with and without content. Bytes.
const FILLED: u64 = 32 << 20;
const ZEROS: u64 = 32 << 20;
/// The limit of all other memory: the program, its libraries and tables. Bytes.
const REST: u64 = 16 << 20;

/// Asserts that the image has the memory of the process at the save.
fn assert_good(image: &Path) {
    let summary = verify(image).expect("it is whole");
    let saved = summary.pages.expect("all was read").saved_bytes;
    assert!((FILLED..FILLED + REST).contains(&saved), "{saved} bytes");
    const { assert!(REST < ZEROS) };
    let mut back = Saver::restore(image);
    assert_eq!(back.heard(), "back");
    assert_eq!(back.ask("look"), "well");
}

/// Starts to read one image from a pipe.
fn reading(pipe: &Path) -> JoinHandle<Vec<u8>> {
    let pipe = PathBuf::from(pipe);
    thread::spawn(move || fs::read(pipe).expect("it can be read"))
}

#[test]
fn zeros_are_not_written_and_are_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pipe, image) = (folder.path().join("pipe"), folder.path().join("image"));
    make_pipe(&pipe);
    let mut saver = Saver::start(None);
    for words in ["", "forked", "rounds"] {
        assert_eq!(saver.save(&image, words), "saved");
        assert_good(&image);
    }
    for words in ["rounds", "rounds lend"] {
        let reader = reading(&pipe);
        assert_eq!(saver.save(&pipe, words), "saved");
        fs::write(&image, reader.join().expect("no panic")).expect("room");
        assert_good(&image);
    }
    assert_eq!(saver.ask("look"), "well");
}

/// Holds also for memory beside the stack of another thread.
#[test]
fn a_copy_does_not_share_zeros_with_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let mut saver = Saver::start(None);
    assert_eq!(saver.save(&image, "forked rewrite"), "saved");
    let faults: u64 = saver.ask("faults").parse().expect("a number");
    let (filled, zeros) = (FILLED >> 12, ZEROS >> 12);
    assert!(
        faults >= filled && faults < filled + zeros / 2,
        "{faults} faults for {filled} pages that a copy has, and {zeros} of zeros"
    );
    assert_good(&image);
}

#[test]
fn later_writes_of_the_process_do_not_change_the_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pipe, image) = (folder.path().join("pipe"), folder.path().join("image"));
    make_pipe(&pipe);
    let mut saver = Saver::start(None);
    for words in ["forked rewrite", "forked rewrite lend"] {
        for _ in 0..5 {
            let reader = reading(&pipe);
            assert_eq!(saver.save(&pipe, words), "saved");
            fs::write(&image, reader.join().expect("no panic")).expect("room");
            assert_good(&image);
        }
    }
    assert_eq!(saver.ask("look"), "well");
}
