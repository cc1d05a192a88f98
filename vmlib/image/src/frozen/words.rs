//! Words of each thread that a signal handler may access at any moment.
//!
//! The handler runs in threads that know nothing of this library, such as those of a numerical library
//! beside a program in Python. A thread-local of Rust does not serve there: in a library that is loaded
//! while the program runs (`dlopen`), the first access of a thread to it allocates, and the thread may be
//! within the allocator. The words here are of the *initial-exec* model: the dynamic linker gives them to
//! all threads when it loads the library, and an access is two instructions. The model cannot be chosen in
//! Rust, so the words are declared in assembler. The linker takes them from its reserve for such libraries,
//! 1.5 KiB, of which this library needs about 300 bytes.

use std::{
    arch::{asm, global_asm},
    cell::Cell,
};

/// The words of one thread; zero at its begin.
#[repr(C)]
pub struct Words {
    /// The number of guarded sections that the thread is in.
    pub depth: Cell<u32>,
    /// Not 0: the signal came in one of them.
    pub asked: Cell<u32>,
}

global_asm!(
    ".pushsection .tbss.vm_image_words, \"awT\", @nobits",
    ".hidden vm_image_words",
    ".globl vm_image_words",
    ".type vm_image_words, @object",
    ".size vm_image_words, 8",
    ".p2align 3",
    "vm_image_words:",
    ".zero 8",
    ".popsection",
);

/// The words of this thread.
#[inline]
pub fn of_this_thread() -> &'static Words {
    let words: *const Words;
    // SAFETY: the first word at `fs` is its own address, and the linker provides the distance to the words.
    unsafe {
        asm!(
            "mov {words}, qword ptr fs:[0]",
            "add {words}, qword ptr [rip + vm_image_words@GOTTPOFF]",
            words = out(reg) words,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: they are 8 bytes, aligned so, which live as long as the thread, and the reference cannot leave
    // the thread: cells are not shared between threads. Zero is a value of both.
    unsafe { &*words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_words_of_its_own() {
        let words = of_this_thread();
        assert_eq!((words.depth.get(), words.asked.get()), (0, 0));
        words.depth.set(3);
        words.asked.set(1);
        std::thread::spawn(|| {
            let words = of_this_thread();
            assert_eq!((words.depth.get(), words.asked.get()), (0, 0));
            words.depth.set(7);
        })
        .join()
        .unwrap();
        assert_eq!((words.depth.get(), words.asked.get()), (3, 1));
    }
}
