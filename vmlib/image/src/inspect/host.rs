//! Compares the host of an image with this host: finds the differences because of which a restored
//! process would fail here.

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

/// The properties of a host that a program or a restore depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// ELF's number of the architecture.
    pub machine: u32,
    /// The processor.
    pub cpu: Cpu,
    /// The places of the registers of threads in signal frames.
    pub layout: Layout,
    /// Bytes of a page.
    pub page_size: u32,
    /// The kernel's release.
    pub kernel: String,
    /// The effective user id of this process.
    pub user: u32,
    /// The effective group id of this process.
    pub group: u32,
    /// Whether the user is ordinary: not root, one user id, one group id, and no capability.
    pub is_ordinary: bool,
    /// Whether this process may become any user and enter any group.
    pub may_change_user: bool,
}

impl Host {
    /// The properties of this host.
    pub fn here() -> Self {
        let cpu = processor::here();
        // Without the status, this process counts as one without rights.
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

/// The requirements of an image on the host where it is restored. The keys of its JSON are the
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
    /// Bytes of these parts in a signal frame. Each part must be at the same place.
    pub xsave_bytes: u32,
    /// The effective user id of the process.
    pub user: u32,
    /// The effective group id of the process.
    pub group: u32,
    /// Whether any other ordinary user may restore the process, too; the process then runs as that
    /// user.
    pub any_user: bool,
    /// Files and folders that must exist, each once: open files that the image does not carry,
    /// shared mappings of files, and the working directory.
    pub files: Vec<String>,
    /// The files of the program and its libraries. If one is missing, the process is still
    /// restored, but its `/proc/self/exe` is the restorer.
    pub program: Vec<String>,
}

impl Needs {
    /// The needs of an image.
    pub fn of(prefix: &Prefix, heads: &Heads) -> Self {
        let facts = heads.facts();
        let (cpu, nothing) = (facts.cpu, Cpu::default());
        let parts = (0..u64::BITS).filter(|bit| cpu.xcr0 & (1 << bit) != 0);
        Needs {
            // Images of other architectures cannot be read.
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

/// Each name once, in the order of first occurrence.
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

/// A reason why an image cannot be restored on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The host has another processor architecture.
    #[error(
        "this host is of another architecture than the image's: restore the process on a host \
         like the one that saved it"
    )]
    OtherArchitecture,
    /// The processor lacks a feature, so that instructions of the program may be missing.
    #[error(
        "this host's processor lacks {0}, which the processor of the save had: choose a \
         host that has it, or start the program on a host that lacks it and save it there"
    )]
    Feature(Feature),
    /// The host does not keep a part of the state of threads.
    #[error(
        "this host does not keep the {} state of threads (bit {bit} of XCR0), which the image may \
         hold: choose a host whose processor and kernel have it turned on",
        features::state_name(*.bit)
    )]
    State {
        /// The bit of XCR0.
        bit: u32,
    },
    /// The processor has another layout of the registers in signal frames, where stopped threads
    /// have them.
    #[error(
        "this host's processor keeps the registers of threads at other places (another layout of \
         the XSAVE area, as another vendor has it): choose a host with a processor of the same \
         vendor and family as the one that saved it"
    )]
    Layout,
    /// The process ran as a user that this process cannot become.
    #[error(
        "it ran as user {user} and group {group}, and user {here}, who is to restore it, may not \
         become that: restore it as that user, or as root"
    )]
    User {
        /// The user id of the image.
        user: u32,
        /// The group id of the image.
        group: u32,
        /// The user id of this process.
        here: u32,
    },
    /// The host has another page size.
    #[error(
        "this host has pages of {here} bytes, the image's had {image}: choose a host, or boot a \
         kernel, with pages of {image} bytes"
    )]
    PageSize {
        /// The page size of the image. Bytes.
        image: u32,
        /// The page size of this host. Bytes.
        here: u32,
    },
}

/// The obstacles to a restore of this image on a host; empty if there are none. Another kernel or a
/// newer processor is no obstacle.
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
