//! Folders and files on the disk of this host: their owners, their modes, and refusals.

use super::{APP, TASKS, THIRD, content, id, parts, save, write};
use crate::{Disk, State, Store, StoreError, System, name};
use std::{
    fs,
    io::{self, Read},
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

pub fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path().join("store")).expect("a store");
    (folder, store)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o7777
}

#[test]
fn what_is_made_is_the_users_alone() {
    let (_folder, store) = store();
    save(&store, id(1)).expect("a checkpoint");
    let folder = store.folder(APP, id(1));
    for folder in [store.root(), &store.app_folder(APP), &folder] {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
    }
    let mut names = System.list(&folder).expect("a folder");
    names.sort();
    let expected = ["00beef-t1.7.image", "manifest", "t2.9.image", "t3.1.image"];
    assert_eq!(names, expected);
    for name in names {
        assert_eq!(mode(&folder.join(&name)), 0o600, "{name}");
    }
}

#[test]
fn a_root_that_others_may_write_is_refused() {
    let (_folder, store) = store();
    for wrong in [0o770, 0o702, 0o1777] {
        let set = fs::set_permissions(store.root(), fs::Permissions::from_mode(wrong));
        set.expect("our own folder");
        let refused = Store::open(store.root()).expect_err("others may write");
        assert!(matches!(refused, StoreError::Mode { mode, .. } if mode == wrong));
    }
    fs::set_permissions(store.root(), fs::Permissions::from_mode(0o755)).expect("our own folder");
    Store::open(store.root()).expect("others may read");
}

#[test]
fn a_root_of_another_user_is_refused() {
    let (folder, store) = store();
    // Only root can give a folder away. Another user takes a folder of root.
    let user = rustix::process::geteuid().as_raw();
    let other = match chown(store.root(), Some(user + 1), None) {
        Ok(()) => store.root(),
        Err(_) => Path::new("/usr"),
    };
    let refused = Store::open(other).expect_err("another user's");
    assert!(matches!(refused, StoreError::Owner { .. }), "{refused}");
    drop(folder);
}

#[test]
fn a_root_that_is_a_file_or_has_no_folder_above_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let refused = Store::open(&file).expect_err("a file");
    assert!(
        matches!(refused, StoreError::NotAFolder { .. }),
        "{refused}"
    );
    let refused = Store::open(folder.path().join("no/store")).expect_err("nothing above");
    assert!(
        refused.to_string().contains("make the folder above it"),
        "{refused}"
    );
}

#[test]
fn a_part_is_what_was_read_with_its_length_and_hash() {
    let (_folder, store) = store();
    let writer = store.begin(APP, id(1)).expect("a checkpoint");
    let image = name::image(APP, APP);
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut part = writer.part(&image, "alpha", None).expect("a part");
    assert_eq!(part.copy(&mut &bytes[..]).expect("a copy"), 3_000_000);
    part.write(b"and more").expect("more");
    let part = part.finish().expect("a part");
    let all = [&bytes[..], b"and more"].concat();
    assert_eq!((part.bytes, part.hash), (3_000_008, crate::hash::of(&all)));
    let mut read = Vec::new();
    let mut file = store.open_part(APP, id(1), &part).expect("a file");
    file.read_to_end(&mut read).expect("all of it");
    assert!(read == all);
}

#[test]
fn images_of_tasks_that_stand_go_through_the_cache() {
    const O_DIRECT: u32 = 0o40000;
    let (_folder, store) = store();
    let is_direct = |cached, epoch| {
        let writer = store.clone().cached(cached).begin(APP, id(epoch));
        let mut image = writer.expect("a checkpoint").image(APP, "alpha", None);
        let flags = fs::read_dir("/proc/self/fd")
            .expect("our own")
            .find_map(|fd| {
                let fd = fd.expect("a name");
                // The file is not the index.
                let name = format!("{}{}", name::image(APP, APP), name::NEW);
                let path = store.folder(APP, id(epoch)).join(name);
                let is_ours = fs::read_link(fd.path()).is_ok_and(|file| file == path);
                let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(fd.file_name()));
                let flags = info
                    .ok()?
                    .lines()
                    .nth(1)?
                    .strip_prefix("flags:")?
                    .trim()
                    .to_owned();
                is_ours.then(|| u32::from_str_radix(&flags, 8).expect("octal"))
            });
        let bytes = content(id(epoch), "image");
        let image = image.as_mut().expect("an image");
        image.copy(&mut &bytes[..]).expect("room");
        flags.expect("it is open") & O_DIRECT != 0
    };
    assert!(!is_direct(true, 1));
    let on_disk = rustix::fs::statfs(store.root())
        .expect("a file system")
        .f_type;
    const EXT4: u64 = 0xef53;
    assert!(is_direct(false, 2) || on_disk as u64 != EXT4);
}

#[test]
fn a_part_within_its_quota_is_written_and_one_byte_more_is_not() {
    let (_folder, store) = store();
    let writer = store.begin(APP, id(1)).expect("a checkpoint");
    let name = name::image(APP, APP);
    let bytes = content(id(1), &name);
    let quota = bytes.len() as u64;
    let mut part = writer
        .part(&name, "alpha", Some(quota - 1))
        .expect("a part");
    let refused = part.copy(&mut &bytes[..]).expect_err("too much");
    assert!(matches!(refused, StoreError::Quota { quota: said, .. } if said == quota - 1));
    drop(part);
    let mut part = writer
        .part(&name, "alpha", Some(quota))
        .expect("nothing is left of it");
    part.copy(&mut &bytes[..]).expect("enough");
    part.finish().expect("a part");
}

