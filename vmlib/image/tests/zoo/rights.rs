//! A restore by another user than the user of the process.

use crate::run::{self, User, start};
use std::process::Command;

#[test]
fn a_process_of_root_is_not_restored_by_a_user() {
    // SAFETY: the call only reads.
    if unsafe { libc::geteuid() } != 0 || !run::is_reachable(&run::zoo()) {
        return println!("note: this takes root, and a folder that users may reach");
    }
    let folder = run::open_folder();
    let image = folder.path().join("image");
    let mut command = Command::new(run::zoo());
    let command = command.arg("heap").env("ZOO_IMAGE", &image);
    let ended = start(command, User::Same).end();
    assert!(ended.is_well("ok heap"), "{ended:?}");
    let ended = start(
        &mut run::restore(&image.with_extension("1")),
        User::Ordinary,
    )
    .end();
    let code = Some(vm_image::CANNOT_GO_ON);
    assert_eq!(
        (ended.status.code(), &*ended.output),
        (code, ""),
        "{ended:?}"
    );
    let why =
        "it ran as user 0 (effective 0) and group 0, and user 65534, group 65534, who restores";
    assert!(ended.errors.contains(why), "{ended:?}");
}
