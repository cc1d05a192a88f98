//! Problems with files that have changed since the save.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use vm_image::{
    format::{Codec, FD_DEVICE, FD_FILE, FILE, FileRecord, ImageReader, Mapping},
    inspect::{FileProblem, check_files},
    raw::checksum::{checksum, mixed},
};

use crate::made::{CODE, Made, PAGE};

/// An image of a process in `dir` that had one file open there, with this content.
fn with_file(dir: &Path, content: &[u8], flags: i32) -> Made {
    let mut made = Made::small();
    let file = dir.join("data");
    fs::write(&file, content).unwrap();
    made.facts.dir = made.names.add(dir.to_str().unwrap());
    let sums = content.chunks(256 << 10).map(checksum);
    let sums = (0..).zip(sums).map(|(index, sum)| mixed(sum, index));
    let file = FileRecord {
        fd: 3,
        original: 3,
        kind: FD_FILE,
        flags: flags as u32,
        size: content.len() as u64,
        check: sums.fold(0, u64::wrapping_add),
        checked: content.len() as u64,
        mode: 0o100_644,
        name: made.names.add(file.to_str().unwrap()),
        ..FileRecord::default()
    };
    made.files = vec![file, FileRecord { fd: 4, ..file }];
    made.body.clear();
    made
}

fn problems(made: &Made) -> Vec<FileProblem> {
    problems_if(made, false)
}

fn problems_if(made: &Made, roll_back: bool) -> Vec<FileProblem> {
    let bytes = made.write(Codec::Plain);
    let mut image = ImageReader::new(&bytes[..]).unwrap();
    while image.next_section().unwrap().is_some() {}
    check_files(image.heads().unwrap(), roll_back, &[])
}

/// The text of the only problem, without the folder.
fn problem(made: &Made, dir: &Path) -> String {
    let found = problems(made);
    assert_eq!(found.len(), 1, "{found:?}");
    let dir = format!("{}/", dir.display());
    found[0].to_string().replace(&dir, "")
}

#[test]
fn files_that_are_as_they_were_are_no_problem() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..600_000u32)
        .map(|at| (at.wrapping_mul(at) >> 7) as u8)
        .collect();
    for content in [&content[..], &content[..262_144], b"short", b""] {
        for flags in [libc::O_RDONLY, libc::O_RDWR | libc::O_APPEND] {
            let made = with_file(dir.path(), content, flags);
            assert!(problems(&made).is_empty(), "{} bytes", content.len());
        }
    }
    // A flag that truncated the file at its first opening must not truncate it now.
    let made = with_file(dir.path(), b"short", libc::O_WRONLY | libc::O_TRUNC);
    assert!(problems(&made).is_empty());
    assert_eq!(fs::read(dir.path().join("data")).unwrap(), b"short");
}

#[test]
fn missing_grown_and_altered_files_are_different_problems() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data");
    let mut content = vec![7; 300_000];
    let made = with_file(dir.path(), &content, libc::O_RDONLY);
    content[299_999] = 8;
    fs::write(&file, &content).unwrap();
    assert_eq!(
        problem(&made, dir.path()),
        "data has changed since the save: its content is different; restore its former content"
    );
    content.push(7);
    fs::write(&file, &content).unwrap();
    assert_eq!(
        problem(&made, dir.path()),
        "data has changed since the save: it has 300001 bytes, and had 300000; restore its \
         former content"
    );
    fs::remove_file(&file).unwrap();
    assert_eq!(
        problem(&made, dir.path()),
        "data is missing, which the process had open as descriptor 3: put a copy there"
    );
    fs::create_dir(&file).unwrap();
    assert!(matches!(
        problems(&made)[..],
        [FileProblem::Kind { fd: 3, .. }]
    ));
}

#[test]
fn a_file_may_have_grown_where_the_process_writes_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data");
    for content in [&b"as it was"[..], b"", &[7; 300_000]] {
        let mut made = with_file(dir.path(), content, libc::O_WRONLY);
        let grown = [content, b" and more"].concat();
        fs::write(&file, &grown).unwrap();
        assert!(problems(&made).is_empty());
        // The process may only read through the second descriptor.
        made.files.push(FileRecord {
            fd: 5,
            original: 5,
            flags: 0,
            ..made.files[0]
        });
        assert!(problems(&made).is_empty());
        made.files.iter_mut().for_each(|file| file.flags = 0);
        assert!(matches!(
            problems(&made)[..],
            [FileProblem::Size { .. }, FileProblem::Size { .. }]
        ));
    }
    let mut made = with_file(dir.path(), b"as it was", libc::O_RDWR);
    fs::write(&file, "As it was and more").unwrap();
    assert!(matches!(problems(&made)[..], [FileProblem::Content { .. }]));
    // The content at the save is not known.
    (made.files[0].check, made.files[0].checked) = (0, 0);
    assert!(matches!(problems(&made)[..], [FileProblem::Size { .. }]));
}

