//! A disk in memory whose power can be cut. Only synced data survives for certain.

use crate::Disk;
use std::{
    cell::{RefCell, RefMut},
    collections::BTreeMap,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    rc::Rc,
};

/// Path of the store's root on the disk.
pub const ROOT: &str = "/";

/// The kind of sync that the disk reports and does not carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    Nothing,
    Files,
    Folders,
}

#[derive(Debug, Clone)]
pub struct CutDisk(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    /// The first node is the root.
    nodes: Vec<Node>,
    /// Number of operations with a change so far. The power is cut at operation `last`.
    operations: usize,
    last: usize,
    lie: Lie,
}

#[derive(Debug, Clone)]
enum Node {
    File {
        now: Vec<u8>,
        safe: Vec<u8>,
    },
    Folder {
        now: Names,
        safe: Names,
        /// Changes from `safe` to the current names. Each change may have reached the disk or not.
        changes: Vec<Change>,
    },
}

type Names = BTreeMap<String, usize>;

#[derive(Debug, Clone)]
enum Change {
    Made(String, usize),
    Gone(String),
    Renamed(String, String, usize),
}

#[derive(Debug)]
pub struct CutFile {
    disk: CutDisk,
    node: usize,
    at: usize,
}

/// Numbers that look random, from a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound.max(1) as u64) as usize
    }
}

