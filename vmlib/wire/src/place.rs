//! The path of a daemon's folder, and the names of the files in it.
//!
//! The daemon, the console and the task library must find the same folder without a message to each
//! other. This module is the one rule. It reads no environment: the caller passes the variables.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Environment variable: path of the daemon's folder, if `--dir` is absent.
pub const ENV_DIR: &str = "VM_DIR";
/// Environment variable of the system: the user's folder for sockets. The system removes the folder
/// at the end of the user's last login.
pub const ENV_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Environment variable of the system: the user's folder for state that outlives logins.
pub const ENV_STATE_HOME: &str = "XDG_STATE_HOME";
/// Environment variable of the system: the user's home folder.
pub const ENV_HOME: &str = "HOME";

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
    if let Some(dir) = set(vm_dir) {
        return dir.into();
    }
    match set(runtime_dir) {
        Some(dir) => PathBuf::from(dir).join("vm"),
        None => format!("/tmp/vm-{uid}").into(),
    }
}

fn set(value: Option<OsString>) -> Option<OsString> {
    value.filter(|value| !value.is_empty())
}

/// Name of the store in a folder that the user has chosen for a daemon.
pub const STORE: &str = "store";
/// Name of the folder with stores in [`state_dir`], if each host has a store of its own. The folder
/// has one store for each host, named like the host.
pub const STORES_LOCAL: &str = "store-local";

/// The folder for files of the user that outlive logins and restarts of the computer: `vm` in
/// [`ENV_STATE_HOME`], else in `.local/state` of [`ENV_HOME`]. `None` if neither is set. A variable
/// that is empty, or not an absolute path, counts as unset.
///
/// ```
/// # use vm_wire::place::state_dir;
/// # use std::path::Path;
/// let dir = state_dir(None, Some("/home/me".into()));
/// assert_eq!(dir.as_deref(), Some(Path::new("/home/me/.local/state/vm")));
/// ```
pub fn state_dir(state_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |value| {
        set(value)
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
    };
    let state = absolute(state_home);
    let state = state.or_else(|| absolute(home).map(|home| home.join(".local/state")));
    state.map(|state| state.join("vm"))
}

/// Path of the daemon's socket in its folder.
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

    #[test]
    fn the_state_folder_has_an_absolute_path() {
        let dir = |state: Option<&str>, home: Option<&str>| {
            state_dir(state.map(Into::into), home.map(Into::into))
        };
        let at = |path: &str| Some(PathBuf::from(path));
        assert_eq!(dir(Some("/s"), Some("/h")), at("/s/vm"));
        assert_eq!(dir(Some(""), Some("/h")), at("/h/.local/state/vm"));
        assert_eq!(dir(Some("s"), Some("/h")), at("/h/.local/state/vm"));
        assert_eq!(dir(None, Some("h")), None);
        assert_eq!(dir(None, None), None);
    }
}
