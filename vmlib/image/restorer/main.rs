//! The restorer: a program without a C library, at an address that nobody uses, that turns itself
//! into the process of an image.
//!
//! It is started with the number of the image's descriptor as its argument, with `f` behind it for
//! tests, with `r` if the files of the process are to be rolled back, and last with `m` and the
//! number of another descriptor if folders have other names here. It removes all memory but its
//! own and the kernel's, maps what the image says, reads the contents straight into place, and
//! jumps to the code of the image that does the rest. Nothing is undone, so nothing may be left
//! half: until the last checksum was right it touches nothing but its own memory, and an error
//! ends it with a message.

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

/// The kernel's stack will be unmapped: goes to its own at once.
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

/// Nothing unwinds here, but the compiled `core` names it.
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
            _ => die!("it is started with the number of a descriptor"),
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
        // For tests: as if this host's vdso were another one.
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
    // Early rounds, saved while the process ran: memory alone. Their tables were read while they
    // changed, so what lacks in one may be there all the same: nothing is removed before the last.
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

/// What lacks here would be missed in the middle of a computation, or cut off silently.
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

/// Leaves for the code of the image.
fn jump(facts: &Facts, own: usize, own_len: usize, image: i32, contents: i32, files: u64) -> ! {
    // SAFETY: everything is where the image wants it; this code is not needed any more.
    unsafe {
        core::arch::asm!(
            "mov rsp, {stack}",
            // As if it had been called.
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
