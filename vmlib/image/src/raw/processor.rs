//! The processor of this host: its features, as far as programs can notice them, and what it lacks
//! compared with the processor of an image.
//!
//! `unsafe` is here for one instruction, which reads the parts of a thread's state that the kernel
//! keeps.

use crate::raw::{
    checksum::checksum,
    features::{self, Feature},
    records::{Cpu, Plain as _},
};
use core::{
    arch::x86_64::{__cpuid, __cpuid_count, _xgetbv, CpuidResult},
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Bits of XCR0 whose parts have no fixed place: all but x87 and SSE.
const EXTENDED: core::ops::Range<u32> = 2..63;
/// Bytes of the XSAVE area with fixed places: x87, SSE and the header.
const FIXED: u32 = 576;

/// The places of the parts of a thread's state in the XSAVE area, in the standard format. The
/// kernel writes that area into signal frames, and reads it from there. Processors of one vendor
/// have the same layout; those of two vendors differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Offset and size of each part, by its bit in XCR0. Bytes.
    parts: [[u32; 2]; 64],
}

impl Layout {
    /// The layout of this host, for the parts in `xcr0`.
    pub fn here(xcr0: u64) -> Self {
        let mut parts = [[0; 2]; 64];
        for bit in EXTENDED.filter(|bit| xcr0 & (1 << bit) != 0) {
            let leaf = __cpuid_count(0xd, bit);
            parts[bit as usize] = [leaf.ebx, leaf.eax];
        }
        Layout { parts }
    }

    /// The length of the area for the parts in `xcr0`, in bytes, and a checksum of their offsets
    /// and sizes.
    pub fn of(&self, xcr0: u64) -> (u32, u64) {
        if xcr0 == 0 {
            return (0, 0);
        }
        let mut bytes = [0; 8 * 64];
        let (mut len, mut end) = (0, FIXED);
        for bit in EXTENDED.filter(|bit| xcr0 & (1 << bit) != 0) {
            let [offset, size] = self.parts[bit as usize];
            bytes[len..len + 4].copy_from_slice(&offset.to_le_bytes());
            bytes[len + 4..len + 8].copy_from_slice(&size.to_le_bytes());
            (len, end) = (len + 8, end.max(offset.saturating_add(size)));
        }
        (end, checksum(&bytes[..len]))
    }
}

/// Reads the features of this host's processor. Slow on a virtual machine: there are some fifteen
/// CPUID instructions of up to 70 microseconds each. [`known`] reads them once.
pub fn here() -> Cpu {
    const OSXSAVE: u32 = 1 << 27;
    // For a leaf above the last one, a processor returns the values of another leaf.
    let (last, last_extended) = (__cpuid(0).eax, __cpuid(0x8000_0000).eax);
    let leaf = |number: u32, sub: u32| {
        let last = match number {
            0x8000_0000.. => last_extended,
            _ => last,
        };
        match number <= last {
            true => __cpuid_count(number, sub),
            false => CpuidResult {
                eax: 0,
                ebx: 0,
                ecx: 0,
                edx: 0,
            },
        }
    };
    let (one, seven) = (leaf(1, 0), leaf(7, 0));
    // Leaf 7 reports the number of its sub-leaves.
    let seven_one = leaf(if seven.eax >= 1 { 7 } else { u32::MAX }, 1);
    let extended = leaf(0x8000_0001, 0);
    let xcr0 = match one.ecx & OSXSAVE {
        0 => 0,
        // SAFETY: with OSXSAVE the processor has the instruction, and the kernel allows it.
        _ => unsafe { parts() },
    };
    let (xsave_len, xsave_check) = Layout::here(xcr0).of(xcr0);
    Cpu {
        leaf_1_ecx: one.ecx,
        leaf_1_edx: one.edx,
        leaf_7_ebx: seven.ebx,
        leaf_7_ecx: seven.ecx,
        leaf_7_edx: seven.edx,
        leaf_7_1_eax: seven_one.eax,
        leaf_7_1_edx: seven_one.edx,
        leaf_d_1_eax: leaf(0xd, 1).eax,
        leaf_80000001_ecx: extended.ecx,
        leaf_80000001_edx: extended.edx,
        leaf_80000008_ebx: leaf(0x8000_0008, 0).ebx,
        xsave_len,
        xcr0,
        xsave_check,
    }
}

