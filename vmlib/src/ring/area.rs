//! The memory of all rings and direct connections of this process, and what a freeze does with it.
//!
//! The area is a range of addresses with [`RINGS_PER_TASK`] places, one for each ring. A place without
//! a ring has private memory, of zeros: a thread that waits may still look at a ring that another
//! thread has closed. The area is in no image ([`vm_image::leave_out`]). Beside it is the *reserve*,
//! memory of this process, which is in the image: a lane for each place.
//!
//! A direct connection has a place, too, with its keys and buffers ([`super::keyed`]), and nothing in the
//! reserve: its peer sends again what was not read.
//!
//! When a task is frozen to be moved, the handler closes all rings: it says in each ring that it does
//! not read any more, and copies a lane that has unread chunks into the reserve. The next call of the
//! library reads them there ([`closes`]). A task that is saved for a checkpoint keeps its rings; in
//! the process that is restored from it, the handler closes them, and nothing is in the reserve.
//!
//! **[`close_all`] and [`restored`] run in signal handlers, while all threads stand**: they allocate
//! nothing and lock nothing.
//!
//! The `unsafe` parts here map memory, borrow descriptors, and copy a lane.

use super::lane::{LANE_BYTES, Lane};
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd},
    io::Errno,
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous},
};
use std::{
    ptr::null_mut,
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};
use vm_wire::limits::{RING_BYTES, RINGS_PER_TASK};

/// Bytes of a page. The area has one without rights at each end.
const PAGE: usize = 4096;
const AREA_BYTES: usize = RINGS_PER_TASK * RING_BYTES;
const RESERVE_BYTES: usize = RINGS_PER_TASK * LANE_BYTES;

/// Address of the area and of its reserve; 0 before the first ring.
static AREA: AtomicUsize = AtomicUsize::new(0);
static RESERVE: AtomicUsize = AtomicUsize::new(0);
/// How often rings were closed by a freeze.
static CLOSES: AtomicU32 = AtomicU32::new(0);
/// The eventfd that wakes this task, or -1.
static WAKE: AtomicI32 = AtomicI32::new(-1);
static PLACES: [Place; RINGS_PER_TASK] = [const { Place::new() }; RINGS_PER_TASK];

/// The content of a place of the area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Use {
    /// No ring.
    Free,
    /// An open ring.
    Open,
    /// A ring that a freeze has closed; its unread chunks, if there were some, are in the reserve.
    Closed,
    /// As before, with unread chunks.
    Kept,
    /// Nothing yet: one thread has taken the place for a ring or a direct connection.
    Taken,
}

/// A place of the area, as the handler sees it.
struct Place {
    holds: AtomicU8,
    /// Which lane this task writes: 0 or 1.
    end: AtomicU8,
    /// Slots that this task has read in the other lane.
    tail: AtomicU64,
    /// The eventfd that wakes the peer, or the socket of a direct connection, or -1.
    descriptor: AtomicI32,
    /// The number of a direct connection; 0 for a ring.
    direct: AtomicU64,
    /// The daemon has said that the direct connection is closed.
    is_lost: AtomicBool,
}

impl Place {
    const fn new() -> Self {
        Place {
            holds: AtomicU8::new(Use::Free as u8),
            end: AtomicU8::new(0),
            tail: AtomicU64::new(0),
            descriptor: AtomicI32::new(-1),
            direct: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
        }
    }

    fn holds(&self) -> Use {
        match self.holds.load(SeqCst) {
            0 => Use::Free,
            1 => Use::Open,
            2 => Use::Closed,
            3 => Use::Kept,
            _ => Use::Taken,
        }
    }

    /// Whether a direct connection is or was open here.
    fn is_direct(&self) -> bool {
        self.direct.load(SeqCst) != 0
    }
}

/// The memory of a ring in the area.
#[derive(Debug)]
pub(crate) struct Mapped {
    place: usize,
    /// The lane that this task writes, and the one that it reads.
    pub outgoing: Lane,
    pub incoming: Lane,
}

