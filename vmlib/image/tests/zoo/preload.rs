//! C programs without a call of the library, which is preloaded and saves them on a signal.

use crate::{
    native::compiled_alone,
    run::{self, Running, User, restore, start, start_with},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use vm_image::TRIGGER;

/// The time limit for an image.
const LIMIT: Duration = Duration::from_secs(60);

fn preloaded(program: &Path, image: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", run::built().join("libvm_image.so"))
        .env("VM_IMAGE_FILE", image);
    command
}

/// Saves a process, renames its image, and ends the process.
fn saved(running: Running, image: &Path) -> PathBuf {
    running.signal(TRIGGER);
    let began = Instant::now();
    while !image.exists() {
        let error = fs::read_to_string(image.with_extension("error")).unwrap_or_default();
        assert!(error.is_empty(), "{error}");
        assert!(began.elapsed() < LIMIT, "no image within {LIMIT:?}");
        thread::sleep(Duration::from_millis(1));
    }
    let taken = image.with_extension("taken");
    fs::rename(image, &taken).expect("it is there");
    taken
}

#[test]
fn a_malloc_that_must_not_be_called_before_main() {
    let folder = run::open_folder();
    let image = folder.path().join("image");
    let program = compiled_alone(folder.path(), "early_malloc.c", &["-rdynamic"]);
    let mut command = preloaded(&program, &image);
    let mut running = start_with(&mut command, User::Same, Stdio::piped());
    assert_eq!(running.line().as_deref(), Some("ready\n"));
    let image = saved(running, &image);
    // The library is preloaded once more for the restore.
    let mut back = start_with(&mut restore(&image), User::Same, Stdio::piped());
    back.say("on");
    assert_eq!(back.line().as_deref(), Some("on\n"));
    let ended = back.end();
    assert!(ended.is_well("on\nend"), "{ended:?}");
}

/// Checks that each thread resumes, whatever it did when it was saved.
fn check_loader(threads: usize) {
    const SAVES: usize = 8;
    let folder = run::open_folder();
    let image = folder.path().join("image");
    let counter = compiled_alone(folder.path(), "counter.c", &["-shared", "-fPIC"]);
    let libraries: Vec<PathBuf> = (0..threads)
        .map(|index| {
            let library = folder.path().join(format!("counter{index}.so"));
            fs::copy(&counter, &library).expect("room");
            library
        })
        .collect();
    let program = compiled_alone(folder.path(), "loader.c", &["-ldl"]);
    let mut running = start(preloaded(&program, &image).args(&libraries), User::Same);
    for _ in 0..SAVES {
        let mut lines = BTreeMap::<String, u32>::new();
        while lines.len() < threads || lines.values().any(|count| *count < 2) {
            let line = running.line().expect("it goes on");
            let name = line.split(' ').next().unwrap_or_default();
            *lines.entry(name.to_owned()).or_default() += 1;
        }
        let image = saved(running, &image);
        running = start(&mut restore(&image), User::Same);
    }
}

#[test]
fn a_thread_within_the_loader() {
    check_loader(1);
}

#[test]
fn threads_within_the_loader() {
    check_loader(3);
}
