use super::*;
use std::os::unix::fs::PermissionsExt;

fn refusal(path: &Path) -> String {
    format!("{:#}", Dir::take(path).expect_err("must be refused"))
}

#[test]
fn a_new_folder_is_private_and_left_without_traces() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let path = temp.path().join("a/vm");
    let dir = Dir::take(&path).expect("a new folder");
    assert_eq!(fs::metadata(&path).expect("made").mode() & 0o777, 0o700);
    let listener = dir.listen().expect("a socket");
    dir.publish_address("127.0.0.1:7170").expect("an address");
    drop((dir, listener));
    assert_eq!(fs::read_dir(&path).expect("kept").count(), 0);
}

#[test]
fn one_daemon_at_a_time_has_a_folder() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let path = temp.path().join("vm");
    let first = Dir::take(&path).expect("free");
    let refusal = refusal(&path);
    assert!(
        refusal.contains(&std::process::id().to_string()),
        "{refusal}"
    );
    drop(first);
    Dir::take(&path).expect("free again");
}

#[test]
fn without_its_pid_file_a_daemon_still_has_its_folder_alone() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let path = temp.path().join("vm");
    let first = Dir::take(&path).expect("free");
    let _listener = first.listen().expect("a socket");
    fs::remove_file(path.join(PID_FILE)).expect("it was there");
    let refusal = refusal(&path);
    assert!(
        refusal.contains(&std::process::id().to_string()),
        "{refusal}"
    );
}

#[test]
fn a_folder_that_a_guardian_still_has_is_reported_as_such() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let path = temp.path().join("vm");
    let first = Dir::take(&path).expect("free");
    let mut daemon = std::process::Command::new("true").spawn().expect("it runs");
    let pid = daemon.id().to_string();
    fs::write(path.join(PID_FILE), &pid).expect("it is ours");
    // The killed child is not waited for, so its number still refers to it.
    while usage::living(Pid::from_child(&daemon)).is_some() {
        thread::yield_now();
    }
    let refusal = refusal(&path);
    assert!(
        refusal.contains(&pid) && refusal.contains("guardian") && !refusal.contains("kill"),
        "{refusal}"
    );
    daemon.wait().expect("it is our child");
    drop(first);
}

#[test]
fn the_lock_of_a_folder_that_is_made_again_is_handed_over() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let path = temp.path().join("vm");
    let first = Dir::take(&path).expect("free");
    let old = first.lock().expect("a lock");
    let relock = || first.held().take_other_lock().expect("a lock");
    assert!(relock().is_none());
    fs::remove_dir_all(&path).expect("removed");
    first.held().mend().expect("it can be made again");
    let new = relock().expect("another one");
    assert!(relock().is_none());
    let of = |lock: &OwnedFd| {
        let file = File::from(lock.try_clone().expect("a descriptor"));
        Identity::of(&file.metadata().expect("open"))
    };
    assert_ne!(of(&new), of(&old));
    assert_eq!(Identity::at(&path).expect("there"), Some(of(&new)));
    // As long as a process has the lock, no other daemon takes the folder.
    drop(first);
    assert!(Dir::take(&path).is_err());
    drop(new);
    Dir::take(&path).expect("free again");
}

#[test]
fn a_pid_file_that_is_made_again_is_locked_or_none() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let path = temp.path().join("vm");
    let first = Dir::take(&path).expect("free");
    // The file system is treated as one that cannot lock folders.
    {
        let mut held = first.held();
        held.folder_locked = false;
        flock(&held.folder, FlockOperation::Unlock).expect("it was locked");
    }
    let _old = first.lock().expect("a lock");
    fs::remove_dir_all(&path).expect("removed");
    first.held().mend().expect("it can be made again");
    assert!(first.held().take_other_lock().expect("a lock").is_some());
    let again = File::open(path.join(PID_FILE)).expect("it is there");
    assert!(!try_lock(&again).expect("a lock"));
    fs::remove_file(path.join(PID_FILE)).expect("it was there");
    assert!(make_pid_file(&path).is_ok());
    // The file `pid` belongs to another daemon now.
    assert!(make_pid_file(&path).is_err());
}

#[test]
fn a_daemon_does_not_change_the_files_of_another_one() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let path = temp.path().join("vm");
    let first = Dir::take(&path).expect("free");
    let old = first.listen().expect("a socket");
    first.publish_address("127.0.0.1:1").expect("an address");
    fs::remove_dir_all(&path).expect("removed");
    let second = Dir::take(&path).expect("another folder");
    let _new = second.listen().expect("a socket");
    second.publish_address("127.0.0.1:2").expect("an address");
    let mended = first.held().mend().expect("nothing to be done");
    assert!(mended.is_none());
    drop((old, first));
    let names = [place::SOCKET_FILE, ADDRESS_FILE, PID_FILE];
    assert!(names.iter().all(|name| path.join(name).exists()));
    drop(second);
    assert!(!names.iter().any(|name| path.join(name).exists()));
}

