//! The content of carried files. The content is kept in a memory file, and the process itself
//! writes it into its files later, because nothing outside of this process may change before the
//! image is known to be whole.

use crate::{
    failure::die,
    raw::{
        records::CONTENT,
        sys::{self, nr},
    },
    space,
    stream::Stream,
};

/// `EFBIG`.
const TOO_LARGE: i32 = 27;

/// The descriptor of the memory file, in which each content is at the address of its section; -1:
/// no content so far.
pub struct Contents(i32);

impl Contents {
    pub fn none() -> Self {
        Contents(-1)
    }

    /// The descriptor of the memory file, or -1.
    pub fn fd(&self) -> i32 {
        self.0
    }

    /// Reads the next section, which is one of content, into the memory file.
    pub fn take(&mut self, stream: &mut Stream) {
        if self.0 < 0 {
            let name = c"contents".as_ptr() as usize;
            // SAFETY: the name is ended by NUL.
            match sys::check(unsafe { sys::call2(nr::MEMFD_CREATE, name, 0) }) {
                Ok(fd) => self.0 = fd as i32,
                Err(error) => die!(
                    "memfd_create, which makes room for files, is refused here: error {}",
                    error.0
                ),
            }
        }
        let (mut at, content) = stream.content(CONTENT, space::scratch());
        let mut rest = &*content;
        while !rest.is_empty() {
            let (fd, from) = (self.0 as usize, rest.as_ptr() as usize);
            // SAFETY: the content is only read.
            match sys::check(unsafe { sys::call4(nr::PWRITE64, fd, from, rest.len(), at as usize) })
            {
                Ok(count @ 1..) => {
                    rest = &rest[count..];
                    at += count as u64;
                }
                Err(sys::EINTR) => {}
                Ok(0) => die!("there is no room for files"),
                Err(sys::Errno(TOO_LARGE)) => {
                    die!(
                        "there is no room for files: the limit on their size, RLIMIT_FSIZE, is lower"
                    )
                }
                Err(error) => die!("there is no room for files: error {}", error.0),
            }
        }
    }
}
