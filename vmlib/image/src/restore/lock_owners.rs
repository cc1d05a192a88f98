//! Gives locks of pthreads the new ids of their owners. Such a lock holds the thread id of its
//! owner, which is another id in the restored process. These locks hold an id: mutexes that are
//! recursive, error-checking, robust or inherit priority; and reader-writer locks, while a writer
//! holds them.
//!
//! Robust mutexes are in a list that the kernel knows. The others are in no list, so the functions
//! that lock are interposed: they remember the addresses of such locks in a table, and call those
//! of the C library. Whether a lock is held is read from the lock itself, when its owner's id is
//! exchanged.
//!
//! The loader's own locks, which `dlopen` holds, are taken by functions that cannot be interposed.
//! They are found among the variables of the loader.
//!
//! Other locks that the C library takes internally are not found. One case is a thread that has
//! been woken from a condition variable and is about to lock its mutex during the save.

use crate::{
    capture::thread::{self, Thread},
    frozen::interpose::next,
    raw::{records::Mapping, sys},
    restore::wait_deadlines::is_there,
};
use std::{
    ffi::CStr,
    sync::atomic::{
        AtomicU32, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
};

/// The limit of remembered locks.
const LOCKS: usize = 1 << 16;
/// The number of places in the table that one address may have.
const PROBES: usize = 64;
/// The number of entries of a robust list that the kernel reads.
const ROBUST_MAX: usize = 2048;
/// The owner's id in the word of a mutex that is robust or inherits priority (futex(2)).
const TID_MASK: u32 = 0x3fff_ffff;

/// A hash table of the addresses of locks, with the tag of their kind in the lowest bit; 0: free. A
/// lock lies in one of the [`PROBES`] places from its hash on.
static TABLE: [AtomicUsize; LOCKS] = [const { AtomicUsize::new(0) }; LOCKS];

/// `pthread_mutex_t` of glibc on x86-64, up to the fields needed here; the layout is part of the
/// ABI.
#[repr(C)]
struct Mutex {
    word: u32,
    count: u32,
    owner: i32,
    users: u32,
    kind: i32,
}

/// `pthread_rwlock_t` of glibc on x86-64; the layout is part of the ABI.
#[repr(C)]
struct RwLock {
    readers: u32,
    writers: u32,
    futexes: [u32; 2],
    unused: [u32; 2],
    writer: i32,
    shared: i32,
}

/// In `readers`: a writer holds the lock.
const WRITER: u32 = 2;

/// `PTHREAD_MUTEX_RECURSIVE`, `PTHREAD_MUTEX_ERRORCHECK`, and the mask of a mutex type.
const RECURSIVE: i32 = 1;
const CHECKING: i32 = 2;
const TYPE: i32 = 3;
/// Robust; inherits priority. Both kinds have the owner's id in the word.
const ID_IN_WORD: i32 = 0x10 | 0x20;
/// All bits that a mutex kind may have.
const KINDS: i32 = 0x3ff;

fn has_owner(kind: i32) -> bool {
    matches!(kind & TYPE, RECURSIVE | CHECKING) || kind & ID_IN_WORD != 0
}

/// A kind of lock that has an owner.
trait Owned {
    /// The value of the lowest bit of its address in the table.
    const TAG: usize;

    /// Whether this lock holds the id of its owner.
    fn knows_owner(&self) -> bool;

    /// Writes this thread's id into a lock that this thread has just taken. The locking call began
    /// before the process was saved, so the C library wrote the old id.
    ///
    /// # Safety
    /// This thread holds the lock.
    unsafe fn correct(lock: *mut Self);
}

fn remember<Lock: Owned>(lock: *const Lock) {
    let at = lock as usize | Lock::TAG;
    let first = (at >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LOCKS.ilog2());
    for probe in 0..PROBES {
        let place = &TABLE[(first + probe) % LOCKS];
        let found = place.load(Relaxed);
        if found == at {
            return;
        }
        if found == 0 {
            match place.compare_exchange(0, at, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(other) if other == at => return,
                Err(_) => {}
            }
        }
    }
}

impl Owned for Mutex {
    const TAG: usize = 0;

    #[inline(always)]
    fn knows_owner(&self) -> bool {
        has_owner(self.kind)
    }

    #[cold]
    unsafe fn correct(lock: *mut Self) {
        /// The last owner has died, and the protected data was not marked consistent yet.
        const INCONSISTENT: i32 = i32::MAX;
        let me = sys::gettid();
        // SAFETY: this thread holds the lock. Other threads may set the bit in the word that says
        // that they wait.
        unsafe {
            if (*lock).owner != INCONSISTENT {
                (*lock).owner = me;
            }
            if (*lock).kind & ID_IN_WORD != 0 {
                let word = AtomicU32::from_ptr(&raw mut (*lock).word);
                let exchange = |word| Some(word & !TID_MASK | me as u32);
                let _ = word.fetch_update(SeqCst, SeqCst, exchange);
            }
        }
    }
}

impl Owned for RwLock {
    const TAG: usize = 1;

    #[inline(always)]
    fn knows_owner(&self) -> bool {
        true
    }

    #[cold]
    unsafe fn correct(lock: *mut Self) {
        // SAFETY: this thread holds the lock for writing.
        unsafe { (*lock).writer = sys::gettid() };
    }
}

/// The interposed functions: each remembers a lock that holds its owner's id, and calls the C
/// library's function.
macro_rules! lock {
    ($own:ty, $lock:ty: $($name:ident ($($argument:ident: $kind:ty),*);)*) => {$(
        /// As in POSIX or C; also remembers a lock that holds its owner's id.
        ///
        /// # Safety
        /// As in POSIX or C.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(lock: *mut $lock $(, $argument: $kind)*) -> i32 {
            type Function = unsafe extern "C" fn(*mut $lock $(, $kind)*) -> i32;
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            const NAME: &CStr =
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
            let own = lock.cast::<$own>();
            // SAFETY: the caller passes a valid lock, whose kind does not change.
            let knows_owner = unsafe { (*own).knows_owner() };
            if knows_owner {
                remember(own);
            }
            let (restores, function) = (thread::restores(), next(&NEXT, NAME));
            if function == 0 {
                return libc::ENOSYS;
            }
            // SAFETY: the C library's function of this name is of this type.
            let function: Function = unsafe { std::mem::transmute::<usize, _>(function) };
            // SAFETY: as promised by the caller.
            let result = unsafe { function(lock $(, $argument)*) };
            if knows_owner && thread::restores() != restores && matches!(result, 0 | libc::EOWNERDEAD) {
                // SAFETY: this thread has just taken the lock.
                unsafe { Owned::correct(own) };
            }
            result
        }
    )*};
}