#[test]
fn missing_files_of_the_folder_are_made_again() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let path = temp.path().join("vm");
    let dir = Dir::take(&path).expect("free");
    let _old = dir.listen().expect("a socket");
    dir.publish_address("127.0.0.1:1").expect("an address");
    let connects = || UnixStream::connect(place::socket(&path)).is_ok();
    for remove in [
        &|| fs::remove_file(place::socket(&path)) as io::Result<()>,
        &|| fs::remove_file(path.join(PID_FILE)),
        &|| fs::remove_file(path.join(ADDRESS_FILE)),
        &|| fs::remove_dir_all(&path),
    ] as [&dyn Fn() -> io::Result<()>; 4]
    {
        assert!(dir.held().mend().expect("all is well").is_none());
        remove().expect("it was there");
        let again = dir.held().mend().expect("it can be made again");
        let own = std::process::id().to_string();
        let pid = fs::read_to_string(path.join(PID_FILE)).expect("a pid file");
        let address = fs::read_to_string(path.join(ADDRESS_FILE)).expect("an address");
        assert_eq!((pid.trim(), address.trim()), (&*own, "127.0.0.1:1"));
        assert!(again.is_none() || connects());
        // The listener is kept, so that the next round begins with a listening socket.
        std::mem::forget(again);
    }
    assert!(connects());
    drop(dir);
    assert_eq!(fs::read_dir(&path).expect("kept").count(), 0);
}

#[test]
fn the_last_address_is_written_again_but_not_over_another_daemons() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let path = temp.path().join("vm");
    let dir = Dir::take(&path).expect("free");
    let handle = dir.handle();
    let address = || fs::read_to_string(path.join(ADDRESS_FILE)).expect("an address");
    dir.publish_address("127.0.0.1:1").expect("an address");
    handle.publish_address("10.0.0.1:1").expect("an address");
    assert_eq!(address(), "10.0.0.1:1\n");
    fs::remove_file(path.join(ADDRESS_FILE)).expect("it was there");
    dir.held().mend().expect("it can be made again");
    assert_eq!(address(), "10.0.0.1:1\n");
    // The address is published while there is no folder.
    fs::remove_dir_all(&path).expect("removed");
    handle.publish_address("10.0.0.2:1").expect("later");
    dir.held().mend().expect("it can be made again");
    assert_eq!(address(), "10.0.0.2:1\n");
    // The folder belongs to another daemon now.
    fs::remove_dir_all(&path).expect("removed");
    let second = Dir::take(&path).expect("another folder");
    second.publish_address("10.0.0.3:1").expect("an address");
    handle.publish_address("10.0.0.4:1").expect("nothing");
    assert_eq!(address(), "10.0.0.3:1\n");
    drop(second);
    drop(dir);
    handle.publish_address("10.0.0.5:1").expect("nothing");
    assert_eq!(fs::read_dir(&path).expect("kept").count(), 0);
}

#[test]
fn a_link_in_the_place_of_a_file_is_not_followed() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let (path, other) = (temp.path().join("vm"), temp.path().join("other"));
    fs::write(&other, "kept").expect("a file");
    DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .expect("a folder");
    std::os::unix::fs::symlink(&other, path.join("address.new")).expect("a link");
    let dir = Dir::take(&path).expect("free");
    dir.publish_address("127.0.0.1:1").expect("an address");
    drop(dir);
    std::os::unix::fs::symlink(&other, path.join(PID_FILE)).expect("a link");
    assert!(refusal(&path).contains(PID_FILE));
    assert_eq!(fs::read_to_string(&other).expect("there"), "kept");
}

#[test]
fn the_socket_of_a_dead_daemon_is_taken_over() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let path = temp.path().join("vm");
    DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .expect("a folder");
    drop(UnixListener::bind(path.join(place::SOCKET_FILE)).expect("a socket"));
    let dir = Dir::take(&path).expect("nobody lives there");
    dir.listen().expect("the stale socket is gone");
}

#[test]
fn a_folder_that_is_not_private_is_refused() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let open = temp.path().join("open");
    fs::create_dir(&open).expect("a folder");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("a mode");
    assert!(refusal(&open).contains("chmod 700"));
    let file = temp.path().join("file");
    fs::write(&file, "").expect("a file");
    assert!(refusal(&file).contains("folder"));
}

#[test]
fn a_path_too_long_for_a_socket_is_refused_before_anything_is_made() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let path = temp.path().join("x".repeat(SOCKET_PATH_MAX));
    assert!(refusal(&path).contains("too long for a socket"));
    assert!(!path.exists());
}
