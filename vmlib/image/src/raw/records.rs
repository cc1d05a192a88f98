//! The image format, as `docs/image-format.md` describes it: one stream, written and read in one
//! pass without a seek. All numbers are little-endian; all records here are plain memory without
//! padding, so that they are written and read as they are.
//!
//! An image is a [`Prefix`], then sections, each a [`Section`] header and its payload. The first
//! sections say what is to be known before memory is touched: [`FACTS`], [`NAMES`], [`THREADS`],
//! [`FILES`], [`MAPPINGS`]. Then come the memory, as [`PAGES`],
//! and what carried files held, as [`CONTENT`]. The last section is [`END`].
//!
//! A process that was saved in rounds has more before all that: [`CPU`], and of each early round a
//! [`SPACE`] and [`PAGES`]. Later pages take the place of earlier ones; [`GONE`], before the last
//! pages, names what has vanished.

use crate::raw::checksum::checksum;

/// The first bytes of an image.
pub const MAGIC: [u8; 8] = *b"VMIMAGE\n";
/// The format that this version writes, and the only one that it reads.
pub const VERSION: u32 = 3;
/// The first bytes of a section.
pub const SECTION_MAGIC: u32 = u32::from_le_bytes(*b"SECT");
/// ELF's number of x86-64.
pub const X86_64: u32 = 62;

/// Bytes of memory in one section, as written.
pub const BLOCK: usize = 1 << 20;
/// Bytes of one section, as accepted, raw or stored.
pub const SECTION_MAX: usize = 64 << 20;
/// Mappings of a process, as accepted; the kernel's own default limit is a little lower.
pub const MAPPINGS_MAX: usize = 1 << 16;
/// Bytes of names.
pub const NAMES_MAX: usize = 4 << 20;
/// Threads of a process.
pub const THREADS_MAX: usize = 4096;
/// Open descriptors of a process.
pub const FILES_MAX: usize = 4096;
/// Where the restorer is: no memory of a process may be there. The linker is told the first of
/// these addresses in `build.rs`.
pub const RESTORER: core::ops::Range<u64> = 0x2000_0000_0000..0x2000_1000_0000;

/// What a section is.
pub const FACTS: u16 = 1;
/// Text that records point into.
pub const NAMES: u16 = 2;
/// One [`ThreadRecord`] each.
pub const THREADS: u16 = 3;
/// One [`FileRecord`] each.
pub const FILES: u16 = 4;
/// One [`Mapping`] each, by address.
pub const MAPPINGS: u16 = 5;
/// Memory that belongs at [`Section::address`].
pub const PAGES: u16 = 6;
/// What a carried file held; [`Section::address`] is the number of its [`FileRecord`] times 2^48
/// plus the offset.
pub const CONTENT: u16 = 7;
/// Bits of a file's offset in that address.
pub const OFFSET_BITS: u32 = 48;

/// The address of a byte of a carried file: record `number`, `offset` bytes from its beginning. The
/// restorer puts the byte at this offset of the file of contents.
pub fn content_address(number: usize, offset: u64) -> u64 {
    ((number as u64) << OFFSET_BITS) + offset
}

/// The sections that memory is cut into.
pub fn blocks(ranges: &[[u64; 2]]) -> impl Iterator<Item = (u64, usize)> {
    ranges.iter().flat_map(|&[start, end]| {
        let starts = (start..end).step_by(BLOCK);
        starts.map(move |start| (start, BLOCK.min((end - start) as usize)))
    })
}

/// One [`End`]: the image is whole.
pub const END: u16 = 8;
/// One [`Mapping`] each, by address: an early round begins, saved while the process ran.
pub const SPACE: u16 = 9;
/// Pairs of addresses: memory of early rounds that has no content any more.
pub const GONE: u16 = 10;
/// One [`Cpu`], before early rounds: a host that cannot restore the image knows it at once.
pub const CPU: u16 = 11;

/// The payload is as it is.
pub const PLAIN: u16 = 0;
/// The payload is one LZ4 block.
pub const LZ4: u16 = 1;

/// A bit of the process's sixth argument: its files are to be rolled back.
pub const ROLL_BACK: u64 = 1;
/// From this bit on it has 1 more than the descriptor of a [`FolderMap`](super::folder_map), or 0.
pub const MAP_SHIFT: u32 = 32;

/// A mapping that only this process sees.
pub const PRIVATE: u32 = 0;
/// Shared memory without a name; mappings of one [`Mapping::object`] show the same memory.
pub const SHARED: u32 = 1;
/// A shared mapping of a file, which is opened again by its name.
pub const FILE: u32 = 2;