impl Mapped {
    /// Maps the memory of a ring at a free place.
    ///
    /// # Errors
    /// [`Errno::NOMEM`] if no place is free, or the error of the system call.
    pub fn map(memory: impl AsFd, end: u8, wake: OwnedFd) -> Result<Self, Errno> {
        let (index, base) = take_place()?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the place is within the area, and this thread has taken it, so no other code of this
        // process uses it.
        let mapped = unsafe {
            mmap(base as *mut _, RING_BYTES, rights, flags, memory, 0)
                // A child of the user's program has no ring.
                .and_then(|_| madvise(base as *mut _, RING_BYTES, Advice::LinuxDontFork))
        };
        mapped.inspect_err(|_| give_back(index, true))?;
        let lanes = [Lane::at(base), Lane::at(base + LANE_BYTES)];
        let place = &PLACES[index];
        place.end.store(end & 1, Relaxed);
        place.tail.store(0, Relaxed);
        place.direct.store(0, Relaxed);
        place.descriptor.store(wake.into_raw_fd(), Relaxed);
        place.holds.store(Use::Open as u8, SeqCst);
        let [outgoing, incoming] = match end & 1 {
            0 => lanes,
            _ => [lanes[1], lanes[0]],
        };
        Ok(Mapped {
            place: index,
            outgoing,
            incoming,
        })
    }

    /// The content of the place now.
    pub fn holds(&self) -> Use {
        PLACES[self.place].holds()
    }

    /// The eventfd that wakes the peer, or -1.
    pub fn wake(&self) -> RawFd {
        PLACES[self.place].descriptor.load(Relaxed)
    }

    /// Notes how many slots of the incoming lane were read.
    pub fn note_tail(&self, tail: u64) {
        PLACES[self.place].tail.store(tail, Relaxed);
    }

    /// The lane in the reserve.
    pub fn kept(&self) -> Lane {
        Lane::at(RESERVE.load(Relaxed) + self.place * LANE_BYTES)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let kept = self.kept().base() as *mut _;
        // SAFETY: nobody reads the reserve of this place any more.
        let emptied = unsafe { madvise(kept, LANE_BYTES, Advice::LinuxDontNeed) };
        give_back(self.place, emptied.is_ok());
    }
}

/// The place of a direct connection in the area.
#[derive(Debug)]
pub(super) struct Private {
    place: usize,
}

impl Private {
    /// Takes a free place for a direct connection. A child of the user's program finds zeros there.
    ///
    /// # Errors
    /// [`Errno::NOMEM`] if no place is free, [`Errno::CONNRESET`] if the daemon has said already that the
    /// connection is closed, or the error of the system call.
    pub fn take(socket: OwnedFd, id: u64) -> Result<Self, Errno> {
        if is_early(id) {
            return Err(Errno::CONNRESET);
        }
        let (index, base) = take_place()?;
        // SAFETY: the place is within the area, and this thread has taken it, so no other code of this
        // process uses it.
        let wiped = unsafe { madvise(base as *mut _, RING_BYTES, Advice::LinuxWipeOnFork) };
        wiped.inspect_err(|_| give_back(index, true))?;
        let place = &PLACES[index];
        place.direct.store(id.max(1), Relaxed);
        place.is_lost.store(false, Relaxed);
        place.descriptor.store(socket.into_raw_fd(), Relaxed);
        place.holds.store(Use::Open as u8, SeqCst);
        // The handler may have run since the first look, and found no open place.
        if is_early(id) {
            place.is_lost.store(true, SeqCst);
        }
        Ok(Private { place: index })
    }

    /// Address of the [`RING_BYTES`] of the place.
    pub fn base(&self) -> usize {
        AREA.load(Relaxed) + self.place * RING_BYTES
    }

    /// Whether no freeze has closed the connection. Else the place has no keys.
    pub fn is_open(&self) -> bool {
        PLACES[self.place].holds() == Use::Open
    }

    /// Whether the daemon has said in an order that the connection is closed.
    pub fn is_lost(&self) -> bool {
        PLACES[self.place].is_lost.load(SeqCst)
    }

    /// The order of the daemon is carried out: all that is retained for the peer was sent again.
    pub fn lost_is_heeded(&self) {
        PLACES[self.place].is_lost.store(false, SeqCst);
    }

    /// The socket, or -1.
    pub fn socket(&self) -> RawFd {
        PLACES[self.place].descriptor.load(Relaxed)
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        shut_down(self.socket());
        give_back(self.place, true);
    }
}

