//! The tie of a store's folder to its bucket, in files of the folder:
//!
//! | file | holds |
//! |---|---|
//! | `bucket` | the address, and in a second line the endpoint, if one was given |
//! | `bucket.state` | a line for each checkpoint in the bucket, with its application, its name and the hash of its manifest; `failed` and the reason, if the last push failed |
//! | `bucket.removed` | the applications that were removed from the folder and are still to be removed from the bucket, one a line |
//!
//! The store ignores files with these names. Lines that cannot be read are ignored: the only effect
//! is that a manifest is compared once more.

use crate::{address::Address, error::BucketError, limits::TIE_MAX};
use rustix::fs::OFlags;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
};
use vm_store::{CheckpointId, name};
use vm_wire::Tid;

const ADDRESS: &str = "bucket";
const STATE: &str = "bucket.state";
const REMOVED: &str = "bucket.removed";
const FAILED: &str = "failed ";

/// The last known state of the bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// The checkpoints of the folder's applications that the bucket has, with the hashes of their
    /// manifests, as digits.
    pub there: BTreeMap<(Tid, CheckpointId), String>,
    /// The error of the last push, for users; `None`: it succeeded.
    pub failed: Option<String>,
}

/// The folder of a store, for access to its files about a bucket.
#[derive(Debug, Clone)]
pub struct Tie {
    root: PathBuf,
}

impl Tie {
    /// The tie of the store in folder `root`.
    pub fn new(root: &Path) -> Self {
        let root = root.to_owned();
        Tie { root }
    }

    /// The bucket of this store; `None`: it has none.
    ///
    /// # Errors
    /// [`BucketError::Tie`], [`BucketError::Address`].
    pub fn address(&self) -> Result<Option<Address>, BucketError> {
        let text = self.read(ADDRESS)?;
        let mut lines = text.lines();
        let Some(url) = lines.next() else {
            return Ok(None);
        };
        Ok(Some(Address::parse(url, lines.next())?))
    }

    /// Records the store's bucket. If the address changes, the known state of the former bucket is
    /// discarded.
    ///
    /// # Errors
    /// [`BucketError::Tie`].
    pub fn set_address(&self, address: &Address) -> Result<(), BucketError> {
        if self.address().is_ok_and(|it| it.as_ref() == Some(address)) {
            return Ok(());
        }
        let endpoint = address.endpoint.as_deref().unwrap_or_default();
        self.write(STATE, "")?;
        self.write(ADDRESS, &format!("{address}\n{endpoint}"))
    }

    /// The last known state of the bucket.
    ///
    /// # Errors
    /// [`BucketError::Tie`].
    pub fn state(&self) -> Result<State, BucketError> {
        let mut state = State::default();
        for line in self.read(STATE)?.lines() {
            if let Some(why) = line.strip_prefix(FAILED) {
                state.failed = Some(why.to_owned());
            } else if let [app, id, hash] = line.split(' ').collect::<Vec<_>>()[..]
                && let (Some(app), Some(id)) = (name::parse_app(app), CheckpointId::parse(id))
            {
                state.there.insert((app, id), hash.to_owned());
            }
        }
        Ok(state)
    }

    /// Records the state of the bucket.
    ///
    /// # Errors
    /// [`BucketError::Tie`].
    pub fn set_state(&self, state: &State) -> Result<(), BucketError> {
        let mut text = String::new();
        for ((app, id), hash) in &state.there {
            let _ = writeln!(text, "{} {id} {hash}", name::app(*app));
        }
        if let Some(why) = &state.failed {
            let _ = writeln!(text, "{FAILED}{}", why.replace('\n', " "));
        }
        self.write(STATE, &text)
    }

    /// Applications whose checkpoints are to be removed from the bucket.
    ///
    /// # Errors
    /// [`BucketError::Tie`].
    pub fn removed(&self) -> Result<BTreeSet<Tid>, BucketError> {
        let text = self.read(REMOVED)?;
        Ok(text.lines().filter_map(name::parse_app).collect())
    }