/// The mapping grows downwards: a main thread's stack.
pub const GROWS_DOWN: u32 = 1;
/// Most of it is in the image, so that large pages serve it well.
pub const DENSE: u32 = 2;
/// As good as all of it is in the image, so that it may be had before that comes.
pub const FULL: u32 = 4;

/// Text among the [`NAMES`].
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Name {
    /// Where it begins.
    pub at: u32,
    /// Its bytes.
    pub len: u32,
}

/// The beginning of an image.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// ELF's number of the architecture.
    pub machine: u32,
    /// Bytes.
    pub page_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Checksum of what is before.
    pub check: u64,
}

/// The head of a section.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// [`SECTION_MAGIC`].
    pub magic: u32,
    /// [`FACTS`] and so on.
    pub kind: u16,
    /// [`PLAIN`] or [`LZ4`].
    pub codec: u16,
    /// Sections before this one.
    pub index: u32,
    /// Zero.
    pub reserved: u32,
    /// Where it belongs.
    pub address: u64,
    /// Bytes of the content.
    pub raw_len: u64,
    /// Bytes of the payload that follows.
    pub stored_len: u64,
    /// Checksum of the content.
    pub content_check: u64,
    /// Zero.
    pub reserved_too: u64,
    /// Checksum of what is before.
    pub check: u64,
}

/// What a processor can do, as far as programs notice.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Leaf 1.
    pub leaf_1_ecx: u32,
    /// Leaf 1.
    pub leaf_1_edx: u32,
    /// Leaf 7, 0.
    pub leaf_7_ebx: u32,
    /// Leaf 7, 0.
    pub leaf_7_ecx: u32,
    /// Leaf 7, 0.
    pub leaf_7_edx: u32,
    /// Leaf 7, 1.
    pub leaf_7_1_eax: u32,
    /// Leaf 7, 1.
    pub leaf_7_1_edx: u32,
    /// Leaf 0xd, 1.
    pub leaf_d_1_eax: u32,
    /// Leaf 0x8000_0001.
    pub leaf_80000001_ecx: u32,
    /// Leaf 0x8000_0001.
    pub leaf_80000001_edx: u32,
    /// Leaf 0x8000_0008.
    pub leaf_80000008_ebx: u32,
    /// Bytes of the XSAVE area for the parts in [`Cpu::xcr0`].
    pub xsave_len: u32,
    /// The parts of a thread's state that the system keeps.
    pub xcr0: u64,
    /// Checksum of where these parts are in the area, see [`super::processor::Layout`].
    pub xsave_check: u64,
}

/// What the kernel knows of a process's memory (`struct prctl_mm_map`).
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct MemoryMap {
    /// Code.
    pub start_code: u64,
    /// Code.
    pub end_code: u64,
    /// Data.
    pub start_data: u64,
    /// Data.
    pub end_data: u64,
    /// Heap of `sbrk`.
    pub start_brk: u64,
    /// Heap of `sbrk`.
    pub brk: u64,
    /// Main thread's stack.
    pub start_stack: u64,
    /// Command line.
    pub arg_start: u64,
    /// Command line.
    pub arg_end: u64,
    /// Environment.
    pub env_start: u64,
    /// Environment.
    pub env_end: u64,
    /// Auxiliary vector, an address.
    pub auxv: u64,
    /// Its bytes.
    pub auxv_size: u32,
    /// The program's file, or !0: left as it is.
    pub exe_fd: u32,
}

