//! Saves that fail halfway: the process gets the reason, runs on, and can be saved again. The bytes
//! that were written are not a whole image.

use crate::{Saver, make_pipe, verify};
use std::{
    ffi::CString,
    fs::{self, File},
    io::{Read, Write as _},
    os::unix::{ffi::OsStrExt as _, net::UnixListener},
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};
use vm_image::{
    CANNOT_RESTORE,
    format::{ImageError, ImageReader, PAGES},
    inspect::Summary,
};

/// The modes of a save.
const WAYS: [&str; 3] = ["", "forked", "rounds"];
/// The number of bytes that a reader reads before it closes: more than the first sections, less
/// than the memory.
const READ: usize = 3 << 20;

/// Asserts that the process is unchanged, and can be saved and restored.
fn assert_unharmed(saver: &mut Saver, folder: &Path) {
    assert_eq!(saver.ask("look"), "well");
    let image = folder.join("good");
    assert_eq!(saver.save(&image, ""), "saved");
    verify(&image).expect("it is whole");
    let mut back = Saver::restore(&image);
    assert_eq!(back.heard(), "back");
    assert_eq!(back.ask("look"), "well");
}

/// Asserts that a file is not a whole image. Two workers write a file at once, so missing bytes may
/// be anywhere.
fn assert_no_image(image: &Path) {
    match verify(image) {
        Err(ImageError::Truncated { .. } | ImageError::Damaged { .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// A file system of 8 MiB, which is unmounted when the value is dropped.
pub struct Small(pub PathBuf);

impl Small {
    /// `None` if this user may not mount.
    pub fn mount(folder: &Path) -> Option<Self> {
        let path = CString::new(folder.as_os_str().as_bytes()).expect("a path");
        let kind = c"tmpfs".as_ptr();
        let size = c"size=8m".as_ptr().cast();
        // SAFETY: all texts are ended by NUL.
        let made = unsafe { libc::mount(kind, path.as_ptr(), kind, 0, size) };
        (made == 0).then(|| Small(folder.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let path = CString::new(self.0.as_os_str().as_bytes()).expect("a path");
        // SAFETY: the path is ended by NUL.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = folder.path().join("small");
    fs::create_dir(&inside).expect("a folder");
    let Some(small) = Small::mount(&inside) else {
        return println!("note: this user cannot mount a file system");
    };
    let mut saver = Saver::start(None);
    for way in WAYS {
        let image = small.0.join("image");
        let error = saver.save(&image, way);
        assert!(error.contains("No space left on device"), "{way}: {error}");
        assert_no_image(&image);
        assert_unharmed(&mut saver, folder.path());
    }
    assert!(saver.end().status.success());
}

/// No byte can be written.
#[test]
fn a_full_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut saver = Saver::start(None);
    for way in WAYS {
        let error = saver.save(Path::new("/dev/full"), way);
        assert!(error.contains("No space left on device"), "{way}: {error}");
    }
    assert_unharmed(&mut saver, folder.path());
}

/// The kernel also sends a signal for this error, which must not reach the program.
#[test]
fn the_limit_on_the_size_of_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut saver = Saver::start(None);
    for way in WAYS {
        let image = folder.path().join("image");
        assert_eq!(saver.ask("limit 5000001"), "done");
        let error = saver.save(&image, way);
        assert!(error.contains("File too large"), "{way}: {error}");
        assert_eq!(saver.ask(&format!("limit {}", libc::RLIM_INFINITY)), "done");
        assert_no_image(&image);
        assert_unharmed(&mut saver, folder.path());
    }
    assert!(saver.end().status.success());
}

/// Simulates a page that the hardware has lost.
#[test]
fn memory_that_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    let mut saver = Saver::start(None);
    for way in ["", "forked", "rounds", "compress", "rounds forked"] {
        if saver.ask("poison") != "done" {
            return println!("note: this kernel has no such memory");
        }
        let image = folder.path().join("image");
        let error = saver.save(&image, way);
        let is_told = error.contains("the memory at 0x") || error.contains("Bad address");
        assert!(is_told, "{way}: {error}");
        assert_no_image(&image);
        let path = pipe.clone();
        let reader = thread::spawn(move || fs::read(path).expect("a pipe"));
        let error = saver.save(&pipe, &format!("lend {way}"));
        assert!(error.contains("Bad address"), "lend {way}: {error}");
        let read = reader.join().expect("it has read");
        Summary::read(&read[..]).expect_err("it is not whole");
        assert_eq!(saver.ask("cure"), "done");
        assert_unharmed(&mut saver, folder.path());
    }
    assert!(saver.end().status.success());
}

/// Starts a reader that reads the beginning of an image, and then closes the pipe or socket.
fn leave<R: Read + Send + 'static>(
    open: impl FnOnce() -> R + Send + 'static,
) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = vec![0; READ];
        open().read_exact(&mut bytes).expect("an image comes");
        bytes
    })
}