/// Numbers of the direct connections that the daemon has closed last; this task may not have read of them
/// yet. 0: none.
static EARLY: [AtomicU64; RINGS_PER_TASK] = [const { AtomicU64::new(0) }; RINGS_PER_TASK];
static EARLY_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Takes a free place: its index and its address. It is [`Use::Taken`] until the caller has filled it,
/// and no other thread takes it.
fn take_place() -> Result<(usize, usize), Errno> {
    let area = reserve()?;
    let (free, taken) = (Use::Free as u8, Use::Taken as u8);
    let take = |place: &Place| {
        let taken = place.holds.compare_exchange(free, taken, SeqCst, Relaxed);
        taken.is_ok()
    };
    let index = PLACES.iter().position(take).ok_or(Errno::NOMEM)?;
    Ok((index, area + index * RING_BYTES))
}

/// Gives a place back, with memory of zeros and without a descriptor. If the memory cannot be
/// replaced, the place is not used again.
fn give_back(index: usize, reusable: bool) {
    let base = AREA.load(Relaxed) + index * RING_BYTES;
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the place stays mapped; threads that look at it find zeros.
    let freed = unsafe { mmap_anonymous(base as *mut _, RING_BYTES, rights, flags) };
    let place = &PLACES[index];
    close(place.descriptor.swap(-1, SeqCst));
    if freed.is_ok() && reusable {
        place.holds.store(Use::Free as u8, SeqCst);
    }
}

/// Ends the writing direction of a socket, behind all that was written.
fn shut_down(socket: RawFd) {
    if socket >= 0 {
        // SAFETY: the descriptor came with a direct connection, and is open as long as its place holds it.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        // The peer may have ended.
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
    }
}

/// Whether the daemon has closed the direct connection of that number.
fn is_early(id: u64) -> bool {
    EARLY.iter().any(|lost| lost.load(SeqCst) == id)
}

/// For signal handlers: the daemon says that the direct connection of that number is closed.
pub(crate) fn note_lost(id: u64) {
    // The number is noted before the places are looked at, for a thread that opens the place meanwhile.
    let index = EARLY_COUNT.fetch_add(1, SeqCst) % EARLY.len();
    EARLY[index].store(id, SeqCst);
    let has_id = |place: &&Place| place.direct.load(SeqCst) == id && place.holds() == Use::Open;
    // In a test both ends of a connection may be in this process.
    for place in PLACES.iter().filter(has_id) {
        place.is_lost.store(true, SeqCst);
    }
}

/// Closes a descriptor of this module, or none.
fn close(fd: RawFd) {
    if fd >= 0 {
        // SAFETY: the descriptor came with a ring, and nobody else knows of it.
        unsafe { rustix::io::close(fd) };
    }
}

/// Reserves the addresses, once.
fn reserve() -> Result<usize, Errno> {
    static RESERVING: Mutex<()> = Mutex::new(());
    let _one = RESERVING.lock().unwrap_or_else(PoisonError::into_inner);
    let area = AREA.load(SeqCst);
    if area != 0 {
        return Ok(area);
    }
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let all = AREA_BYTES + 2 * PAGE;
    // SAFETY: all of it is new memory.
    let (area, reserve) = unsafe {
        let whole = mmap_anonymous(null_mut(), all, ProtFlags::empty(), flags)? as usize;
        let inner = (whole + PAGE) as *mut _;
        mmap_anonymous(inner, AREA_BYTES, rights, flags | MapFlags::FIXED)?;
        let reserve = mmap_anonymous(null_mut(), RESERVE_BYTES + PAGE, rights, flags)?;
        (whole + PAGE, reserve as usize)
    };
    #[cfg(target_arch = "x86_64")]
    vm_image::leave_out(area..area + AREA_BYTES);
    claim(reserve)?;
    RESERVE.store(reserve, SeqCst);
    AREA.store(area, SeqCst);
    Ok(area)
}

/// How often a freeze has closed rings.
pub(crate) fn closes() -> u32 {
    CLOSES.load(SeqCst)
}

/// The eventfd that wakes this task, or -1.
pub(crate) fn wake() -> RawFd {
    WAKE.load(Relaxed)
}

/// Wakes the thread of this task that sleeps for rings, if one does.
pub(crate) fn wake_own() {
    super::writer::wake_by(WAKE.load(Relaxed));
}

