//! Actions of signals, masks, and alternate stacks of handlers.
//!
//! Installs handlers, so it has unsafe code. Functions that other programs use come first.

use crate::{
    masks::{blocked, set_mask, set_of},
    point::{save_point, tid, until},
};
use std::{
    mem, ptr,
    sync::{
        Arc, Barrier,
        atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("signal_actions", signal_actions),
    ("signal_masks", signal_masks),
    ("alternate_stack_in_use", alternate_stack_in_use),
    ("saved_in_a_handler", saved_in_a_handler),
];

/// A handler; its arguments are the signal, the signal's information, and the interrupted context.
pub type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

pub fn install(signal: i32, handler: Handler, flags: i32, mask: &[i32]) {
    // SAFETY: zeros are a value; the handlers of the zoo may run at any moment.
    let result = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags | libc::SA_SIGINFO;
        action.sa_mask = set_of(mask);
        libc::sigaction(signal, &action, ptr::null_mut())
    };
    assert_eq!(result, 0, "the handler of {signal} cannot be installed");
}

/// The action of a signal: handler, flags except those of the C library, blocked signals.
fn action(signal: i32) -> (usize, i32, Vec<i32>) {
    // SAFETY: zeros are a value, and the call writes it.
    let action = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, ptr::null(), &mut action);
        action
    };
    // SAFETY: a set.
    let has = |signal: &i32| unsafe { libc::sigismember(&action.sa_mask, *signal) == 1 };
    let own = !0x0400_0000;
    (
        action.sa_sigaction,
        action.sa_flags & own,
        (1..=64).filter(has).collect(),
    )
}

/// Sends a signal to this thread.
pub fn raise(signal: i32) {
    // SAFETY: the signal is handled or blocked.
    unsafe { libc::raise(signal) };
}

static COUNTS: [AtomicU32; 65] = [const { AtomicU32::new(0) }; 65];

/// How often the counting handler ran for a signal.
pub fn count(signal: i32) -> u32 {
    COUNTS[signal as usize].load(SeqCst)
}

pub extern "C" fn counting(signal: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    COUNTS[signal as usize].fetch_add(1, SeqCst);
}

fn signal_actions() {
    let real_time = libc::SIGRTMIN() + 5;
    install(
        libc::SIGUSR1,
        counting,
        libc::SA_RESTART,
        &[libc::SIGUSR2, libc::SIGTERM],
    );
    install(
        real_time,
        counting,
        libc::SA_NODEFER | libc::SA_ONSTACK,
        &[],
    );
    install(libc::SIGUSR2, counting, libc::SA_RESETHAND, &[]);
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    let all = || -> Vec<_> {
        (1..=64)
            .filter(|n| !(32..34).contains(n))
            .map(action)
            .collect()
    };
    let _ = save_once_to_install();
    let before = all();
    save_point();
    let after = all();
    for (n, (before, after)) in before.iter().zip(&after).enumerate() {
        assert_eq!(before, after, "the action at place {n}");
    }
    raise(libc::SIGUSR1);
    raise(real_time);
    raise(libc::SIGHUP);
    raise(libc::SIGUSR2);
    assert_eq!(
        (count(libc::SIGUSR1), count(real_time), count(libc::SIGUSR2)),
        (1, 1, 1)
    );
    assert_eq!(
        action(libc::SIGUSR2).0,
        libc::SIG_DFL,
        "it was for one time"
    );
}

/// The first save installs the action of the library's signal; a refused save does, too.
fn save_once_to_install() -> Result<(), vm_image::SaveError> {
    let file = std::fs::File::create("/dev/null").expect("it is there");
    let options = vm_image::Options::default();
    vm_image::save(std::os::fd::AsFd::as_fd(&file), options).map(|_| ())
}

/// Each thread keeps its signal mask.
fn signal_masks() {
    let (before, after) = (Arc::new(Barrier::new(5)), Arc::new(Barrier::new(5)));
    let own = [libc::SIGUSR1, libc::SIGTERM, libc::SIGRTMIN() + 20];
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (before, after) = (before.clone(), after.clone());
            thread::spawn(move || {
                let mine = [&own[..n.min(3)], &[libc::SIGCHLD]].concat();
                set_mask(&set_of(&mine));
                let mine = blocked();
                before.wait();
                after.wait();
                assert_eq!(blocked(), mine);
            })
        })
        .collect();
    set_mask(&set_of(&[libc::SIGWINCH, libc::SIGRTMAX()]));
    before.wait();
    save_point();
    assert_eq!(blocked(), [libc::SIGWINCH, libc::SIGRTMAX()]);
    after.wait();
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("its mask is as it was"));
}

fn alternate() -> libc::stack_t {
    // SAFETY: zeros are a value, and the call writes it.
    unsafe {
        let mut stack: libc::stack_t = mem::zeroed();
        libc::sigaltstack(ptr::null(), &mut stack);
        stack
    }
}

static STEP: AtomicU32 = AtomicU32::new(0);
static ON: AtomicUsize = AtomicUsize::new(0);
static ID: AtomicI32 = AtomicI32::new(0);

extern "C" fn stay(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let local = 0u8;
    ON.store(&raw const local as usize, SeqCst);
    ID.store(tid(), SeqCst);
    STEP.store(1, SeqCst);
    while STEP.load(SeqCst) == 1 {
        std::hint::spin_loop();
    }
    if alternate().ss_flags & libc::SS_ONSTACK != 0 {
        STEP.store(3, SeqCst);
    }
}

/// A thread is in a handler on its alternate stack. The thread continues there, and then at its
/// interrupted instruction.
fn alternate_stack_in_use() {
    install(libc::SIGUSR1, stay, libc::SA_ONSTACK, &[]);
    let thread = thread::spawn(|| {
        let room = vec![0u8; 256 << 10].leak();
        let stack = libc::stack_t {
            ss_sp: room.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: room.len(),
        };
        // SAFETY: the memory stays; the previous stack was the standard library's, for overflows.
        unsafe { libc::sigaltstack(&stack, ptr::null_mut()) };
        raise(libc::SIGUSR1);
        let now = alternate();
        assert_eq!((now.ss_sp, now.ss_flags), (stack.ss_sp, 0));
        assert_eq!(now.ss_size, stack.ss_size);
        assert!(
            room.as_ptr_range()
                .contains(&(ON.load(SeqCst) as *const u8))
        );
    });
    until("the handler runs", || STEP.load(SeqCst) == 1);
    save_point();
    STEP.store(2, SeqCst);
    thread.join().expect("it ends");
    assert_eq!(
        STEP.load(SeqCst),
        3,
        "the handler was not on its stack any more"
    );
}

extern "C" fn saving(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // The program itself raised the signal at a known point, so the handler may do more than usual.
    let before = blocked();
    save_point();
    assert_eq!(blocked(), before);
    STEP.fetch_add(1, SeqCst);
}

/// The save is called in a handler.
fn saved_in_a_handler() {
    install(libc::SIGUSR1, saving, 0, &[libc::SIGUSR2]);
    set_mask(&set_of(&[libc::SIGWINCH]));
    raise(libc::SIGUSR1);
    assert_eq!(STEP.load(SeqCst), 1);
    assert_eq!(blocked(), [libc::SIGWINCH]);
}
