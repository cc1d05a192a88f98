//! A process to be saved and restored, for tests and for a first try: `guest IMAGE [FILE [write]]`.
//!
//! The process opens the file: for reading; or, with `write`, for reading and writing, and the
//! image carries its content. The process saves itself and ends. The restored process prints a
//! line, reads a line, and ends with the number in that line as its exit code.

use std::{
    env,
    fs::{self, File},
    io,
    os::fd::{AsFd as _, RawFd},
    process::ExitCode,
};
use vm_image::{Carry, Options, Saved, save};

fn main() -> ExitCode {
    let mut words = env::args().skip(1);
    let image = words.next().expect("the path of an image");
    // Descriptors that the process inherited.
    let mut own: Vec<RawFd> = fs::read_dir("/proc/self/fd")
        .expect("a list of the open files")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    // The descriptor of the list itself is closed by now.
    own.retain(|fd| fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok());
    let (path, writes) = (words.next(), words.next().is_some());
    let open = |path| File::options().read(true).write(writes).open(path);
    let file = path.map(|path| open(path).expect("a file"));
    let image = File::create(image).expect("a new file");
    let options = Options {
        own: &own,
        carry: if writes { Carry::All } else { Carry::Nothing },
        ..Options::default()
    };
    match save(image.as_fd(), options) {
        Ok(Saved::Restored) => {}
        Ok(_) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    println!("{} is back", file.map_or("it", |_| "it with its file"));
    let mut line = String::new();
    io::stdin().read_line(&mut line).expect("text");
    ExitCode::from(line.trim().parse::<u8>().unwrap_or(0))
}