/// Makes an eventfd that wakes this task, unless a ring has brought one. Without it, a thread that waits
/// learns of another one's wish when its time is over.
pub(crate) fn make_wake() {
    #[cfg(test)]
    if !crate::tests::process::is_alone() {
        return;
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    if wake() < 0
        && let Ok(fd) = eventfd(0, flags)
    {
        set_wake(fd);
    }
}

/// Notes the eventfd that wakes this task. It comes with each ring. It is another one only after all
/// rings of before were closed.
pub(crate) fn set_wake(fd: OwnedFd) {
    #[cfg(test)]
    assert!(
        crate::tests::process::is_alone(),
        "tasks of other tests would read this eventfd"
    );
    close(WAKE.swap(fd.into_raw_fd(), SeqCst));
}

/// Whether this process is the task, and not a child that the user's program has forked: a child has
/// no ring.
pub(crate) fn is_own() -> bool {
    match RESERVE.load(Relaxed) {
        0 => true,
        // SAFETY: the word is in the last page of the reserve, which is mapped, and is accessed as an
        // atomic only.
        reserve => unsafe { own_word(reserve) }.load(Relaxed) == 1,
    }
}

/// A word that is 0 in a child of this process.
///
/// # Safety
/// `reserve` is the address of the reserve.
unsafe fn own_word<'a>(reserve: usize) -> &'a AtomicU32 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr((reserve + RESERVE_BYTES) as *mut u32) }
}

/// Makes [`is_own`] true in this process, and false in its children.
fn claim(reserve: usize) -> Result<(), Errno> {
    let page = (reserve + RESERVE_BYTES) as *mut _;
    // SAFETY: the page is the last one of the reserve, and holds nothing but the word.
    unsafe {
        madvise(page, PAGE, Advice::LinuxWipeOnFork)?;
        own_word(reserve).store(1, SeqCst);
    }
    Ok(())
}

/// The descriptors of all rings and direct connections, for the image: unused entries are -1.
#[cfg(target_arch = "x86_64")]
pub(crate) fn descriptors() -> [RawFd; RINGS_PER_TASK + 1] {
    std::array::from_fn(|index| match PLACES.get(index) {
        Some(place) => place.descriptor.load(SeqCst),
        None => wake(),
    })
}

/// Closes all rings of a task that is frozen to be moved. See the module.
#[cfg(target_arch = "x86_64")]
pub(crate) fn close_all() {
    let (area, reserve) = (AREA.load(SeqCst), RESERVE.load(SeqCst));
    for (index, place) in PLACES.iter().enumerate() {
        if place.holds.load(SeqCst) != Use::Open as u8 {
            continue;
        }
        if place.is_direct() {
            shut_down(place.descriptor.load(SeqCst));
            place.holds.store(Use::Closed as u8, SeqCst);
            CLOSES.fetch_add(1, SeqCst);
            continue;
        }
        let base = area + index * RING_BYTES;
        let incoming = match place.end.load(SeqCst) {
            0 => base + LANE_BYTES,
            _ => base,
        };
        let lane = Lane::at(incoming);
        lane.set_state(super::lane::State::Closed);
        // The writer publishes, and then looks at the state; see `Lane::push`.
        std::sync::atomic::fence(SeqCst);
        let tail = place.tail.load(SeqCst);
        let unread = lane.number(tail).load(SeqCst) == tail + 1;
        if unread {
            let kept = reserve + index * LANE_BYTES;
            // SAFETY: both are mapped, have that length, and do not overlap. If the writer changes
            // bytes meanwhile, they are checked when they are read.
            unsafe {
                std::ptr::copy_nonoverlapping(incoming as *const u8, kept as *mut u8, LANE_BYTES);
            }
        }
        let holds = if unread { Use::Kept } else { Use::Closed };
        place.holds.store(holds as u8, SeqCst);
        CLOSES.fetch_add(1, SeqCst);
    }
}

/// This process was made of an image: its rings are those of another one. See the module.
#[cfg(target_arch = "x86_64")]
pub(crate) fn restored() {
    for place in &PLACES {
        if place.holds.load(SeqCst) == Use::Open as u8 {
            place.holds.store(Use::Closed as u8, SeqCst);
        }
        place.descriptor.store(-1, SeqCst);
    }
    WAKE.store(-1, SeqCst);
    let reserve = RESERVE.load(SeqCst);
    if reserve != 0 {
        // Without it, only children of the user's program are not recognised.
        let _ = claim(reserve);
    }
    CLOSES.fetch_add(1, SeqCst);
}