#[target_feature(enable = "xsave")]
fn parts() -> u64 {
    // SAFETY: only called where the kernel has turned XSAVE on; register 0 always exists.
    unsafe { _xgetbv(0) }
}

/// A property that a processor lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A feature, so that instructions of the program may be missing.
    Feature(Feature),
    /// A part of the state of threads, by its bit in XCR0: these registers would be lost without an
    /// error.
    Part(u32),
    /// The places of the registers in signal frames.
    Layout,
}

/// The features that a host lacks compared with the processor of an image.
pub fn lacks<'a>(
    image: &'a Cpu,
    here: &'a Cpu,
    layout: &Layout,
) -> impl Iterator<Item = Lack> + 'a {
    let parts = image.xcr0 & !here.xcr0;
    // A missing part has no place to compare.
    let moved = parts == 0 && layout.of(image.xcr0) != (image.xsave_len, image.xsave_check);
    features::missing(image, here)
        .map(Lack::Feature)
        .chain(
            (0..u64::BITS)
                .filter(move |bit| parts & (1 << bit) != 0)
                .map(Lack::Part),
        )
        .chain(moved.then_some(Lack::Layout))
}

/// The result that [`known`] keeps. The first word holds leaf 1, which is zero on no processor.
static KNOWN: [AtomicU64; Cpu::LEN / 8] = [const { AtomicU64::new(0) }; Cpu::LEN / 8];

/// As [`here`], but read only once until [`forget`].
pub fn known() -> Cpu {
    let mut bytes = [0; Cpu::LEN];
    let (words, _) = bytes.as_chunks_mut::<8>();
    if KNOWN[0].load(Acquire) == 0 {
        let cpu = here();
        let (found, _) = cpu.bytes().as_chunks::<8>();
        // The first word is stored last: when it is set, all words are.
        for (known, word) in KNOWN.iter().zip(found).rev() {
            known.store(u64::from_ne_bytes(*word), Release);
        }
    }
    for (word, known) in words.iter_mut().zip(&KNOWN) {
        *word = known.load(Relaxed).to_ne_bytes();
    }
    Cpu::from_prefix(&bytes).unwrap_or_default()
}

/// Has [`known`] read the processor again, in a restored process that may be on another host.
pub fn forget() {
    KNOWN[0].store(0, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_xsave_area_has_the_length_that_the_processor_reports() {
        let cpu = here();
        assert_ne!(cpu.leaf_1_edx, 0);
        if cpu.xcr0 != 0 {
            assert_eq!(cpu.xsave_len, __cpuid_count(0xd, 0).ebx);
        }
    }

    #[test]
    fn the_cached_processor_is_that_of_the_host_also_after_forget() {
        assert_eq!(known(), here());
        forget();
        assert_eq!(known(), here());
    }

    #[test]
    fn a_host_lacks_nothing_of_itself_or_of_a_host_with_fewer_registers() {
        let cpu = here();
        let layout = Layout::here(cpu.xcr0);
        assert_eq!(lacks(&cpu, &cpu, &layout).count(), 0);
        let mut fewer = cpu;
        fewer.xcr0 &= 7;
        (fewer.xsave_len, fewer.xsave_check) = layout.of(fewer.xcr0);
        assert_eq!(lacks(&fewer, &cpu, &layout).count(), 0);
    }

    #[test]
    fn a_moved_part_is_a_lack_of_layout_and_a_missing_part_only_a_missing_part() {
        // Vector registers with 512 bits, and the protection keys: at Intel's places, at AMD's.
        let mut parts = [[0; 2]; 64];
        (parts[2], parts[9]) = ([576, 256], [2688, 8]);
        let intel = Layout { parts };
        parts[9] = [2432, 8];
        let amd = Layout { parts };
        let mut cpu = Cpu {
            xcr0: 7 | 1 << 9,
            ..Cpu::default()
        };
        (cpu.xsave_len, cpu.xsave_check) = intel.of(cpu.xcr0);
        assert_eq!(cpu.xsave_len, 2696);
        assert_eq!(lacks(&cpu, &cpu, &amd).next(), Some(Lack::Layout));
        let mut less = cpu;
        less.xcr0 = 7;
        assert!(lacks(&cpu, &less, &amd).eq([Lack::Part(9)]));
        // What both have at the same place is no obstacle.
        (cpu.xcr0, (cpu.xsave_len, cpu.xsave_check)) = (7, intel.of(7));
        assert_eq!(lacks(&cpu, &less, &amd).count(), 0);
    }
}
