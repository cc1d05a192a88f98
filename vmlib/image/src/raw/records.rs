//! The records of the image format, which `docs/image-format.md` describes. An image is one stream,
//! written and read in one pass without a seek. All numbers are little-endian. All records here are
//! plain memory without padding, so they are written and read as they are.
//!
//! An image is a [`Prefix`], then sections, each a [`Section`] head and its payload. The first
//! sections have what the restorer needs before it changes memory: [`FACTS`], [`NAMES`],
//! [`THREADS`], [`FILES`], [`MAPPINGS`]. Then come the memory, as [`PAGES`], and the content of
//! carried files, as [`CONTENT`]. The last section is [`END`].
//!
//! The image of a process that was saved in pre-copy rounds has more sections before these:
//! [`CPU`], and for each early round a [`SPACE`] and [`PAGES`]. Later pages replace earlier ones.
//! [`GONE`], before the last pages, lists memory that has no content any more.

use crate::raw::checksum::checksum;

/// The first bytes of an image.
pub const MAGIC: [u8; 8] = *b"VMIMAGE\n";
/// The version of the format that this library writes, and the only one that it reads.
pub const VERSION: u32 = 3;
/// The first bytes of a section.
pub const SECTION_MAGIC: u32 = u32::from_le_bytes(*b"SECT");
/// ELF's number of x86-64.
pub const X86_64: u32 = 62;

/// The limit of memory in one section, as written. Bytes.
pub const BLOCK: usize = 1 << 20;
/// The limit of a section that is read, for its content and its payload each. Bytes.
pub const SECTION_MAX: usize = 64 << 20;
/// The limit of mappings of a process. The kernel's default limit is a little lower.
pub const MAPPINGS_MAX: usize = 1 << 16;
/// The limit of all names together. Bytes.
pub const NAMES_MAX: usize = 4 << 20;
/// The limit of threads of a process.
pub const THREADS_MAX: usize = 4096;
/// The limit of open descriptors of a process.
pub const FILES_MAX: usize = 4096;
/// The addresses of the restorer, where a saved process must not have memory. `build.rs` passes the
/// first address to the linker.
pub const RESTORER: core::ops::Range<u64> = 0x2000_0000_0000..0x2000_1000_0000;

/// Kind of a section: one [`Facts`].
pub const FACTS: u16 = 1;
/// Kind of a section: text that records point into.
pub const NAMES: u16 = 2;
/// Kind of a section: one [`ThreadRecord`] for each thread.
pub const THREADS: u16 = 3;
/// Kind of a section: one [`FileRecord`] for each open descriptor.
pub const FILES: u16 = 4;
/// Kind of a section: one [`Mapping`] for each mapping, ascending by address.
pub const MAPPINGS: u16 = 5;
/// Kind of a section: memory for the address [`Section::address`].
pub const PAGES: u16 = 6;
/// Kind of a section: content of a carried file. [`Section::address`] is the number of its
/// [`FileRecord`] times 2^48 plus the offset in the file.
pub const CONTENT: u16 = 7;
/// The number of bits of the offset in the address of a [`CONTENT`].
pub const OFFSET_BITS: u32 = 48;

/// The address of the byte at `offset` of the carried file with record `number`. The restorer puts
/// the byte at this offset of the file of carried content.
pub fn content_address(number: usize, offset: u64) -> u64 {
    ((number as u64) << OFFSET_BITS) + offset
}

/// Divides memory into the ranges that get one section each, as address and length.
pub fn blocks(ranges: &[[u64; 2]]) -> impl Iterator<Item = (u64, usize)> {
    ranges.iter().flat_map(|&[start, end]| {
        let starts = (start..end).step_by(BLOCK);
        starts.map(move |start| (start, BLOCK.min((end - start) as usize)))
    })
}

/// Kind of a section: one [`End`], after which the image is whole.
pub const END: u16 = 8;
/// Kind of a section: one [`Mapping`] each, ascending by address. An early round begins, which was
/// saved while the process ran.
pub const SPACE: u16 = 9;
/// Kind of a section: pairs of addresses of memory that early rounds have sent and that has no
/// content any more.
pub const GONE: u16 = 10;
/// Kind of a section: one [`Cpu`] before the early rounds, so that an unsuitable host refuses the
/// image before memory comes.
pub const CPU: u16 = 11;

/// Codec: the payload is the content.
pub const PLAIN: u16 = 0;
/// Codec: the payload is one LZ4 block.
pub const LZ4: u16 = 1;

