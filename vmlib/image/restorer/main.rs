//! The restorer: a program without a C library, at an address that no other program uses, that
//! turns itself into the process of an image.
//!
//! Its argument is the number of the image's descriptor, followed by `f` in tests, by `r` if the
//! files of the process are to be rolled back, and by `m` and the number of another descriptor if
//! folders have other names on this host.
//!
//! 1. The restorer checks the image's processor against this host's.
//! 2. The restorer removes all memory but its own and the kernel's.
//! 3. The restorer maps the memory of the image, and reads its content into place.
//! 4. The restorer collects the content of carried files in a memory file.
//! 5. The restorer jumps to the code of the image, which does the rest.
//!
//! None of this can be undone. So until the last checksum was verified, the restorer changes only
//! its own memory; the code of the image changes other things, such as files. An error ends the
//! process with a message.

#![no_std]
#![no_main]

#[path = "../src/raw/mod.rs"]
#[allow(dead_code)]
mod raw;

mod ahead;
mod clock;
mod content;
mod failure;
mod folders;
mod helper;
mod memory;
mod space;
mod stream;
mod vdso;

use core::{arch::naked_asm, panic::PanicInfo};
use failure::die;
use folders::read_map;
use raw::{
    features::state_name,
    processor::{self, Lack, Layout},
    records::*,
    sys,
};

/// Bytes of the stack.
const STACK: usize = 256 << 10;

#[repr(C, align(64))]
struct Stack([u8; STACK]);

#[unsafe(no_mangle)]
static mut RESTORER_STACK: Stack = Stack([0; STACK]);

/// Switches at once to the restorer's own stack, because the kernel's stack will be unmapped.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    naked_asm!(
        "mov rdi, rsp",
        "lea rsp, [rip + RESTORER_STACK + {size}]",
        "xor ebp, ebp",
        "call {main}",
        "ud2",
        size = const STACK,
        main = sym main,
    )
}

/// Nothing unwinds here, but the compiled `core` refers to this symbol.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    die!("the restorer has a fault: {info}")
}

extern "C" fn main(stack: *const usize) -> ! {
    block_signals();
    // SAFETY: the kernel puts the count and the addresses of the arguments there.
    let argument = unsafe {
        match *stack {
            2.. => core::ffi::CStr::from_ptr(*stack.add(2) as *const core::ffi::c_char),
            _ => die!("the restorer needs the number of a descriptor as its argument"),
        }
    };
    let text = argument.to_str().unwrap_or_default();
    let (rest, map) = match text.split_once('m') {
        Some((rest, map)) => (rest, read_map(map)),
        None => (text, 0),
    };
    let (rest, files) = match rest.strip_suffix('r') {
        Some(rest) => (rest, ROLL_BACK | map),
        None => (rest, map),
    };
    let (fd, foreign) = match rest.strip_suffix('f') {
        // For tests: treats this host's vdso as another kernel's.
        Some(fd) => (fd, true),
        None => (rest, false),
    };
    let Ok(fd) = fd.parse() else {
        die!("'{text}' is no descriptor")
    };
    restore(fd, foreign, files)
}

fn block_signals() {
    let all = !0u64;
    // SAFETY: the kernel reads the set.
    unsafe { sys::call4(sys::nr::RT_SIGPROCMASK, 0, &raw const all as usize, 0, 8) };
}

fn restore(fd: i32, foreign: bool, files: u64) -> ! {
    let mut stream = stream::Stream::begin(fd);
    let mut kernels = None;
    // Early rounds have memory alone. Their tables were read while the process changed them, so
    // memory that a table lacks may still belong to the process: nothing is removed before the last
    // table.
    let mut space: &[Mapping] = &[];
    let mut turn = 0;
    if stream.next() == CPU {
        check_processor(&stream.record(CPU));
    }
    while stream.next() == SPACE {
        let wanted = stream.records(SPACE, space::mappings(2));
        memory::check(wanted);
        let _ = kernels.get_or_insert_with(|| memory::clear(wanted));
        memory::add(space, wanted, &[]);
        space = memory::join(space, wanted, space::mappings(turn));
        turn = 1 - turn;
        stream.pages(wanted);
    }
    let facts: Facts = stream.record(FACTS);
    check_processor(&facts.cpu);
    clock::catch_up(facts.monotonic_ns);
    let names = stream.bytes(NAMES, space::names());
    stream.skip(THREADS);
    stream.skip(FILES);
    let mappings = stream.records(MAPPINGS, space::mappings(2));
    memory::check(mappings);
    let kernels = kernels.unwrap_or_else(|| memory::clear(mappings));
    memory::remove(space, mappings);
    memory::add(space, mappings, names);
    while stream.next() == GONE {
        memory::forget(stream.records(GONE, space::mappings(turn)), mappings);
    }
    let mut contents = content::Contents::none();
    loop {
        match stream.next() {
            PAGES => stream.pages(mappings),
            CONTENT => contents.take(&mut stream),
            _ => break,
        }
    }
    stream.end();
    memory::protect(mappings);
    vdso::place(&kernels, &facts, foreign);
    let own = space::own();
    let own_len = own.end - own.start;
    jump(&facts, own.start, own_len, fd, contents.fd(), files)
}

/// Refuses a processor that lacks something: the program would fail in the middle of a computation,
/// or lose registers without an error.
fn check_processor(image: &Cpu) {
    let here = processor::here();
    let layout = Layout::here(here.xcr0);
    match processor::lacks(image, &here, &layout).next() {
        None => {}
        Some(Lack::Feature(feature)) => {
            die!("this host's processor lacks {feature}, which the program may use")
        }
        Some(Lack::Part(bit)) => {
            let name = state_name(bit);
            die!("this host does not keep the {name} state of threads (bit {bit} of XCR0)")
        }
        Some(Lack::Layout) => {
            die!("this host's processor keeps the registers of threads at other places")
        }
    }
}

/// Jumps to the code of the image.
fn jump(facts: &Facts, own: usize, own_len: usize, image: i32, contents: i32, files: u64) -> ! {
    // SAFETY: all memory is in place; this code is not needed any more.
    unsafe {
        core::arch::asm!(
            "mov rsp, {stack}",
            // The stack is as after a call.
            "push 0",
            "jmp {entry}",
            stack = in(reg) facts.stack,
            entry = in(reg) facts.entry,
            in("rdi") facts.argument,
            in("rsi") own,
            in("rdx") own_len,
            in("ecx") image,
            in("r8d") contents,
            in("r9") files,
            options(noreturn),
        )
    }
}