lock! { Mutex, libc::pthread_mutex_t:
    pthread_mutex_lock();
    pthread_mutex_trylock();
    pthread_mutex_timedlock(until: *const libc::timespec);
    pthread_mutex_clocklock(clock: libc::clockid_t, until: *const libc::timespec);
    mtx_lock();
    mtx_trylock();
    mtx_timedlock(until: *const libc::timespec);
}

lock! { RwLock, libc::pthread_rwlock_t:
    pthread_rwlock_wrlock();
    pthread_rwlock_trywrlock();
    pthread_rwlock_timedwrlock(until: *const libc::timespec);
    pthread_rwlock_clockwrlock(clock: libc::clockid_t, until: *const libc::timespec);
}

/// The range of the loader's variables: first address, and first address behind. 0: not known.
static LOADER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Finds the loader's variables from the ELF heads that the kernel has mapped.
pub fn look_up() {
    // SAFETY: the call only reads. The address is 0 where the program has no loader.
    let base = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
    if base == 0 || LOADER[1].load(SeqCst) != 0 {
        return;
    }
    // SAFETY: the kernel has mapped an ELF file there, whose heads stay mapped.
    let segments = unsafe {
        let head = &*(base as *const libc::Elf64_Ehdr);
        let first = (base + head.e_phoff as usize) as *const libc::Elf64_Phdr;
        std::slice::from_raw_parts(first, usize::from(head.e_phnum))
    };
    let is_variables = |segment: &&libc::Elf64_Phdr| {
        segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_W != 0
    };
    if let Some(segment) = segments.iter().find(is_variables) {
        let start = base + segment.p_vaddr as usize;
        LOADER[0].store(start, SeqCst);
        LOADER[1].store(start + segment.p_memsz as usize, SeqCst);
    }
}

/// Gives the loader's locks the new ids of their owners.
fn rename_loader(renamed: &Renamed<'_>, memory: &[Mapping]) {
    let [start, end] = [0, 1].map(|index| LOADER[index].load(SeqCst));
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let places = (start.next_multiple_of(align_of::<usize>())..end).step_by(align_of::<usize>());
    for at in places {
        let len = size_of::<Mutex>();
        // Some of the variables are read-only, and no locks are among those.
        if at + len <= end && is_there(at as u64, len as u64, memory, writable) {
            // SAFETY: mapped and writable, and no other thread runs.
            rename_one(unsafe { &mut *(at as *mut Mutex) }, renamed);
        }
    }
}

/// Threads by their old ids, and their new ids by index.
struct Renamed<'a> {
    threads: &'a [Thread],
    ids: &'a [i32],
}

impl Renamed<'_> {
    fn of(&self, tid: i32) -> Option<i32> {
        let index = self.threads.iter().position(|thread| thread.tid == tid)?;
        self.ids.get(index).copied()
    }
}

/// Gives locks that threads hold the new ids of their owners. `memory` lists the mapped memory.
///
/// **Runs in a process that is being restored**, before any thread resumes.
pub fn rename(threads: &[Thread], ids: &[i32], memory: &[Mapping]) {
    let renamed = Renamed { threads, ids };
    for (index, thread) in threads.iter().enumerate() {
        rename_robust(thread, ids[index], memory);
    }
    rename_loader(&renamed, memory);
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    for place in &TABLE {
        let (at, tag) = (place.load(Relaxed) & !1, place.load(Relaxed) & 1);
        let len = match tag {
            RwLock::TAG => size_of::<RwLock>(),
            _ => size_of::<Mutex>(),
        };
        if at == 0 || !is_there(at as u64, len as u64, memory, writable) {
            continue;
        }
        if tag == RwLock::TAG {
            // SAFETY: mapped and writable, and no other thread runs.
            rename_writer(unsafe { &mut *(at as *mut RwLock) }, &renamed);
        } else {
            // SAFETY: as above.
            rename_one(unsafe { &mut *(at as *mut Mutex) }, &renamed);
        }
    }
}