impl Change {
    fn apply(&self, names: &mut Names) {
        match self {
            Change::Made(name, node) => {
                names.insert(name.clone(), *node);
            }
            Change::Gone(name) => {
                names.remove(name);
            }
            Change::Renamed(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

impl CutDisk {
    /// An empty disk that works for `last` operations.
    pub fn new(last: usize, lie: Lie) -> Self {
        Self::of(vec![empty()], last, lie)
    }

    fn of(nodes: Vec<Node>, last: usize, lie: Lie) -> Self {
        CutDisk(Rc::new(RefCell::new(State {
            nodes,
            operations: 0,
            last,
            lie,
        })))
    }

    pub fn operations(&self) -> usize {
        self.0.borrow().operations
    }

    /// The disk after the power is back, until operation `last`. Seed 0: only synced data survived;
    /// 1: all data survived; other seeds: some data survived.
    pub fn after_cut(&self, seed: u64, last: usize) -> CutDisk {
        let mut dice = Dice(seed);
        let state = self.0.borrow();
        let mut survives = |of: usize| match seed {
            0 => 0,
            1 => of - 1,
            _ => dice.below(of),
        };
        let nodes = state.nodes.iter().map(|node| match node {
            Node::File { now, safe } => {
                let mut bytes = match survives(4) {
                    0 => safe.clone(),
                    // In part: the end is missing, or is there and empty.
                    1 => now[..survives(now.len() + 1)].to_vec(),
                    2 => {
                        let mut bytes = now.clone();
                        bytes[survives(now.len() + 1)..].fill(0);
                        bytes
                    }
                    _ => now.clone(),
                };
                if now == safe {
                    bytes.clone_from(safe);
                }
                Node::File {
                    now: bytes.clone(),
                    safe: bytes,
                }
            }
            Node::Folder { safe, changes, .. } => {
                let mut names = safe.clone();
                for change in changes {
                    if survives(2) == 1 {
                        change.apply(&mut names);
                    }
                }
                Node::Folder {
                    now: names.clone(),
                    safe: names,
                    changes: Vec::new(),
                }
            }
        });
        CutDisk::of(nodes.collect(), last, state.lie)
    }

    /// The same disk for another process, after the first process was killed: no data is lost.
    pub fn after_kill(&self) -> CutDisk {
        let state = self.0.borrow();
        CutDisk::of(state.nodes.clone(), usize::MAX, state.lie)
    }

    fn state(&self) -> io::Result<RefMut<'_, State>> {
        let state = self.0.borrow_mut();
        match state.operations > state.last {
            true => Err(io::Error::other("the power is cut")),
            false => Ok(state),
        }
    }

    /// Begins an operation that changes the disk.
    fn change(&self) -> io::Result<RefMut<'_, State>> {
        self.state()?.operations += 1;
        self.state()
    }
}

fn empty() -> Node {
    Node::Folder {
        now: Names::new(),
        safe: Names::new(),
        changes: Vec::new(),
    }
}

fn error(kind: io::ErrorKind) -> io::Error {
    kind.into()
}

impl State {
    fn find(&self, path: &Path) -> io::Result<usize> {
        let mut node = 0;
        for name in path.iter().skip(1) {
            let name = name.to_str().expect("names are text");
            let next = self.names(node)?.get(name);
            node = *next.ok_or_else(|| error(io::ErrorKind::NotFound))?;
        }
        Ok(node)
    }

    fn names(&self, node: usize) -> io::Result<&Names> {
        match &self.nodes[node] {
            Node::Folder { now, .. } => Ok(now),
            Node::File { .. } => Err(error(io::ErrorKind::NotADirectory)),
        }
    }

    /// The folder of a path, and the name in that folder.
    fn split(&self, path: &Path) -> io::Result<(usize, String)> {
        let folder = self.find(path.parent().expect("below the root"))?;
        let name = path.file_name().and_then(|name| name.to_str());
        Ok((folder, name.expect("names are text").to_owned()))
    }

    fn note(&mut self, folder: usize, change: Change) {
        if let Node::Folder { now, changes, .. } = &mut self.nodes[folder] {
            change.apply(now);
            changes.push(change);
        }
    }

    fn make(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        let (folder, name) = self.split(path)?;
        if self.names(folder)?.contains_key(&name) {
            return Err(error(io::ErrorKind::AlreadyExists));
        }
        let number = self.nodes.len();
        self.nodes.push(node);
        self.note(folder, Change::Made(name, number));
        Ok(number)
    }
}

impl Disk for CutDisk {
    type File = CutFile;

    fn create(&self, path: &Path) -> io::Result<CutFile> {
        let (now, safe) = (Vec::new(), Vec::new());
        let node = self.change()?.make(path, Node::File { now, safe })?;
        let disk = self.clone();
        Ok(CutFile { disk, node, at: 0 })
    }

    fn open(&self, path: &Path) -> io::Result<(CutFile, u64)> {
        let state = self.state()?;
        let node = state.find(path)?;
        let Node::File { now, .. } = &state.nodes[node] else {
            return Err(error(io::ErrorKind::IsADirectory));
        };
        let disk = self.clone();
        Ok((CutFile { disk, node, at: 0 }, now.len() as u64))
    }

    fn sync(&self, file: &mut CutFile) -> io::Result<()> {
        let mut state = self.change()?;
        let lies = state.lie == Lie::Files;
        match &mut state.nodes[file.node] {
            Node::File { now, safe } if !lies => safe.clone_from(now),
            _ => {}
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let node = state.find(from)?;
        let (folder, to) = state.split(to)?;
        let (same, from) = state.split(from)?;
        assert_eq!(same, folder, "a rename stays in its folder");
        state.note(folder, Change::Renamed(from, to, node));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let node = state.find(path)?;
        if matches!(state.nodes[node], Node::Folder { .. }) {
            return Err(error(io::ErrorKind::IsADirectory));
        }
        let (folder, name) = state.split(path)?;
        state.note(folder, Change::Gone(name));
        Ok(())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.change()?.make(path, empty()).map(drop)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let node = state.find(path)?;
        if !state.names(node)?.is_empty() {
            return Err(error(io::ErrorKind::DirectoryNotEmpty));
        }
        let (folder, name) = state.split(path)?;
        state.note(folder, Change::Gone(name));
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let lies = state.lie == Lie::Folders;
        let node = state.find(path)?;
        match &mut state.nodes[node] {
            Node::Folder { now, safe, changes } if !lies => {
                safe.clone_from(now);
                changes.clear();
            }
            _ => {}
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.state()?;
        let node = state.find(path)?;
        Ok(state.names(node)?.keys().cloned().collect())
    }
}

impl Read for CutFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.state()?;
        let Node::File { now, .. } = &state.nodes[self.node] else {
            return Err(error(io::ErrorKind::IsADirectory));
        };
        let rest = now.get(self.at..).unwrap_or_default();
        let read = { rest }.read(buffer)?;
        self.at += read;
        Ok(read)
    }
}

impl Seek for CutFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let SeekFrom::Start(at) = to else {
            return Err(error(io::ErrorKind::Unsupported));
        };
        self.at = at as usize;
        Ok(at)
    }
}

impl Write for CutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.change()?;
        if let Node::File { now, .. } = &mut state.nodes[self.node] {
            now.extend(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