/// Bit of the sixth argument of the image's entry: the files of the process are to be rolled back.
pub const ROLL_BACK: u64 = 1;
/// The bits of that argument from this one on are 1 more than the descriptor of a
/// [`FolderMap`](super::folder_map), or 0.
pub const MAP_SHIFT: u32 = 32;

/// Kind of a mapping: private memory.
pub const PRIVATE: u32 = 0;
/// Kind of a mapping: shared memory without a name. Mappings of one [`Mapping::object`] show the
/// same memory.
pub const SHARED: u32 = 1;
/// Kind of a mapping: a shared mapping of a file, which the restore opens by its name.
pub const FILE: u32 = 2;

/// Flag of a mapping: it grows downwards, as the first thread's stack.
pub const GROWS_DOWN: u32 = 1;
/// Flag of a mapping: most of its memory is in the image, so large pages pay.
pub const DENSE: u32 = 2;
/// Flag of a mapping: nearly all its memory is in the image, so it may be allocated before its
/// pages come.
pub const FULL: u32 = 4;

/// A text in [`NAMES`].
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Name {
    /// The offset of the text. Bytes.
    pub at: u32,
    /// The length of the text. Bytes.
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
    /// The size of a page. Bytes.
    pub page_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Checksum of the fields before.
    pub check: u64,
}

/// The head of a section.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// [`SECTION_MAGIC`].
    pub magic: u32,
    /// The kind: [`FACTS`] or another one.
    pub kind: u16,
    /// The codec: [`PLAIN`] or [`LZ4`].
    pub codec: u16,
    /// The number of sections before this one.
    pub index: u32,
    /// Zero.
    pub reserved: u32,
    /// The address of [`PAGES`] or [`CONTENT`]; else zero.
    pub address: u64,
    /// Length of the content. Bytes.
    pub raw_len: u64,
    /// Length of the payload, which follows. Bytes.
    pub stored_len: u64,
    /// Checksum of the content, before compression.
    pub content_check: u64,
    /// Zero.
    pub reserved_too: u64,
    /// Checksum of the fields before.
    pub check: u64,
}

/// The features of a processor that programs can depend on, as CPUID reports them.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Register ECX of leaf 1.
    pub leaf_1_ecx: u32,
    /// Register EDX of leaf 1.
    pub leaf_1_edx: u32,
    /// Register EBX of leaf 7, sub-leaf 0.
    pub leaf_7_ebx: u32,
    /// Register ECX of leaf 7, sub-leaf 0.
    pub leaf_7_ecx: u32,
    /// Register EDX of leaf 7, sub-leaf 0.
    pub leaf_7_edx: u32,
    /// Register EAX of leaf 7, sub-leaf 1.
    pub leaf_7_1_eax: u32,
    /// Register EDX of leaf 7, sub-leaf 1.
    pub leaf_7_1_edx: u32,
    /// Register EAX of leaf 0xd, sub-leaf 1.
    pub leaf_d_1_eax: u32,
    /// Register ECX of leaf 0x8000_0001.
    pub leaf_80000001_ecx: u32,
    /// Register EDX of leaf 0x8000_0001.
    pub leaf_80000001_edx: u32,
    /// Register EBX of leaf 0x8000_0008.
    pub leaf_80000008_ebx: u32,
    /// Length of the XSAVE area for the parts in [`Cpu::xcr0`]. Bytes.
    pub xsave_len: u32,
    /// The parts of a thread's state that the kernel keeps, as bits.
    pub xcr0: u64,
    /// Checksum of the places of these parts in the area, see [`super::processor::Layout`].
    pub xsave_check: u64,
}

/// The kernel's addresses of a process's memory (`struct prctl_mm_map`).
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct MemoryMap {
    /// First address of the code.
    pub start_code: u64,
    /// First address behind the code.
    pub end_code: u64,
    /// First address of the data.
    pub start_data: u64,
    /// First address behind the data.
    pub end_data: u64,
    /// First address of the heap of `sbrk`.
    pub start_brk: u64,
    /// End of the heap of `sbrk`.
    pub brk: u64,
    /// Address of the first thread's stack at the program's start.
    pub start_stack: u64,
    /// First address of the command line.
    pub arg_start: u64,
    /// First address behind the command line.
    pub arg_end: u64,
    /// First address of the environment.
    pub env_start: u64,
    /// First address behind the environment.
    pub env_end: u64,
    /// Address of the auxiliary vector.
    pub auxv: u64,
    /// Length of the auxiliary vector. Bytes.
    pub auxv_size: u32,
    /// A descriptor of the program's file; all ones: the file stays as it is.
    pub exe_fd: u32,
}