/// The host, and where the process resumes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The processor.
    pub cpu: Cpu,
    /// Wall clock at the save. Nanoseconds since 1970.
    pub saved_at_ns: u64,
    /// `CLOCK_MONOTONIC` at the save. Nanoseconds.
    pub monotonic_ns: u64,
    /// Process id at the save.
    pub pid: u32,
    /// Threads.
    pub threads: u32,
    /// The kernel's release.
    pub kernel: Name,
    /// The host's name.
    pub host: Name,
    /// The program's file.
    pub exe: Name,
    /// Bytes of the program's file.
    pub exe_size: u64,
    /// Its time of change. Nanoseconds since 1970.
    pub exe_changed_ns: u64,
    /// The file that the library is in: the program's own, or one of its own.
    pub library: Name,
    /// The command line; arguments end with NUL.
    pub command: Name,
    /// The working directory.
    pub dir: Name,
    /// The process's name.
    pub comm: Name,
    /// The kernel's pages for user code: first address of the data before the vdso.
    pub vdso_area: u64,
    /// Bytes from there to the vdso's end.
    pub vdso_area_len: u64,
    /// The vdso.
    pub vdso: u64,
    /// Its bytes.
    pub vdso_len: u64,
    /// Checksum of its bytes.
    pub vdso_check: u64,
    /// Where the saved library keeps a copy of the vdso's bytes.
    pub vdso_copy: u64,
    /// Where the process resumes.
    pub entry: u64,
    /// The stack there: the first address above it.
    pub stack: u64,
    /// What it finds in its first argument.
    pub argument: u64,
    /// For `prctl(PR_SET_MM_MAP)`.
    pub memory: MemoryMap,
    /// The user that it ran as (the effective one).
    pub user: u32,
    /// Its group, likewise.
    pub group: u32,
    /// 1: its ids are one number each, and it had no capability: any other ordinary user may
    /// restore it as himself.
    pub ordinary: u32,
    /// Zero.
    pub reserved: u32,
}

/// A thread, for people.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadRecord {
    /// Its id at the save.
    pub tid: u32,
    /// Zero.
    pub reserved: u32,
    /// Its name, ended by NUL.
    pub name: [u8; 16],
}

/// An open descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FileRecord {
    /// Number.
    pub fd: u32,
    /// [`FD_FILE`] and so on.
    pub kind: u32,
    /// As for `open`.
    pub flags: u32,
    /// The descriptor that this one is a duplicate of; its own number if of none.
    pub original: u32,
    /// File position.
    pub offset: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Checksum of the content up to [`FileRecord::checked`].
    pub check: u64,
    /// Bytes that the checksum covers.
    pub checked: u64,
    /// Device of the file.
    pub device: u64,
    /// Its number there; of a pipe or the like, the kernel's.
    pub inode: u64,
    /// Its path, or what it is.
    pub name: Name,
    /// Of a pipe, what is in it: an address in the image.
    pub content: u64,
    /// Of a pipe, the bytes in it.
    pub content_len: u32,
    /// 1: closed by `exec`.
    pub close_on_exec: u32,
    /// Its type and rights, as `stat` tells them.
    pub mode: u32,
    /// 1: the image has its content.
    pub carried: u32,
    /// Who owns the file.
    pub user: u32,
    /// The group that it belongs to.
    pub group: u32,
}

/// A regular file or a directory, opened again by its path.
pub const FD_FILE: u32 = 1;
/// `/dev/null` and its like, opened again by its path.
pub const FD_DEVICE: u32 = 2;
/// Taken over from the restoring process, under the same number.
pub const FD_INHERITED: u32 = 3;
/// One end of a pipe within the process.
pub const FD_PIPE: u32 = 4;
/// A regular file that has no name any more. Its content is in the image, with the first record of
/// the same device and inode.
pub const FD_UNNAMED: u32 = 5;
/// A file of the kernel's, as those of `/proc` and `/sys`: opened again by its path, and not
/// compared.
pub const FD_KERNEL: u32 = 6;

/// A mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind.
    pub end: u64,
    /// `PROT_READ` and so on.
    pub prot: u32,
    /// [`PRIVATE`], [`SHARED`] or [`FILE`].
    pub kind: u32,
    /// [`GROWS_DOWN`] and so on.
    pub flags: u32,
    /// Of shared memory: which.
    pub object: u32,
    /// Where in the file or shared memory it begins.
    pub offset: u64,
    /// Of shared memory: its bytes, as far as mapped.
    pub object_len: u64,
    /// File or label.
    pub name: Name,
}

/// The last section.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Sections before.
    pub sections: u64,
    /// Bytes of the image before this section's head.
    pub bytes: u64,
    /// The gathered checksums of all heads before (`mixed`, added up).
    pub sum: u64,
}

/// Records that are plain memory.
///
/// # Safety
/// No padding, and every pattern of bits is a value.
pub unsafe trait Plain: Copy {
    /// Bytes of one.
    const LEN: usize = size_of::<Self>();

    /// As bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: it has no padding.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), Self::LEN) }
    }

    /// Some of them, as bytes.
    fn all_bytes(all: &[Self]) -> &[u8] {
        // SAFETY: they have no padding.
        unsafe { core::slice::from_raw_parts(all.as_ptr().cast(), size_of_val(all)) }
    }

    /// From the first bytes; `None` if there are too few.
    fn from_prefix(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::LEN)?;
        // SAFETY: there are enough bytes, any of them are a value, alignment does not matter.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

