//! State of the process as a whole, and settings of its threads.

use crate::point::{folder, save_point, until};
use rustix::{
    fs::Mode,
    process::{self, Resource, Rlimit},
    thread::CpuSet,
};
use std::{
    env, fs, ptr,
    sync::{Arc, Barrier},
    thread,
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("working_directory", working_directory),
    ("environment", environment),
    ("umask", umask),
    ("limits", limits),
    ("limit_below_what_is_open", limit_below_what_is_open),
    ("name_and_arguments", name_and_arguments),
    ("nice", nice),
    ("affinity", affinity),
    ("random_numbers", random_numbers),
    ("random_numbers_of_the_kernel", random_numbers_of_the_kernel),
    ("clocks", clocks),
    ("identity", identity),
    ("rights_given_up", rights_given_up),
    ("memory_barriers", memory_barriers),
    ("terminal_modes", terminal_modes),
    (
        "large_pages_and_want_of_memory",
        large_pages_and_want_of_memory,
    ),
];

fn working_directory() {
    let dir = format!("{}/a folder", folder());
    fs::create_dir_all(&dir).expect("a folder can be made");
    fs::write(format!("{dir}/inside"), "x").expect("a file can be written");
    env::set_current_dir(&dir).expect("it is there");
    save_point();
    let now = env::current_dir().expect("it is somewhere");
    assert_eq!(now, fs::canonicalize(&dir).expect("it is there"));
    assert_eq!(fs::read("inside").expect("it is there"), b"x");
}

fn environment() {
    // SAFETY: no other thread reads the environment.
    unsafe {
        env::set_var("ZOO_ANIMAL", "an emu");
        env::remove_var("PATH");
    }
    save_point();
    assert_eq!(env::var("ZOO_ANIMAL").as_deref(), Ok("an emu"));
    assert!(env::var_os("PATH").is_none());
    // SAFETY: as above.
    unsafe { env::set_var("ZOO_ANIMAL", "another, with a longer name") };
    assert_eq!(
        env::var("ZOO_ANIMAL").as_deref(),
        Ok("another, with a longer name")
    );
}

fn umask() {
    process::umask(Mode::from_raw_mode(0o137));
    save_point();
    assert_eq!(
        process::umask(Mode::from_raw_mode(0o22)).as_raw_mode(),
        0o137
    );
}

fn limits() {
    let wanted = [
        (Resource::Nofile, 200),
        (Resource::Core, 0),
        (Resource::Stack, 16 << 20),
    ];
    for (resource, current) in wanted {
        let maximum = process::getrlimit(resource).maximum;
        let limit = Rlimit {
            current: Some(current),
            maximum,
        };
        process::setrlimit(resource, limit).expect("it may be lowered");
    }
    save_point();
    for (resource, current) in wanted {
        assert_eq!(
            process::getrlimit(resource).current,
            Some(current),
            "{resource:?}"
        );
    }
}

/// Descriptors above the limit that were opened earlier stay open.
fn limit_below_what_is_open() {
    let null = fs::File::open("/dev/null").expect("it is there");
    let high = rustix::io::fcntl_dupfd_cloexec(&null, 150).expect("a number");
    let maximum = process::getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: Some(100),
        maximum,
    };
    process::setrlimit(Resource::Nofile, limit).expect("it may be lowered");
    save_point();
    assert_eq!(process::getrlimit(Resource::Nofile).current, Some(100));
    assert!(rustix::io::fcntl_getfd(&high).is_ok(), "it is closed");
}

fn name_and_arguments() {
    rustix::thread::set_name(c"zoo animal").expect("a name");
    let arguments: Vec<String> = env::args().collect();
    let read = |name: &str| fs::read(format!("/proc/self/{name}")).expect("it can be read");
    let (line, environment, vector) = (read("cmdline"), read("environ"), read("auxv"));
    let program = || fs::read_link("/proc/self/exe").expect("a program");
    let own = program();
    save_point();
    assert_eq!(program(), own);
    assert_eq!(read("comm"), b"zoo animal\n");
    assert_eq!(env::args().collect::<Vec<_>>(), arguments);
    assert_eq!(read("cmdline"), line);
    assert_eq!(read("environ"), environment);
    assert_eq!(read("auxv"), vector);
    let stat = String::from_utf8(read("stat")).expect("text");
    assert!(stat.contains("(zoo animal)"), "{stat}");
}

/// Each thread has its own nice value.
fn nice() {
    let now = process::getpriority_process(None).expect("a value");
    let (own, theirs) = ((now + 2).min(19), (now + 4).min(19));
    let (before, after) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (its_before, its_after) = (before.clone(), after.clone());
    let thread = thread::spawn(move || {
        process::setpriority_process(None, theirs).expect("it may be raised");
        its_before.wait();
        its_after.wait();
        assert_eq!(process::getpriority_process(None), Ok(theirs));
    });
    before.wait();
    process::setpriority_process(None, own).expect("it may be raised");
    save_point();
    assert_eq!(process::getpriority_process(None), Ok(own));
    after.wait();
    thread.join().expect("its value is as it was");
}