/// The host of the save, and the address at which the process resumes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The processor of the host.
    pub cpu: Cpu,
    /// Wall clock at the save. Nanoseconds since 1970.
    pub saved_at_ns: u64,
    /// `CLOCK_MONOTONIC` at the save. Nanoseconds.
    pub monotonic_ns: u64,
    /// The process id at the save.
    pub pid: u32,
    /// The number of threads.
    pub threads: u32,
    /// The release of the kernel.
    pub kernel: Name,
    /// The name of the host.
    pub host: Name,
    /// The path of the program's file.
    pub exe: Name,
    /// Size of the program's file. Bytes.
    pub exe_size: u64,
    /// Time of change of the program's file. Nanoseconds since 1970.
    pub exe_changed_ns: u64,
    /// The path of the file that contains the library: the program's own, or another.
    pub library: Name,
    /// The command line; each argument ends with NUL.
    pub command: Name,
    /// The working directory.
    pub dir: Name,
    /// The name of the process.
    pub comm: Name,
    /// First address of the kernel's pages for user code: the data before the vdso.
    pub vdso_area: u64,
    /// Length from there to the end of the vdso. Bytes.
    pub vdso_area_len: u64,
    /// First address of the vdso.
    pub vdso: u64,
    /// Length of the vdso. Bytes.
    pub vdso_len: u64,
    /// Checksum of the vdso's bytes.
    pub vdso_check: u64,
    /// Address of the copy of the vdso in the saved memory.
    pub vdso_copy: u64,
    /// Address of the first instruction after the restore.
    pub entry: u64,
    /// First address above the stack for that instruction.
    pub stack: u64,
    /// The first argument for that instruction.
    pub argument: u64,
    /// The argument for `prctl(PR_SET_MM_MAP)`.
    pub memory: MemoryMap,
    /// The effective user id of the process.
    pub user: u32,
    /// The effective group id of the process.
    pub group: u32,
    /// 1: the process's user ids are one number, not root's, its group ids are one number, and it
    /// had no capability. Any other ordinary user may restore such a process, which then runs as
    /// that user. Else 0.
    pub ordinary: u32,
    /// Zero.
    pub reserved: u32,
}

/// A thread, for display only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadRecord {
    /// The thread id at the save.
    pub tid: u32,
    /// Zero.
    pub reserved: u32,
    /// The name of the thread, ended by NUL.
    pub name: [u8; 16],
}

/// An open descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FileRecord {
    /// The descriptor number.
    pub fd: u32,
    /// The kind: [`FD_FILE`] or another one.
    pub kind: u32,
    /// Flags as for `open`.
    pub flags: u32,
    /// The descriptor that this one is a duplicate of; its own number if of none.
    pub original: u32,
    /// The file position. Bytes.
    pub offset: u64,
    /// Size of the file. Bytes.
    pub size: u64,
    /// Checksum of the first [`FileRecord::checked`] bytes of the file.
    pub check: u64,
    /// The number of bytes that the checksum covers; 0 if the file could not be read.
    pub checked: u64,
    /// The device of the file.
    pub device: u64,
    /// The inode of the file; of a pipe, the kernel's number.
    pub inode: u64,
    /// The path of the file, or a description.
    pub name: Name,
    /// Of a pipe: the address of its content in the image.
    pub content: u64,
    /// Of a pipe: length of its content. Bytes.
    pub content_len: u32,
    /// 1: closed when a program is executed; else 0.
    pub close_on_exec: u32,
    /// Type and rights of the file, `st_mode` of `stat`.
    pub mode: u32,
    /// 1: the image carries the content of the file; else 0.
    pub carried: u32,
    /// The user id of the file's owner.
    pub user: u32,
    /// The group id of the file.
    pub group: u32,
}

/// Kind of a descriptor: a regular file or directory, which the restore opens by path.
pub const FD_FILE: u32 = 1;
/// Kind of a descriptor: `/dev/null` or a similar device, which the restore opens by path.
pub const FD_DEVICE: u32 = 2;
/// Kind of a descriptor: inherited from the restoring process, under the same number.
pub const FD_INHERITED: u32 = 3;
/// Kind of a descriptor: one end of a pipe within the process.
pub const FD_PIPE: u32 = 4;
/// Kind of a descriptor: a regular file that has no name any more. The image carries its content
/// with the first record of the same device and inode.
pub const FD_UNNAMED: u32 = 5;
/// Kind of a descriptor: a file of the kernel's, in `/proc` or `/sys`. The restore opens it by path
/// and does not compare it.
pub const FD_KERNEL: u32 = 6;