fn rename_writer(lock: &mut RwLock, renamed: &Renamed<'_>) {
    if lock.readers & WRITER != 0
        && lock.unused == [0; 2]
        && let Some(now) = renamed.of(lock.writer)
    {
        lock.writer = now;
    }
}

/// Gives one mutex the new id of its owner. The memory of a former mutex may hold something else
/// now: it is changed only if all its fields are those of a mutex that one of the threads holds.
fn rename_one(mutex: &mut Mutex, renamed: &Renamed<'_>) {
    let is_mutex = mutex.kind & !KINDS == 0 && has_owner(mutex.kind);
    if !is_mutex || mutex.word == 0 || mutex.users == 0 {
        return;
    }
    let Some(now) = renamed.of(mutex.owner) else {
        return;
    };
    if mutex.kind & ID_IN_WORD != 0 {
        if mutex.word & TID_MASK != mutex.owner as u32 {
            return;
        }
        mutex.word = mutex.word & !TID_MASK | now as u32;
    }
    mutex.owner = now;
}

/// `struct robust_list_head`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    first: usize,
    /// The distance from an entry to the mutex's word.
    offset: isize,
    /// The entry that is being locked or unlocked.
    pending: usize,
}

fn rename_robust(thread: &Thread, now: i32, memory: &[Mapping]) {
    let (read, write) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
    if thread.robust == 0 || !is_there(thread.robust as u64, size_of::<Head>() as u64, memory, read)
    {
        return;
    }
    // SAFETY: mapped and readable; the thread registered the list with the kernel.
    let head = unsafe { *(thread.robust as *const Head) };
    let rename = |entry: usize| {
        let at = (entry & !1).wrapping_add_signed(head.offset);
        if entry == 0 || !is_there(at as u64, size_of::<Mutex>() as u64, memory, write) {
            return;
        }
        // SAFETY: mapped and writable, and no other thread runs.
        let mutex = unsafe { &mut *(at as *mut Mutex) };
        if mutex.word & TID_MASK == thread.tid as u32 {
            mutex.word = mutex.word & !TID_MASK | now as u32;
            if mutex.owner == thread.tid {
                mutex.owner = now;
            }
        }
    };
    rename(head.pending);
    let mut entry = head.first;
    for _ in 0..ROBUST_MAX {
        // The lowest bit says that the mutex inherits priority.
        let at = entry & !1;
        if at == thread.robust || !is_there(at as u64, size_of::<usize>() as u64, memory, read) {
            return;
        }
        rename(entry);
        // SAFETY: mapped and readable.
        entry = unsafe { *(at as *const usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mutex_that_a_thread_holds_is_changed() {
        // SAFETY: zeros are values of all fields.
        let mut thread: Thread = unsafe { std::mem::zeroed() };
        thread.tid = 100;
        let renamed = Renamed {
            threads: &[thread],
            ids: &[200],
        };
        let mutex = |word, owner, users, kind| Mutex {
            word,
            count: 1,
            owner,
            users,
            kind,
        };
        let after = |mut mutex: Mutex| {
            rename_one(&mut mutex, &renamed);
            (mutex.word, mutex.owner)
        };
        assert_eq!(after(mutex(2, 100, 1, RECURSIVE)), (2, 200));
        assert_eq!(
            after(mutex(0x8000_0000 | 100, 100, 1, 0x20)),
            (0x8000_0000 | 200, 200)
        );
        // A mutex of another thread, free mutexes, a kind without an owner, and memory that is no
        // mutex.
        assert_eq!(after(mutex(1, 101, 1, CHECKING)), (1, 101));
        assert_eq!(after(mutex(0, 100, 1, CHECKING)), (0, 100));
        assert_eq!(after(mutex(1, 100, 0, CHECKING)), (1, 100));
        assert_eq!(after(mutex(1, 100, 1, 0)), (1, 100));
        assert_eq!(after(mutex(1, 100, 1, 0x4001)), (1, 100));
        assert_eq!(after(mutex(7, 100, 1, 0x20)), (7, 100));
    }

    #[test]
    fn a_mutex_is_remembered_once() {
        let places: Vec<u64> = (0..1000).collect();
        let at = |n: &u64| (n as *const u64).cast::<Mutex>();
        for _ in 0..2 {
            places.iter().for_each(|n| remember(at(n)));
        }
        for n in &places {
            let is_this = |place: &&AtomicUsize| place.load(Relaxed) == at(n) as usize;
            assert_eq!(TABLE.iter().filter(is_this).count(), 1);
        }
    }
}