/// Binds this thread to the last of its processors.
fn affinity() {
    let all = rustix::thread::sched_getaffinity(None).expect("a set");
    let last = (0..CpuSet::MAX_CPU).rev().find(|n| all.is_set(*n));
    let mut one = CpuSet::new();
    one.set(last.expect("there is one"));
    rustix::thread::sched_setaffinity(None, &one).expect("it is allowed");
    save_point();
    assert_eq!(rustix::thread::sched_getaffinity(None), Ok(one));
}

/// A generator in memory continues its sequence; the kernel's generator returns new numbers.
fn random_numbers() {
    fn next(state: &mut [u64; 2]) -> u64 {
        let sum = state[0].wrapping_add(state[1]);
        state[1] ^= state[0];
        state[0] = state[0].rotate_left(24) ^ state[1] ^ state[1] << 16;
        state[1] = state[1].rotate_left(37);
        sum
    }
    let mut state = [1, 2];
    let mut copy = state;
    let expected = [(); 10].map(|()| next(&mut copy));
    let map: std::collections::HashMap<u32, u32> = (0..1000).map(|n| (n, n * n)).collect();
    save_point();
    assert_eq!([(); 10].map(|()| next(&mut state)), expected);
    assert!(
        (0..1000).all(|n| map[&n] == n * n),
        "hashing has other keys now"
    );
    let mut bytes = [0u8; 32];
    let flags = rustix::rand::GetRandomFlags::empty();
    assert_eq!(rustix::rand::getrandom(&mut bytes[..], flags), Ok(32));
    assert_ne!(bytes, [0; 32]);
}

/// The same for getrandom in the vdso, which newer C libraries call, with the vdso of any kernel.
fn random_numbers_of_the_kernel() {
    type GetRandom = unsafe extern "C" fn(*mut u8, usize, u32, *mut u8, usize) -> isize;
    // SAFETY: the vdso is in every process, and the function of that name has that type. With `!0`
    // bytes of state it returns the required size, rights and flags.
    let (function, state, len) = unsafe {
        let library = c"linux-vdso.so.1".as_ptr();
        let library = libc::dlopen(library, libc::RTLD_NOW | libc::RTLD_NOLOAD);
        let function = match library.is_null() {
            true => ptr::null_mut(),
            false => libc::dlsym(library, c"__vdso_getrandom".as_ptr()),
        };
        if function.is_null() {
            return println!("note: this kernel's code has no random numbers");
        }
        let function = std::mem::transmute::<*mut libc::c_void, GetRandom>(function);
        let mut parameters = [0u32; 16];
        let place = parameters.as_mut_ptr().cast();
        assert_eq!(function(ptr::null_mut(), 0, 0, place, usize::MAX), 0);
        let [len, rights, flags, ..] = parameters.map(|word| word as i32);
        let state = libc::mmap(ptr::null_mut(), 4096, rights, flags, -1, 0);
        assert_ne!(state, libc::MAP_FAILED);
        (function, state.cast::<u8>(), len as usize)
    };
    let next = || {
        let mut bytes = [0u8; 32];
        // SAFETY: the state is as the function requires, and no other code uses it.
        let got = unsafe { function(bytes.as_mut_ptr(), bytes.len(), 0, state, len) };
        assert_eq!(got, 32);
        bytes
    };
    let before = next();
    save_point();
    let after = [next(), next()];
    assert!(before != after[0] && after[0] != after[1] && after[0] != [0; 32]);
}

/// Clocks that are read through the vdso continue, and do not go back.
fn clocks() {
    use rustix::time::{ClockId, clock_gettime};
    let (instant, time) = (std::time::Instant::now(), std::time::SystemTime::now());
    save_point();
    for _ in 0..1000 {
        // The first reads through the vdso by the C library; the second makes the system call.
        let read = instant.elapsed();
        assert!(read.as_secs() < 300, "{read:?} have passed");
        let time = time.elapsed().expect("it goes forwards");
        assert!(time.as_secs() < 300, "{time:?} have passed");
    }
    let before = clock_gettime(ClockId::Monotonic);
    assert!(clock_gettime(ClockId::Monotonic) >= before);
    // SAFETY: the call only reads.
    assert!(unsafe { libc::sched_getcpu() } >= 0);
}