/// A mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address, a multiple of the page size.
    pub start: u64,
    /// First address behind the mapping.
    pub end: u64,
    /// Protection: `PROT_READ` and other bits.
    pub prot: u32,
    /// The kind: [`PRIVATE`], [`SHARED`] or [`FILE`].
    pub kind: u32,
    /// Flags: [`GROWS_DOWN`], [`DENSE`], [`FULL`].
    pub flags: u32,
    /// Of shared memory: the number of the object.
    pub object: u32,
    /// Offset of the mapping in the file or object. Bytes.
    pub offset: u64,
    /// Of shared memory: length of the object, as far as it is mapped. Bytes.
    pub object_len: u64,
    /// The path of the file, or a label.
    pub name: Name,
}

/// The content of the last section.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The number of sections before this one.
    pub sections: u64,
    /// Length of the image before this section's head. Bytes.
    pub bytes: u64,
    /// The gathered checksums of all heads before: the sum of `mixed` of each.
    pub sum: u64,
}

/// Records that are plain memory.
///
/// # Safety
/// The type has no padding, and every pattern of bits is a value.
pub unsafe trait Plain: Copy {
    /// Length of a record. Bytes.
    const LEN: usize = size_of::<Self>();

    /// The bytes of this record.
    fn bytes(&self) -> &[u8] {
        // SAFETY: the record has no padding.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), Self::LEN) }
    }

    /// The bytes of several records.
    fn all_bytes(all: &[Self]) -> &[u8] {
        // SAFETY: the records have no padding.
        unsafe { core::slice::from_raw_parts(all.as_ptr().cast(), size_of_val(all)) }
    }

    /// The record that the first bytes are; `None` if there are too few.
    fn from_prefix(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::LEN)?;
        // SAFETY: there are enough bytes, any of them are a value, and alignment does not matter.
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
    /// Whether both are descriptors of the same file.
    pub fn is_same_file(&self, other: &FileRecord) -> bool {
        (self.kind, self.device, self.inode) == (other.kind, other.device, other.inode)
    }

    /// Whether the file can be written through this descriptor.
    pub fn is_writable(&self) -> bool {
        // O_WRONLY or O_RDWR, and not O_PATH.
        self.flags & 3 != 0 && self.flags & 0o10_000_000 == 0
    }

    /// Whether the file may have grown since the save: the process can write it.
    pub fn may_grow(&self, all: &[FileRecord]) -> bool {
        all.iter()
            .any(|other| other.is_same_file(self) && other.is_writable())
    }

    /// Whether the content of the file may have changed since the save: the process can write it
    /// elsewhere than at its end.
    pub fn may_change(&self, all: &[FileRecord]) -> bool {
        // Descriptors without O_APPEND.
        all.iter().any(|other| {
            other.is_same_file(self) && other.is_writable() && other.flags & 0o2000 == 0
        })
    }

    /// Whether the descriptor is of a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

impl Prefix {
    /// The prefix of an image for this machine.
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

    /// The correct checksum of the prefix.
    pub fn sum(&self) -> u64 {
        checksum(&self.bytes()[..Self::LEN - 8])
    }
}

impl Section {
    /// The head of a plain section.
    pub fn new(kind: u16, index: u32, address: u64, content: &[u8]) -> Self {
        Self::of(kind, index, address, (content.len(), checksum(content)))
    }

    /// The head of a plain section whose content has this length and checksum.
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

    /// The same head for a content that is stored as one LZ4 block of this length.
    pub fn compressed(self, stored_len: u64) -> Self {
        let mut section = Section {
            codec: LZ4,
            stored_len,
            ..self
        };
        section.check = section.sum();
        section
    }

    /// The correct checksum of the head.
    pub fn sum(&self) -> u64 {
        checksum(&self.bytes()[..Self::LEN - 8])
    }

    /// Whether the head is undamaged, is that of section number `index`, and keeps the limits.
    pub fn is_good(&self, index: u32) -> bool {
        self.magic == SECTION_MAGIC
            && self.check == self.sum()
            && self.index == index
            && self.raw_len <= SECTION_MAX as u64
            && self.stored_len <= SECTION_MAX as u64
            && (self.codec != PLAIN || self.raw_len == self.stored_len)
    }
}
