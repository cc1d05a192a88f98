//! Compares the host of an image with this one: what would make the process fail here, where it
//! ran there.

use serde::Serialize;

use crate::raw::{
    features::{self, Feature},
    format::{Cpu, Facts, Prefix, X86_64},
    processor::{self, Lack, Layout},
};

/// This host, as far as programs notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// ELF's number of the architecture.
    pub machine: u32,
    /// The processor.
    pub cpu: Cpu,
    /// Where it puts the registers of threads.
    pub layout: Layout,
    /// Bytes.
    pub page_size: u32,
    /// The kernel's release.
    pub kernel: String,
}

impl Host {
    /// The host where this runs.
    pub fn here() -> Self {
        let cpu = processor::here();
        Host {
            machine: X86_64,
            cpu,
            layout: Layout::here(cpu.xcr0),
            page_size: rustix::param::page_size() as u32,
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
        }
    }
}

/// What a host must have, so that an image can be brought back there. As JSON its keys are the
/// names of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Needs {
    /// The architecture, as `uname` names it.
    pub arch: &'static str,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Features of the processor, by their usual names.
    pub features: Vec<String>,
    /// Parts of the state of threads that processor and kernel keep.
    pub states: Vec<&'static str>,
    /// Bytes that these take in a signal frame; each has to be at the same place.
    pub xsave_bytes: u32,
}

impl Needs {
    /// Those of an image.
    pub fn of(prefix: &Prefix, facts: &Facts) -> Self {
        let (cpu, nothing) = (facts.cpu, Cpu::default());
        let parts = (0..u64::BITS).filter(|bit| cpu.xcr0 & (1 << bit) != 0);
        Needs {
            // Others are not read.
            arch: "x86_64",
            page_bytes: prefix.page_size,
            features: features::missing(&cpu, &nothing)
                .map(|feature| feature.to_string())
                .collect(),
            states: parts.map(features::state_name).collect(),
            xsave_bytes: cpu.xsave_len,
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
    /// Stopped threads have their registers in signal frames, as their processor laid them out.
    #[error(
        "this host's processor keeps the registers of threads at other places (another layout of \
         the XSAVE area, as another vendor has it): choose a host with a processor of the same \
         vendor and family as the one that saved it"
    )]
    Layout,
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
    let lacks = processor::lacks(&image.cpu, &here.cpu, &here.layout);
    obstacles.extend(lacks.map(|lack| match lack {
        Lack::Feature(feature) => Obstacle::Feature(feature),
        Lack::Part(bit) => Obstacle::State { bit },
        Lack::Layout => Obstacle::Layout,
    }));
    obstacles
}
