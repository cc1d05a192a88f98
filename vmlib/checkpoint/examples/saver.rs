//! A process that saves itself as it is told, for tests: `saver [FILE]...`; `saver restore IMAGE`
//! brings one back. It opens the files for reading and appending, and reads lines; each is answered:
//!
//! `save PATH [forked] [rounds] [compress] [carry[=BYTES]] [checked=BYTES]
//! [folders=HERE:THERE]`: `saved`, where it is brought back `back`, or why not. A path that is that of a socket is connected to. `limit BYTES`: how long files may
//! become. `append TEXT`, `read`: what the first file says. `look`: whether its memory is as it was.

use std::{
    env,
    fs::{File, OpenOptions},
    hint::black_box,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            fs::{FileExt as _, FileTypeExt as _},
            net::UnixStream,
        },
    },
    thread,
};
use vm_checkpoint::{
    Carry, Folders, Options, SaveError, Saved, Until, Way, restore, save, save_in_rounds,
};

/// Words of memory, so that an image is much longer than a pipe.
const WORDS: usize = 4 << 20;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "restore") {
        let image = File::open(&arguments[1]).expect("the image can be opened");
        let error = restore(image.as_fd(), Way::default()).expect_err("it does not return");
        panic!("{error}");
    }
    // As in programs that are not written in Rust.
    // SAFETY: it sets an action.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let options = OpenOptions::new().read(true).append(true).to_owned();
    let files = arguments
        .iter()
        .map(|path| options.open(path).expect("a file"));
    let files: Vec<File> = files.collect();
    let memory: Vec<u64> = (0..WORDS as u64)
        .map(|at| at.wrapping_mul(0x9e37_79b9))
        .collect();
    let memory = black_box(memory);
    // A second thread, which has to be stopped and go on.
    thread::spawn(|| {
        loop {
            thread::park();
        }
    });
    println!("ready");
    for line in io::stdin().lines() {
        let line = line.expect("text");
        let words: Vec<&str> = line.split(' ').collect();
        let file = || files.first().expect("a file was named");
        match words[0] {
            "save" => println!("{}", answer(&words[1..])),
            "limit" => limit(words[1].parse().expect("a number")),
            "append" => {
                io::Write::write_all(&mut file(), words[1].as_bytes()).expect("it can be written");
                println!("done");
            }
            "read" => {
                let len = file().metadata().expect("it is open").len();
                let mut bytes = vec![0; len as usize];
                file().read_exact_at(&mut bytes, 0).expect("it can be read");
                println!("{}", String::from_utf8_lossy(&bytes));
            }
            _ => {
                let is_well =
                    |(at, word): (usize, &u64)| *word == (at as u64).wrapping_mul(0x9e37_79b9);
                assert!(memory.iter().enumerate().all(is_well));
                println!("well");
            }
        }
    }
}

fn answer(words: &[&str]) -> String {
    match saved(words) {
        Ok(Saved::Back) => "back".to_owned(),
        Ok(_) => "saved".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn saved(words: &[&str]) -> Result<Saved, SaveError> {
    let image = target(words[0]);
    let has = |word| words.contains(&word);
    let number = |name| {
        let word = words.iter().find_map(|word| word.strip_prefix(name));
        word.map(|number| number.parse().expect("a number"))
    };
    let folders = words.iter().find_map(|word| {
        let (here, there) = word.strip_prefix("folders=")?.split_once(':')?;
        Some((here.to_owned(), there.to_owned()))
    });
    let options = Options {
        forked: has("forked"),
        compress: has("compress"),
        carry: match number("carry=") {
            Some(bytes) => Carry::Fitting(bytes),
            None if has("carry") => Carry::All,
            None => Carry::Nothing,
        },
        folders: folders.as_ref().map(|(here, there)| Folders {
            here: here.as_bytes(),
            there: there.as_bytes(),
        }),
        checked_max: number("checked=").unwrap_or(u64::MAX),
        ..Options::default()
    };
    let saved = match has("rounds") {
        true => save_in_rounds(image.as_fd(), options, Until::default())?.0,
        false => save(image.as_fd(), options)?,
    };
    match saved {
        Saved::Underway(writer) => {
            let freeze = writer.freeze();
            writer.finish()?;
            Ok(Saved::Whole { bytes: 0, freeze })
        }
        saved => Ok(saved),
    }
}

/// Where the image goes.
fn target(path: &str) -> OwnedFd {
    let is_socket = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    match is_socket {
        true => UnixStream::connect(path).expect("someone listens").into(),
        false => File::create(path).expect("it can be written").into(),
    }
}

fn limit(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the kernel reads it.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    println!("done");
}