fn assert_truncated(reader: JoinHandle<Vec<u8>>) {
    let bytes = reader.join().expect("it has read");
    match Summary::read(&bytes[..]) {
        Err(ImageError::Truncated { at, .. }) => assert_eq!(at, READ as u64),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pipe_whose_reader_closes() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    let mut saver = Saver::start(None);
    for way in WAYS {
        let path = pipe.clone();
        let reader = leave(move || File::open(path).expect("a pipe"));
        let error = saver.save(&pipe, way);
        assert!(error.contains("Broken pipe"), "{way}: {error}");
        assert_truncated(reader);
        assert_unharmed(&mut saver, folder.path());
    }
    assert!(saver.end().status.success());
}

#[test]
fn a_socket_whose_reader_closes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let mut saver = Saver::start(None);
    for way in WAYS {
        let listener = UnixListener::bind(&path).expect("a socket");
        let reader = leave(move || listener.accept().expect("it connects").0);
        let error = saver.save(&path, way);
        let is_told = ["Broken pipe", "Connection reset"]
            .iter()
            .any(|text| error.contains(text));
        assert!(is_told, "{way}: {error}");
        assert_truncated(reader);
        fs::remove_file(&path).expect("it is there");
        assert_unharmed(&mut saver, folder.path());
    }
    assert!(saver.end().status.success());
}

/// The restorer, too, refuses an image that was cut off.
#[test]
fn a_truncated_image_is_not_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let mut saver = Saver::start(None);
    assert_eq!(saver.save(&image, ""), "saved");
    let bytes = fs::read(&image).expect("an image");
    let mut file = File::create(&image).expect("it can be written");
    file.write_all(&bytes[..bytes.len() - 100])
        .expect("it can be written");
    let ended = Saver::restore(&image).end();
    assert_eq!(
        ended.status.code(),
        Some(vm_image::CANNOT_RESTORE),
        "{ended:?}"
    );
    assert!(
        ended.errors.contains("the image ends too early"),
        "{ended:?}"
    );
}

/// The positions of sections of pages that follow another section of pages.
fn heads(image: &Path) -> Vec<u64> {
    let mut reader = ImageReader::new(File::open(image).expect("an image")).expect("an image");
    let (mut heads, mut behind_memory) = (Vec::new(), false);
    loop {
        let at = reader.position();
        let Some((section, _)) = reader.next_section().expect("it is whole") else {
            return heads;
        };
        if behind_memory && section.kind == PAGES {
            heads.push(at);
        }
        behind_memory = section.kind == PAGES;
    }
}

/// Two workers read a file at once. One worker finds a bad head while the other worker still reads
/// the memory before that head, and then waits for the lock of the first.
#[test]
fn no_worker_waits_for_a_worker_that_found_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let mut saver = Saver::start(None);
    assert_eq!(saver.save(&image, ""), "saved");
    let whole = fs::read(&image).expect("an image");
    let heads = heads(&image);
    assert!(heads.len() >= 20, "{} heads", heads.len());
    for &at in heads.iter().step_by(heads.len() / 20) {
        let at = at as usize;
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        let what = format!("the image is damaged at byte {at}");
        for (bytes, what) in [
            (&whole[..at], "the image ends too early"),
            (&damaged, &what),
        ] {
            fs::write(&image, bytes).expect("room");
            let ended = Saver::restore(&image).end();
            assert_eq!(ended.status.code(), Some(CANNOT_RESTORE), "{ended:?}");
            assert!(ended.errors.contains(what), "{what}: {ended:?}");
        }
    }
}