#[test]
fn a_file_that_is_carried_may_be_missing_but_not_altered() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let mut made = with_file(&folder, b"short", libc::O_RDONLY);
    made.facts.dir = made.names.add("/");
    made.files[0].carried = 1;
    // The file was opened once more, and is carried once.
    made.files.push(FileRecord {
        fd: 5,
        original: 5,
        carried: 0,
        ..made.files[0]
    });
    assert!(problems(&made).is_empty());
    fs::write(folder.join("data"), "other").unwrap();
    let found = problems(&made);
    assert_eq!(found.len(), 2);
    let text = found[1].to_string();
    assert!(
        text.ends_with("restore its former content, or remove it: then it is made from the image"),
        "{text}"
    );
    fs::remove_file(folder.join("data")).unwrap();
    assert!(problems(&made).is_empty());
    fs::remove_dir(&folder).unwrap();
    assert!(matches!(
        problems(&made)[..],
        [
            FileProblem::Folder { fd: 3, .. },
            FileProblem::Folder { fd: 5, .. }
        ]
    ));
}

#[test]
fn a_file_that_is_carried_may_be_behind_where_the_process_writes_it() {
    let dir = tempfile::tempdir().unwrap();
    for (way, carried, is_well) in [
        (libc::O_WRONLY, 1, true),
        (libc::O_WRONLY, 0, false),
        (libc::O_RDONLY, 1, false),
    ] {
        let mut made = with_file(dir.path(), b"as it was", way);
        made.files[0].carried = carried;
        fs::write(dir.path().join("data"), "as it").unwrap();
        assert_eq!(problems(&made).is_empty(), is_well, "{way}, {carried}");
    }
}

#[test]
fn a_file_that_would_be_rolled_back_may_have_any_content() {
    let dir = tempfile::tempdir().unwrap();
    for (way, carried, now, is_well) in [
        (libc::O_RDWR, 1, "something else", true),
        (libc::O_RDWR, 1, "AS IT WAS", true),
        (libc::O_RDWR, 1, "", true),
        (libc::O_RDWR, 0, "as it was, and more", true),
        (libc::O_RDWR, 0, "something else", false),
        (libc::O_RDONLY, 1, "something else", false),
    ] {
        let mut made = with_file(dir.path(), b"as it was", way);
        made.files[0].carried = carried;
        fs::write(dir.path().join("data"), now).unwrap();
        let found = problems_if(&made, true);
        assert_eq!(
            found.is_empty(),
            is_well,
            "{way}, {carried}, {now}: {found:?}"
        );
    }
}

#[test]
fn swapped_pieces_of_a_file_are_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let mut content = vec![1; 256 << 10];
    content.resize(512 << 10, 2);
    let made = with_file(dir.path(), &content, libc::O_RDONLY);
    content.reverse();
    fs::write(dir.path().join("data"), content).unwrap();
    assert!(matches!(problems(&made)[..], [FileProblem::Content { .. }]));
}

#[test]
fn a_file_that_the_save_could_not_read_is_compared_by_size_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut made = with_file(dir.path(), b"before", libc::O_WRONLY);
    (made.files[0].check, made.files[0].checked) = (0, 0);
    fs::write(dir.path().join("data"), b"behind").unwrap();
    assert!(problems(&made).is_empty());
}

#[test]
fn missing_rights_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let made = with_file(dir.path(), b"short", libc::O_RDWR);
    let file = dir.path().join("data");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let found = problems(&made);
    if rustix::process::geteuid().is_root() {
        // Root may write everywhere.
        assert!(found.is_empty());
        return;
    }
    assert!(
        matches!(found[..], [FileProblem::Closed { fd: 3, .. }]),
        "{found:?}"
    );
}

#[test]
fn directories_devices_and_mapped_files_must_exist() {
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone");
    let mut made = with_file(dir.path(), b"", libc::O_RDONLY);
    let file = |made: &mut Made, fd, kind, flags: i32, path: &Path| {
        let name = made.names.add(path.to_str().unwrap());
        made.files.push(FileRecord {
            fd,
            original: fd,
            kind,
            flags: flags as u32,
            name,
            ..FileRecord::default()
        });
    };
    file(&mut made, 5, FD_FILE, libc::O_DIRECTORY, dir.path());
    file(&mut made, 6, FD_DEVICE, libc::O_RDWR, "/dev/null".as_ref());
    for (start, end) in [(1, 2), (2, 3)] {
        let name = made.names.add(dir.path().join("data").to_str().unwrap());
        made.mappings.insert(
            start as usize,
            Mapping {
                start: CODE + start * u64::from(PAGE),
                end: CODE + end * u64::from(PAGE),
                prot: 3,
                kind: FILE,
                name,
                ..Mapping::default()
            },
        );
    }
    assert!(problems(&made).is_empty());
    file(&mut made, 7, FD_FILE, libc::O_DIRECTORY, &gone);
    file(&mut made, 8, FD_DEVICE, libc::O_RDWR, &gone);
    file(
        &mut made,
        9,
        FD_FILE,
        libc::O_DIRECTORY,
        &dir.path().join("data"),
    );
    made.facts.dir = made.names.add(gone.to_str().unwrap());
    for mapping in &mut made.mappings[1..3] {
        mapping.name = made.facts.dir;
    }
    let found = problems(&made);
    let [directory, fifth, device, closed, mapped] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(matches!(directory, FileProblem::Directory { .. }));
    assert!(matches!(fifth, FileProblem::Missing { fd: 7, .. }));
    assert!(matches!(device, FileProblem::Missing { fd: 8, .. }));
    assert!(matches!(closed, FileProblem::Closed { fd: 9, .. }));
    assert!(matches!(mapped, FileProblem::Mapped { .. }));
}
