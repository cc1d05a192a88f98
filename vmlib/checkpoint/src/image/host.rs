//! Compares the host of an image with this one: what would make the process fail here, where it
//! ran there.
//!
//! `unsafe` is here for one instruction, which reads the parts of a thread's state that the kernel
//! keeps.

use super::features::{self, Feature};
use crate::raw::format::{Cpu, Facts, Prefix, X86_64};

/// This host, as far as programs notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// ELF's number of the architecture; 0 if it is none that images are made of.
    pub machine: u32,
    /// The processor.
    pub cpu: Cpu,
    /// Bytes.
    pub page_size: u32,
    /// The kernel's release.
    pub kernel: String,
}

impl Host {
    /// The host where this runs.
    pub fn here() -> Self {
        Host {
            machine: if cfg!(target_arch = "x86_64") {
                X86_64
            } else {
                0
            },
            cpu: cpu(),
            page_size: rustix::param::page_size() as u32,
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
        }
    }
}

/// What is in the way of bringing a process back on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Another kind of processor.
    #[error(
        "this host is of another architecture than the image's: bring the process back on a host \
         like the one that saved it"
    )]
    OtherArchitecture,
    /// The program may use instructions that are missing here.
    #[error(
        "this host's processor lacks {0}, which the program found where it was saved: choose a \
         host that has it, or start the program on a host that lacks it and save it there"
    )]
    Feature(Feature),
    /// Registers that are saved with each thread cannot be set here.
    #[error(
        "this host does not keep the {} state of threads (bit {bit} of XCR0), which the image may \
         hold: choose a host whose processor and kernel have it turned on",
        features::state_name(*.bit)
    )]
    State {
        /// The bit of XCR0.
        bit: u32,
    },
    /// Pages of another size.
    #[error(
        "this host has pages of {here} bytes, the image's had {image}: choose a host, or boot a \
         kernel, with pages of {image} bytes"
    )]
    PageSize {
        /// Of the image. Bytes.
        image: u32,
        /// Of this host. Bytes.
        here: u32,
    },
}

/// What is in the way of bringing this image back on a host; nothing, if it can be done. Another
/// kernel or a newer processor is not in the way.
pub fn compare(prefix: &Prefix, image: &Facts, here: &Host) -> Vec<Obstacle> {
    if prefix.machine != here.machine {
        return vec![Obstacle::OtherArchitecture];
    }
    let mut obstacles = Vec::new();
    if prefix.page_size != here.page_size {
        obstacles.push(Obstacle::PageSize {
            image: prefix.page_size,
            here: here.page_size,
        });
    }
    let lost = features::missing(&image.cpu, &here.cpu);
    obstacles.extend(lost.into_iter().map(Obstacle::Feature));
    let lost = image.cpu.xcr0 & !here.cpu.xcr0;
    let lost = (0..u64::BITS).filter(|bit| lost & (1 << bit) != 0);
    obstacles.extend(lost.map(|bit| Obstacle::State { bit }));
    obstacles
}

#[cfg(target_arch = "x86_64")]
fn cpu() -> Cpu {
    use core::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

    const OSXSAVE: u32 = 1 << 27;
    const NONE: CpuidResult = CpuidResult {
        eax: 0,
        ebx: 0,
        ecx: 0,
        edx: 0,
    };
    // Beyond the last leaf, a processor answers with those of another leaf.
    let last = __cpuid(0).eax;
    let one = __cpuid(1);
    let seven = if last >= 7 { __cpuid_count(7, 0) } else { NONE };
    let seven_one = if seven.eax >= 1 {
        __cpuid_count(7, 1)
    } else {
        NONE
    };
    Cpu {
        leaf_1_ecx: one.ecx,
        leaf_1_edx: one.edx,
        leaf_7_ebx: seven.ebx,
        leaf_7_ecx: seven.ecx,
        leaf_7_edx: seven.edx,
        leaf_7_1_eax: seven_one.eax,
        xcr0: if one.ecx & OSXSAVE != 0 {
            // SAFETY: with OSXSAVE the processor has the instruction, and the kernel allows it.
            unsafe { xcr0() }
        } else {
            0
        },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: the caller has looked for OSXSAVE; register 0 is always there.
    unsafe { core::arch::x86_64::_xgetbv(0) }
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu() -> Cpu {
    Cpu::default()
}