#[test]
fn a_part_that_is_not_finished_leaves_nothing() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the pipe broke"))
        }
    }
    let (_folder, store) = store();
    let writer = store.begin(APP, id(1)).expect("a checkpoint");
    let mut part = writer
        .part(&name::image(APP, THIRD), "alpha", None)
        .expect("a part");
    part.write(b"something").expect("room");
    let refused = part.copy(&mut Broken).expect_err("no more");
    assert!(
        refused.to_string().contains("t2.9.image: the pipe broke"),
        "{refused}"
    );
    drop(part);
    let left = System.list(&store.folder(APP, id(1))).expect("a folder");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_part_is_written_once() {
    let (_folder, store) = store();
    let writer = store.begin(APP, id(1)).expect("a checkpoint");
    let other = store
        .begin(APP, id(1))
        .expect("the same, in another process");
    let name = name::image(APP, APP);
    let part = writer.part(&name, "alpha", None).expect("a part");
    let refused = other.part(&name, "beta", None).expect_err("being written");
    assert!(matches!(refused, StoreError::Exists { .. }), "{refused}");
    part.finish().expect("a part");
    let refused = other.part(&name, "beta", None).expect_err("written");
    assert!(matches!(refused, StoreError::Exists { .. }), "{refused}");
    let left = System.list(&store.folder(APP, id(1))).expect("a folder");
    assert_eq!(left, [name]);
}

#[test]
fn what_is_no_name_of_a_part_is_refused() {
    let (_folder, store) = store();
    let writer = store.begin(APP, id(1)).expect("a checkpoint");
    for name in [
        "",
        "..",
        "../t3.1.image",
        "/etc/passwd",
        "manifest",
        "t3.1.image.new",
    ] {
        let refused = writer.part(name, "alpha", None).expect_err(name);
        assert!(matches!(refused, StoreError::Name { .. }), "{refused}");
    }
    let mut manifest = parts(&writer, id(1)).expect("parts");
    manifest.tasks[2].image.name = "../../../secret".to_owned();
    let refused = writer.commit(&manifest).expect_err("no name");
    assert!(matches!(refused, StoreError::Manifest { .. }), "{refused}");
    let refused = store
        .open_part(APP, id(1), &manifest.tasks[2].image)
        .expect_err("no name");
    assert!(matches!(refused, StoreError::Name { .. }), "{refused}");
}

#[test]
fn what_is_committed_does_not_change() {
    let (_folder, store) = store();
    let writer = store.begin(APP, id(1)).expect("a checkpoint");
    let manifest = parts(&writer, id(1)).expect("parts");
    writer.commit(&manifest).expect("a checkpoint");
    let committed = |done: Result<(), StoreError>| {
        let refused = done.expect_err("committed");
        assert!(matches!(refused, StoreError::Committed { .. }), "{refused}");
    };
    committed(writer.commit(&manifest));
    committed(store.begin(APP, id(1)).map(drop));
    committed(writer.abort());
    assert_eq!(store.verify(APP, id(1)).expect("whole"), manifest);
}

#[test]
fn only_one_of_two_commits() {
    let (_folder, store) = store();
    let writer = store.begin(APP, id(1)).expect("a checkpoint");
    let manifest = parts(&writer, id(1)).expect("parts");
    // Another process is committing, or died while it committed.
    let new = store.folder(APP, id(1)).join(name::MANIFEST_NEW);
    fs::write(&new, "half").expect("a file");
    let refused = writer.commit(&manifest).expect_err("another one is at it");
    assert!(matches!(refused, StoreError::Exists { .. }), "{refused}");
    writer.abort().expect("no checkpoint");
    assert!(matches!(
        store.read(APP, id(1)),
        Err(StoreError::Absent { .. })
    ));
    save(&store, id(1)).expect("from the beginning");
}

#[test]
fn a_listing_says_what_is_there() {
    let (_folder, store) = store();
    assert!(store.list().expect("a store").is_empty());
    save(&store, id(10)).expect("a checkpoint");
    save(&store, id(9)).expect("a checkpoint");
    let writer = store.begin(APP, id(11)).expect("a checkpoint");
    write(&writer, id(11), &name::image(APP, APP)).expect("a part");
    let other = TASKS[1];
    store.begin(other, id(1)).expect("another application");
    // Names that the layout does not define.
    fs::create_dir(store.root().join("lost+found")).expect("a folder");
    fs::create_dir(store.app_folder(APP).join("g1-e012")).expect("a folder");
    fs::write(store.app_folder(APP).join("notes"), "").expect("a file");

    let entries = store.list().expect("a store");
    let found: Vec<_> = entries.iter().map(|entry| (entry.app, entry.id)).collect();
    let expected = [(other, id(1)), (APP, id(9)), (APP, id(10)), (APP, id(11))];
    assert_eq!(found, expected);
    let State::Committed(summary) = &entries[1].state else {
        panic!("{:?}", entries[1]);
    };
    let parts = [
        name::image(APP, APP),
        name::image(APP, other),
        name::image(APP, THIRD),
    ];
    let bytes = parts
        .iter()
        .map(|name| content(id(9), name).len() as u64)
        .sum::<u64>();
    assert_eq!((summary.tasks, summary.bytes), (3, bytes));
    assert_eq!(
        (summary.taken_ms, summary.program.as_str()),
        (1_700_000_000_009, "hello")
    );
    assert!(matches!(entries[0].state, State::Unfinished { files: 0 }));
    assert!(matches!(entries[3].state, State::Unfinished { files: 1 }));
}