/// The restored process has a new id, and the usual calls report it.
fn identity() {
    let before = std::process::id();
    let lives = save_point();
    let stat = fs::read_to_string("/proc/self/stat").expect("it can be read");
    let now: u32 = stat
        .split(' ')
        .next()
        .and_then(|pid| pid.parse().ok())
        .expect("a number");
    assert_eq!(std::process::id(), now);
    assert_eq!(
        now == before,
        lives == 0,
        "{now} now, {before} before, after {lives}"
    );
    let busy = env::var("ZOO_BUSY").map_or(0, |count| count.parse().expect("a number"));
    // A thread that has just ended, such as the one that sent memory in rounds, is listed a little
    // longer.
    until("the threads are those of the program", || {
        let threads = fs::read_dir("/proc/self/task").expect("a list").count();
        threads == 1 + busy
    });
}

/// The rights of this thread, as `/proc` shows them.
fn rights() -> Vec<String> {
    let status = fs::read_to_string("/proc/thread-self/status").expect("it can be read");
    let names = ["Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:"];
    let is_wanted = |line: &&str| names.iter().any(|name| line.starts_with(name));
    status
        .lines()
        .filter(is_wanted)
        .map(str::to_owned)
        .collect()
}

/// Root becomes a user with one capability and groups, and gives up gaining new rights.
fn rights_given_up() {
    const SERVICE: u64 = 1 << 10;
    let is_root = process::geteuid().is_root();
    // SAFETY: each call changes the rights of all threads, or of this one, whose rights alone are
    // checked.
    unsafe {
        if is_root {
            assert_eq!(libc::setgroups(2, [3001, 3002].as_ptr()), 0);
            assert_eq!(libc::prctl(libc::PR_CAPBSET_DROP, 21, 0, 0, 0), 0);
            assert_eq!(libc::setresgid(65_533, 65_534, 65_533), 0);
            assert_eq!(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0), 0);
            assert_eq!(libc::setresuid(65_534, 65_534, 65_534), 0);
            // Effective and permitted, not inheritable.
            let sets = [SERVICE as u32, SERVICE as u32, 0, 0, 0, 0];
            let header = [0x2008_0522u32, 0];
            let result = libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr());
            assert_eq!(result, 0);
            assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
        }
        // Busy threads would have other rights.
        if env::var_os("ZOO_BUSY").is_none() {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        }
    }
    let own = rights();
    let (before, after) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (its_before, its_after) = (before.clone(), after.clone());
    let thread = thread::spawn(move || {
        let its = rights();
        its_before.wait();
        its_after.wait();
        assert_eq!(rights(), its);
    });
    before.wait();
    save_point();
    assert_eq!(rights(), own);
    // SAFETY: the call only reads.
    assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) }, 1);
    if is_root {
        // SAFETY: the call is not allowed.
        assert_eq!(unsafe { libc::setresuid(0, 0, 0) }, -1, "it is root again");
    }
    after.wait();
    thread.join().expect("its rights are as they were");
}

/// Only a process that has registered for a barrier can use it.
fn memory_barriers() {
    const REGISTER: [u32; 3] = [1 << 4, 1 << 6, 1 << 8];
    const BARRIER: [u32; 3] = [1 << 3, 1 << 5, 1 << 7];
    // SAFETY: the call registers, or orders memory.
    let call = |command: u32| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    let served = [0, 1, 2].map(|kind| call(REGISTER[kind]) == 0);
    assert!(served[0], "this kernel has barriers");
    save_point();
    for kind in 0..3 {
        assert_eq!(call(BARRIER[kind]) == 0, served[kind], "kind {kind}");
    }
}

fn large_pages_and_want_of_memory() {
    let score = "/proc/self/oom_score_adj";
    fs::write(score, "567").expect("it may be raised");
    let large_pages = |what: i32, value: i32| {
        // SAFETY: the call only concerns the size of pages.
        unsafe { libc::prctl(what, value, 0, 0, 0) }
    };
    assert_eq!(large_pages(libc::PR_SET_THP_DISABLE, 1), 0);
    save_point();
    let found = fs::read_to_string(score).expect("it can be read");
    assert_eq!(found, "567\n");
    assert_eq!(large_pages(libc::PR_GET_THP_DISABLE, 0), 1);
}

/// If standard input is a terminal: typed characters are not echoed.
fn terminal_modes() {
    let modes = || {
        // SAFETY: zeros are a value, and the C library writes it.
        unsafe {
            let mut modes: libc::termios = std::mem::zeroed();
            (libc::tcgetattr(0, &mut modes) == 0).then_some(modes)
        }
    };
    if let Some(mut wanted) = modes() {
        wanted.c_lflag &= !(libc::ECHO | libc::ICANON);
        wanted.c_cc[libc::VMIN] = 7;
        // SAFETY: the call reads the modes.
        assert_eq!(unsafe { libc::tcsetattr(0, libc::TCSANOW, &wanted) }, 0);
    }
    let before = modes();
    save_point();
    let of = |modes: libc::termios| (modes.c_lflag, modes.c_iflag, modes.c_cc);
    assert_eq!(modes().map(of), before.map(of));
}