    /// Records that an application is to be removed from the bucket, too, when the bucket can be
    /// reached.
    ///
    /// # Errors
    /// [`BucketError::Tie`].
    pub fn remove(&self, app: Tid) -> Result<(), BucketError> {
        let path = self.root.join(REMOVED);
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&path);
        let line = format!("{}\n", name::app(app));
        let written = opened.and_then(|mut file| {
            file.write_all(line.as_bytes())?;
            file.sync_data()
        });
        written.map_err(tie("write", &path))
    }

    /// Records that these applications were removed from the bucket.
    pub(crate) fn were_removed(&self, apps: &BTreeSet<Tid>) -> Result<(), BucketError> {
        let left: Vec<String> = self.removed()?.difference(apps).map(line).collect();
        self.write(REMOVED, &left.concat())
    }

    /// Blocks while another process sends from this folder. On a file system without locks it does
    /// not block, and two processes may send the same checkpoint.
    pub(crate) fn lock_push(&self) -> Option<File> {
        lock(
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(self.root.join(ADDRESS)),
        )
    }

    /// Blocks while another process copies from the bucket to this folder.
    pub(crate) fn lock_pull(&self) -> Option<File> {
        lock(File::open(&self.root))
    }

    fn read(&self, name: &str) -> Result<String, BucketError> {
        let path = self.root.join(name);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(TIE_MAX).read_to_end(&mut bytes));
        match read {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(cause) => Err(tie("read", &path)(cause)),
            Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// Replaces a file. Another process reads either the former or the new content.
    fn write(&self, name: &str, text: &str) -> Result<(), BucketError> {
        let path = self.root.join(name);
        let new = self.root.join(format!("{name}.{}", process::id()));
        // A file of a killed process that had the same number, or a symbolic link of another user.
        let _ = fs::remove_file(&new);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_data()
            })
            .and_then(|()| fs::rename(&new, &path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written.map_err(tie("write", &path))
    }
}

fn line(app: &Tid) -> String {
    format!("{}\n", name::app(*app))
}

fn lock(opened: io::Result<File>) -> Option<File> {
    let file = opened.ok()?;
    file.lock().ok()?;
    Some(file)
}

fn tie(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BucketError {
    let path = path.to_owned();
    move |cause| BucketError::Tie { step, path, cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_wire::{HostId, MachineId};

    const APP: Tid = Tid::new(MachineId::from_bits(0xa1b2c3), HostId(3), 1);

    #[test]
    fn no_link_in_the_folder_is_written_through() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("other"), "kept").expect("room");
        for name in [REMOVED, &format!("{STATE}.{}", process::id())] {
            std::os::unix::fs::symlink(at("other"), at(name)).expect("a link");
        }
        let tie = Tie::new(folder.path());
        tie.set_state(&State::default()).expect("room");
        assert!(tie.remove(APP).is_err());
        assert_eq!(fs::read_to_string(at("other")).expect("there"), "kept");
    }

    #[test]
    fn recorded_files_are_read_as_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let tie = Tie::new(folder.path());
        assert_eq!(tie.address().expect("none yet"), None);
        assert_eq!(tie.state().expect("none yet"), State::default());
        for endpoint in [None, Some("http://host:9000")] {
            let address = Address::parse("s3://b/of/me", endpoint).expect("an address");
            tie.set_address(&address).expect("room");
            assert_eq!(tie.address().expect("it is there"), Some(address));
            // The state of another bucket is unknown.
            assert_eq!(tie.state().expect("it is there"), State::default());
            let there = [((APP, CheckpointId::new(1, 5)), "00ff".to_owned())];
            let state = State {
                there: there.into(),
                failed: Some("it is\nfull".to_owned()),
            };
            tie.set_state(&state).expect("room");
            let read = tie.state().expect("it is there");
            assert_eq!(read.there, state.there);
            assert_eq!(read.failed.as_deref(), Some("it is full"));
        }
        let other = Tid::new(MachineId::from_bits(0xbeef), HostId(1), 1);
        tie.remove(APP).expect("room");
        tie.remove(other).expect("room");
        tie.were_removed(&[APP].into()).expect("room");
        assert_eq!(tie.removed().expect("it is there"), [other].into());
    }
}
