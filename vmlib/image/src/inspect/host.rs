//! Compares the host of an image with this one: what would make the process fail here, where it
//! ran there.

use serde::Serialize;

use crate::{
    capture::credentials,
    format::Heads,
    raw::{
        features::{self, Feature},
        processor::{self, Lack, Layout},
        records::{
            Cpu, FD_DEVICE, FD_FILE, FD_KERNEL, FILE, Facts, FileRecord, PRIVATE, Prefix, X86_64,
        },
    },
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
    /// The user that asks (the effective one).
    pub user: u32,
    /// Its group, likewise.
    pub group: u32,
    /// It is an ordinary one: its ids are one number each, and it has no capability.
    pub is_ordinary: bool,
    /// It may become any other.
    pub may_change_user: bool,
}

impl Host {
    /// The host where this runs.
    pub fn here() -> Self {
        let cpu = processor::here();
        // What cannot be read is known to be no right.
        let status = std::fs::read("/proc/thread-self/status").unwrap_or_default();
        let rights = credentials::Rights::of(&status);
        Host {
            machine: X86_64,
            cpu,
            layout: Layout::here(cpu.xcr0),
            page_size: rustix::param::page_size() as u32,
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            user: rights.user,
            group: rights.group,
            is_ordinary: rights.are_ordinary,
            may_change_user: rights.may_change_user,
        }
    }
}

/// What a host must have, so that an image can be restored there. As JSON its keys are the
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
    /// The user that it ran as.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// Any other ordinary user may restore it, too, as himself.
    pub any_user: bool,
    /// Files and folders that have to be there, each once: those that it had open and that are not
    /// in the image, those that it has mapped shared, and its working directory.
    pub files: Vec<String>,
    /// Files of its program and its libraries: where one lacks, the process is restored all the
    /// same, but its program's name is that of the restorer.
    pub program: Vec<String>,
}

impl Needs {
    /// Those of an image.
    pub fn of(prefix: &Prefix, heads: &Heads) -> Self {
        let facts = heads.facts();
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
            user: facts.user,
            group: facts.group,
            any_user: facts.ordinary == 1,
            files: files_of(heads),
            program: program_of(heads),
        }
    }
}

/// Each once, in their order.
fn each_once(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn files_of(heads: &Heads) -> Vec<String> {
    let is_needed = |file: &&FileRecord| match file.kind {
        FD_FILE => !heads.is_carried(file),
        FD_DEVICE | FD_KERNEL => true,
        _ => false,
    };
    let open = heads.files().iter().filter(is_needed);
    let open = open.map(|file| file.name);
    let mapped = heads.mappings().iter().filter(|it| it.kind == FILE);
    let mapped = mapped.map(|mapping| mapping.name);
    let names = open.chain(mapped).chain([heads.facts().dir]);
    each_once(names.map(|name| heads.name(name).into_owned()))
}

fn program_of(heads: &Heads) -> Vec<String> {
    const EXECUTE: u32 = 4;
    let facts = heads.facts();
    let code = heads.mappings().iter().filter(|it| {
        let has_path = heads.name_bytes(it.name).starts_with(b"/");
        it.kind == PRIVATE && it.prot & EXECUTE != 0 && has_path
    });
    let names = [facts.exe, facts.library].into_iter();
    let names = names.chain(code.map(|mapping| mapping.name));
    each_once(names.map(|name| heads.name(name).into_owned()))
}

/// What is in the way of a restore on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Another kind of processor.
    #[error(
        "this host is of another architecture than the image's: restore the process on a host \
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
    /// It was a user that this one cannot become.
    #[error(
        "it ran as user {user} and group {group}, and user {here}, who is to restore it, may not \
         become that: restore it as that user, or as root"
    )]
    User {
        /// Of the image.
        user: u32,
        /// Its group.
        group: u32,
        /// Of this process.
        here: u32,
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

/// What is in the way of a restore of this image on a host; empty if nothing is. Another
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
    let is_same = (image.user, image.group) == (here.user, here.group);
    let both_are_ordinary = image.ordinary == 1 && here.is_ordinary;
    if !(is_same || both_are_ordinary || here.may_change_user) {
        obstacles.push(Obstacle::User {
            user: image.user,
            group: image.group,
            here: here.user,
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