// SAFETY: made of integers, without padding, as the sizes below show.
unsafe impl Plain for Prefix {}
// SAFETY: as above.
unsafe impl Plain for Section {}
// SAFETY: as above.
unsafe impl Plain for Cpu {}
// SAFETY: as above.
unsafe impl Plain for Facts {}
// SAFETY: as above.
unsafe impl Plain for ThreadRecord {}
// SAFETY: as above.
unsafe impl Plain for FileRecord {}
// SAFETY: as above.
unsafe impl Plain for Mapping {}
// SAFETY: as above.
unsafe impl Plain for End {}

const _: () = assert!(size_of::<Prefix>() == 32);
const _: () = assert!(size_of::<Section>() == 64);
const _: () = assert!(size_of::<Cpu>() == 64);
const _: () = assert!(size_of::<MemoryMap>() == 104);
const _: () = assert!(size_of::<Facts>() == 64 + 2 * 8 + 2 * 4 + 7 * 8 + 11 * 8 + 104 + 4 * 4);
const _: () = assert!(size_of::<ThreadRecord>() == 24);
const _: () = assert!(size_of::<FileRecord>() == 104);
const _: () = assert!(size_of::<Mapping>() == 56);
const _: () = assert!(size_of::<End>() == 24);

impl FileRecord {
    /// Whether both are descriptors of one file.
    pub fn is_same_file(&self, other: &FileRecord) -> bool {
        (self.kind, self.device, self.inode) == (other.kind, other.device, other.inode)
    }

    /// Whether it can be written through this descriptor.
    pub fn is_writable(&self) -> bool {
        // O_WRONLY, O_RDWR; not O_PATH.
        self.flags & 3 != 0 && self.flags & 0o10_000_000 == 0
    }

    /// Whether the file may have grown since the save: it is one that the process writes.
    pub fn may_grow(&self, all: &[FileRecord]) -> bool {
        all.iter()
            .any(|other| other.is_same_file(self) && other.is_writable())
    }

    /// Whether what the file held may have been changed since the save: the process writes it, and
    /// not only at its end.
    pub fn may_change(&self, all: &[FileRecord]) -> bool {
        // O_APPEND.
        all.iter().any(|other| {
            other.is_same_file(self) && other.is_writable() && other.flags & 0o2000 == 0
        })
    }

    /// Whether it is a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

impl Prefix {
    /// The prefix of an image of this machine.
    pub fn new(machine: u32, page_size: u32) -> Self {
        let mut prefix = Prefix {
            magic: MAGIC,
            version: VERSION,
            machine,
            page_size,
            reserved: 0,
            check: 0,
        };
        prefix.check = prefix.sum();
        prefix
    }

    /// What its checksum has to be.
    pub fn sum(&self) -> u64 {
        checksum(&self.bytes()[..Self::LEN - 8])
    }
}

impl Section {
    /// The head of a plain section.
    pub fn new(kind: u16, index: u32, address: u64, content: &[u8]) -> Self {
        Self::of(kind, index, address, (content.len(), checksum(content)))
    }

    /// The same, of a content of that length that has this checksum.
    pub fn of(kind: u16, index: u32, address: u64, (len, content_check): (usize, u64)) -> Self {
        let mut section = Section {
            magic: SECTION_MAGIC,
            kind,
            codec: PLAIN,
            index,
            reserved: 0,
            address,
            raw_len: len as u64,
            stored_len: len as u64,
            content_check,
            reserved_too: 0,
            check: 0,
        };
        section.check = section.sum();
        section
    }

    /// The same, with the content as one LZ4 block of that length.
    pub fn compressed(self, stored_len: u64) -> Self {
        let mut section = Section {
            codec: LZ4,
            stored_len,
            ..self
        };
        section.check = section.sum();
        section
    }

    /// What its checksum has to be.
    pub fn sum(&self) -> u64 {
        checksum(&self.bytes()[..Self::LEN - 8])
    }

    /// Whether it may come now, as number `index`.
    pub fn is_good(&self, index: u32) -> bool {
        self.magic == SECTION_MAGIC
            && self.check == self.sum()
            && self.index == index
            && self.raw_len <= SECTION_MAX as u64
            && self.stored_len <= SECTION_MAX as u64
            && (self.codec != PLAIN || self.raw_len == self.stored_len)
    }
}
