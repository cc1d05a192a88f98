//! A program that maps, unmaps, writes, moves and gives back memory at random while it is saved in
//! rounds, compared page by page where it is brought back.

use std::{
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Builds the program once; where it is.
fn program() -> PathBuf {
    let cargo = std::env::var("CARGO").expect("cargo runs the tests");
    let status = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--package",
            "vm-checkpoint",
            "--example",
            "rounds",
        ])
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "the program is built");
    let mut folder = std::env::current_exe().expect("this test has a path");
    folder.pop();
    folder.pop();
    folder.join("examples/rounds")
}

/// What it prints. Its descriptors are a null device and pipes: all else could not be saved.
fn output(arguments: &[&str], image: &Path) -> String {
    let mut command = Command::new(program());
    command.arg(arguments[0]).arg(image).args(&arguments[1..]);
    command.stdin(Stdio::null());
    // SAFETY: one system call. Descriptors of whoever runs the tests are not handed on.
    unsafe {
        command.pre_exec(|| {
            libc::syscall(
                libc::SYS_close_range,
                3,
                u32::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            );
            Ok(())
        });
    }
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn every_page_is_what_it_was_when_the_process_stood_still() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in 0..12 {
        let image = folder.path().join(format!("{seed}.image"));
        let seed_text = seed.to_string();
        let mut save = vec!["save", &seed_text];
        if seed % 2 == 1 {
            save.push("forked");
        }
        assert_eq!(
            output(&save, &image),
            "here: 0 differences, 5 rounds\n",
            "seed {seed}"
        );
        let back = output(&["restore"], &image);
        assert_eq!(back, "back: 0 differences, 5 rounds\n", "seed {seed}");
    }
}
