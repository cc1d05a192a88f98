//! Where a daemon's folder is, and what the files in it are called.
//!
//! The daemon, the console and the task library must look in the same place without asking each
//! other; this is the one rule. It reads nothing itself: the caller passes the environment in.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Environment variable: the daemon's folder, where `--dir` is not given.
pub const ENV_DIR: &str = "VM_DIR";
/// Environment variable of the system: the user's own folder for sockets.
pub const ENV_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";

/// Name of the daemon's UNIX socket in its folder.
pub const SOCKET_FILE: &str = "vmd.sock";
/// Name of the file with the machine's secret in the daemon's folder, mode 0600.
pub const SECRET_FILE: &str = "secret";
/// Name of the daemon's log in its folder.
pub const LOG_FILE: &str = "vmd.log";

/// The daemon's folder: [`ENV_DIR`], else `vm` in [`ENV_RUNTIME_DIR`], else `/tmp/vm-UID`. A
/// variable that is set but empty counts as unset.
///
/// ```
/// # use vm_wire::place::default_dir;
/// # use std::path::Path;
/// assert_eq!(default_dir(None, Some("/run/user/7".into()), 7), Path::new("/run/user/7/vm"));
/// assert_eq!(default_dir(None, None, 7), Path::new("/tmp/vm-7"));
/// ```
pub fn default_dir(vm_dir: Option<OsString>, runtime_dir: Option<OsString>, uid: u32) -> PathBuf {
    let set = |value: Option<OsString>| value.filter(|value| !value.is_empty());
    if let Some(dir) = set(vm_dir) {
        return dir.into();
    }
    match set(runtime_dir) {
        Some(dir) => PathBuf::from(dir).join("vm"),
        None => format!("/tmp/vm-{uid}").into(),
    }
}

/// Where checkpoints are, in its folder, unless the user says otherwise.
pub const STORE: &str = "store";

/// The daemon's socket in its folder.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join(SOCKET_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_decides() {
        let dir = |vm: Option<&str>, run: Option<&str>| {
            default_dir(vm.map(Into::into), run.map(Into::into), 1000)
        };
        assert_eq!(dir(Some("/a"), Some("/b")), Path::new("/a"));
        assert_eq!(dir(Some(""), Some("/b")), Path::new("/b/vm"));
        assert_eq!(dir(None, Some("")), Path::new("/tmp/vm-1000"));
    }
}
