//! The rights of a process: its users, groups and capabilities, and whether it may gain new ones.
//!
//! The restored process has the same rights, or the restore fails: a process that gave up root is
//! not root again. There are two exceptions, and neither returns a right that the process gave up:
//!
//! - A process of an ordinary user that another ordinary user restores gets the rights of the
//!   restoring user, because users have other numbers on other hosts.
//! - A capability that the restoring process does not have is missing.
//!
//! In the kernel each thread has its own credentials, so each thread changes its own. A thread does
//! that last before it resumes, because earlier steps may need more rights.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::{
    capture::proc::{self, NumberPath},
    frozen::{
        arena::{self, List},
        fault::{Outcome, Shown, Step as _, refuse},
        scratch,
    },
    raw::sys::{self, nr},
};

/// The limit of supplementary groups of a process (NGROUPS_MAX).
const GROUPS_MAX: usize = 1 << 16;
/// The number of bits in the kernel's capability sets.
const CAPABILITIES: u32 = 64;
const SETGID: u64 = 1 << 6;
const SETUID: u64 = 1 << 7;

/// The credentials of a thread, from `/proc/thread-self/status`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// Real, effective, saved, for files.
    users: [u32; 4],
    /// Real, effective, saved, for files.
    groups: [u32; 4],
    /// Supplementary groups, ascending.
    others: &'static [u32],
    inheritable: u64,
    permitted: u64,
    effective: u64,
    bounding: u64,
    ambient: u64,
    secure_bits: u32,
    no_new_privs: bool,
}

/// The changes by which a thread gets the credentials of the saved process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Change {
    sets_users: bool,
    sets_groups: bool,
    sets_others: bool,
}

/// The lines of a status that must be the same for all threads.
const LINES: [&[u8]; 6] = [
    b"Uid:",
    b"Gid:",
    b"Groups:",
    b"CapPrm:",
    b"CapEff:",
    b"NoNewPrivs:",
];

fn line<'a>(status: &'a [u8], name: &[u8]) -> &'a [u8] {
    let mut lines = status.split(|byte| *byte == b'\n');
    lines
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default()
}

/// The four numbers of a line.
fn four(line: &[u8]) -> [u32; 4] {
    let mut numbers = line
        .split(u8::is_ascii_whitespace)
        .filter_map(proc::decimal)
        .map(|number| number as u32);
    std::array::from_fn(|_| numbers.next().unwrap_or(u32::MAX))
}

/// The rights of the process that inspects an image.
pub struct Rights {
    /// The effective user id.
    pub user: u32,
    /// The effective group id.
    pub group: u32,
    /// Whether the rights are ordinary: see [`Credentials::are_ordinary`].
    pub are_ordinary: bool,
    /// Whether the process may become any user and enter any group.
    pub may_change_user: bool,
}

impl Rights {
    /// The rights in the text of `/proc/thread-self/status`.
    pub fn of(status: &[u8]) -> Self {
        let (users, groups) = (four(line(status, b"Uid:")), four(line(status, b"Gid:")));
        let set = |name| proc::field(status, name).and_then(proc::hexadecimal);
        let effective = set("CapEff").unwrap_or(0);
        Rights {
            user: users[1],
            group: groups[1],
            are_ordinary: one_user(users, groups) && set("CapPrm") == Some(0),
            may_change_user: effective & SETUID != 0 && effective & SETGID != 0,
        }
    }
}

/// Whether all ids are those of one user who is not root.
fn one_user(users: [u32; 4], groups: [u32; 4]) -> bool {
    let one = |ids: [u32; 4]| ids.iter().all(|id| *id == ids[0]);
    users[0] != 0 && one(users) && one(groups)
}

/// The credentials of this thread.
pub fn capture() -> Outcome<Credentials> {
    let status = proc::read_file(b"/proc/thread-self/status\0", "looking at the credentials")?;
    // SAFETY: numbers.
    let mut others = unsafe { List::<u32>::new(GROUPS_MAX)? };
    let words = line(status, b"Groups:").split(u8::is_ascii_whitespace);
    for group in words.filter_map(proc::decimal) {
        others.push(group as u32, "groups")?;
    }
    let others = others.into_static();
    others.sort_unstable();
    let set = |name| {
        proc::field(status, name)
            .and_then(proc::hexadecimal)
            .unwrap_or(0)
    };
    Ok(Credentials {
        users: four(line(status, b"Uid:")),
        groups: four(line(status, b"Gid:")),
        others,
        inheritable: set("CapInh"),
        permitted: set("CapPrm"),
        effective: set("CapEff"),
        bounding: set("CapBnd"),
        ambient: set("CapAmb"),
        // SAFETY: the call only reads.
        secure_bits: unsafe { sys::call1(nr::PRCTL, libc::PR_GET_SECUREBITS as usize) } as u32,
        no_new_privs: proc::field(status, "NoNewPrivs") == Some(b"1"),
    })
}

/// Refuses a process whose threads have different rights: the C library gives all threads the same
/// rights, and so does a restore.
pub fn check() -> Outcome<()> {
    let mark = arena::mark();
    let own = proc::read_file(b"/proc/thread-self/status\0", "looking at the credentials")?;
    let result = proc::for_each_number(b"/proc/self/task\0", "listing the threads", |tid| {
        let mark = arena::mark();
        let path = NumberPath::new("/proc/self/task/", tid, "/status");
        // A thread that has ended meanwhile and the thread that sends memory are not the program's.
        if tid == scratch::sender_tid() {
            return Ok(());
        }
        let Ok(status) = proc::read_file(path.bytes(), "looking at a thread") else {
            return Ok(());
        };
        let differs = |name: &&&[u8]| line(status, name) != line(own, name);
        let result = match LINES.iter().find(differs) {
            None => Ok(()),
            Some(name) => refuse!(
                "the thread {tid} ({}) has other rights than the thread that saves ({} {} in place \
                 of {})",
                Shown(proc::field(status, "Name").unwrap_or(b"?")),
                Shown(name),
                Shown(line(status, name).trim_ascii()),
                Shown(line(own, name).trim_ascii()),
            ),
        };
        // SAFETY: the file's bytes are not used any more.
        unsafe { arena::release(mark) };
        result
    });
    // SAFETY: as above.
    unsafe { arena::release(mark) };
    result
}

impl Credentials {
    /// The effective user id.
    pub fn user(&self) -> u32 {
        self.users[1]
    }

    /// The effective group id.
    pub fn group(&self) -> u32 {
        self.groups[1]
    }

    /// Whether the credentials are ordinary: one user id, not root's, one group id, and no
    /// capability.
    pub fn are_ordinary(&self) -> bool {
        one_user(self.users, self.groups) && self.permitted == 0
    }

    /// The changes by which a process with the credentials `here` gets these credentials. Refused
    /// if it cannot get them. Changes nothing.
    pub fn change_from(&self, here: &Credentials) -> Outcome<Change> {
        let stays = self.are_ordinary() && here.are_ordinary();
        let can = |capability| here.effective & capability != 0;
        let mut change = Change {
            sets_users: self.users != here.users && can(SETUID),
            sets_groups: self.groups != here.groups && can(SETGID),
            sets_others: self.others != here.others && can(SETGID),
        };
        if stays && !change.sets_users {
            change.sets_groups = false;
            change.sets_others = false;
            return Ok(change);
        }
        let lacks_users = self.users != here.users && !change.sets_users;
        let lacks_groups = self.groups != here.groups && !change.sets_groups;
        if lacks_users || lacks_groups {
            let ([was, was_effective, ..], [is, ..]) = (self.users, here.users);
            let (was_group, is_group) = (self.groups[1], here.groups[1]);
            return refuse!(
                "it ran as user {was} (effective {was_effective}) and group {was_group}, and user \
                 {is}, group {is_group}, who restores it, may not become that: restore it as that \
                 user, or as root"
            );
        }
        let is_new = |group: &&u32| self.others.binary_search(group).is_err();
        if let (false, Some(group)) = (change.sets_others, here.others.iter().find(is_new)) {
            return refuse!(
                "it was not in the group {group}; user {}, who restores it, is in this group and may \
                 not leave it: restore it as a user who is in no other groups, or as root",
                here.users[0]
            );
        }
        Ok(change)
    }

    /// Gives this thread these credentials. `death_signal` is the signal that the saved thread got
    /// when its parent ended.
    pub fn take(&self, change: Change, here: &Credentials, death_signal: i32) -> Outcome<()> {
        if self == here {
            return Ok(());
        }
        let mut death = 0i32;
        // SAFETY: each call sets rights of this thread, as the saved thread had them.
        unsafe {
            let at = &raw mut death as usize;
            sys::call2(nr::PRCTL, libc::PR_GET_PDEATHSIG as usize, at);
            for bit in bits(here.bounding & !self.bounding) {
                // The bounding set limits programs that are executed. Changing it needs a
                // privilege; without it the set stays.
                sys::call2(nr::PRCTL, libc::PR_CAPBSET_DROP as usize, bit as usize);
            }
        }
        self.take_groups(change, here)?;
        self.take_users(change)?;
        self.take_capabilities()?;
        // SAFETY: as above. A change of users has made the process not dumpable and removed the
        // death signal; at the save the process was dumpable.
        unsafe {
            if self.no_new_privs {
                sys::call5(nr::PRCTL, libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0);
            }
            sys::call2(nr::PRCTL, libc::PR_SET_DUMPABLE as usize, 1);
            let death = if death_signal != 0 {
                death_signal
            } else {
                death
            };
            sys::call2(nr::PRCTL, libc::PR_SET_PDEATHSIG as usize, death as usize);
        }
        Ok(())
    }

    fn take_groups(&self, change: Change, here: &Credentials) -> Outcome<()> {
        const SETGROUPS: usize = 116;
        const SETRESGID: usize = 119;
        const SETFSGID: usize = 123;
        let [real, effective, saved, files] = self.groups.map(|id| id as usize);
        // SAFETY: the kernel reads the list.
        unsafe {
            if change.sets_others {
                let (count, at) = (self.others.len(), self.others.as_ptr() as usize);
                let set = sys::check(sys::call2(SETGROUPS, count, at));
                let is_new = |group: &u32| self.others.binary_search(group).is_err();
                // A missing group is no additional right; an additional group is one.
                if set.is_err() && here.others.iter().any(is_new) {
                    set.step("leaving groups that the process was not in")?;
                }
            }
            if change.sets_groups {
                let set = sys::call3(SETRESGID, real, effective, saved);
                sys::check(set).step("changing to the group of the process")?;
                sys::call1(SETFSGID, files);
            }
        }
        Ok(())
    }

    fn take_users(&self, change: Change) -> Outcome<()> {
        const SETRESUID: usize = 117;
        const SETFSUID: usize = 122;
        if !change.sets_users {
            return Ok(());
        }
        let [real, effective, saved, files] = self.users.map(|id| id as usize);
        // SAFETY: the call changes the users of this thread. Its capabilities are kept, and reduced
        // afterwards.
        unsafe {
            sys::call2(nr::PRCTL, libc::PR_SET_KEEPCAPS as usize, 1);
            let set = sys::call3(SETRESUID, real, effective, saved);
            sys::check(set).step("changing to the user of the process")?;
            sys::call1(SETFSUID, files);
        }
        Ok(())
    }

    fn take_capabilities(&self) -> Outcome<()> {
        const SETPCAP: u64 = 1 << 8;
        let [_, permitted, inheritable] = capabilities()?;
        let wanted = permitted & self.permitted;
        if permitted & SETPCAP != 0 {
            set_capabilities([permitted, permitted, inheritable])?;
        }
        // SAFETY: the settings say what a change of users does to capabilities, and which
        // capabilities executed programs get. Without the right to change them they stay.
        unsafe {
            let (set, bits) = (libc::PR_SET_SECUREBITS as usize, self.secure_bits as usize);
            sys::call2(nr::PRCTL, set, bits);
            let keeps = self.secure_bits as usize >> 4 & 1;
            sys::call2(nr::PRCTL, libc::PR_SET_KEEPCAPS as usize, keeps);
        }
        let heritage = self.inheritable & (inheritable | permitted);
        set_capabilities([wanted & self.effective, wanted, heritage])?;
        // SAFETY: as above. A capability that is not permitted cannot be raised.
        unsafe {
            let (ambient, clear, raise) = (libc::PR_CAP_AMBIENT as usize, 4, 2);
            sys::call5(nr::PRCTL, ambient, clear, 0, 0, 0);
            for bit in bits(self.ambient) {
                sys::call5(nr::PRCTL, ambient, raise, bit as usize, 0, 0);
            }
        }
        Ok(())
    }
}

fn bits(set: u64) -> impl Iterator<Item = u32> {
    (0..CAPABILITIES).filter(move |bit| set & 1 << bit != 0)
}

/// Version 3 of the capability sets, and this thread.
const HEADER: [u32; 2] = [0x2008_0522, 0];

/// The effective, permitted and inheritable capabilities of this thread.
fn capabilities() -> Outcome<[u64; 3]> {
    const CAPGET: usize = 125;
    let mut sets = [[0u32; 3]; 2];
    let (header, to) = (HEADER.as_ptr() as usize, sets.as_mut_ptr() as usize);
    // SAFETY: the kernel reads the header and writes the sets.
    sys::check(unsafe { sys::call2(CAPGET, header, to) }).step("reading the capabilities")?;
    Ok([0, 1, 2].map(|at| u64::from(sets[0][at]) | u64::from(sets[1][at]) << 32))
}

fn set_capabilities(wanted: [u64; 3]) -> Outcome<()> {
    const CAPSET: usize = 126;
    let sets = [0, 32].map(|shift| wanted.map(|set| (set >> shift) as u32));
    let (header, from) = (HEADER.as_ptr() as usize, sets.as_ptr() as usize);
    // SAFETY: the kernel reads header and sets.
    let set = unsafe { sys::call2(CAPSET, header, from) };
    sys::check(set).step("giving up capabilities").map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: u32, others: &'static [u32], permitted: u64) -> Credentials {
        Credentials {
            users: [user; 4],
            groups: [user; 4],
            others,
            inheritable: 0,
            permitted,
            effective: permitted,
            bounding: u64::MAX,
            ambient: 0,
            secure_bits: 0,
            no_new_privs: false,
        }
    }

    fn change(was: Credentials, here: Credentials) -> Option<[bool; 3]> {
        let change = was.change_from(&here).ok()?;
        Some([change.sets_users, change.sets_groups, change.sets_others])
    }

    #[test]
    fn a_restore_returns_no_right_that_the_process_gave_up() {
        let root = of(0, &[0], u64::MAX);
        let user = of(1000, &[7, 1000], 0);
        assert_eq!(change(root, root), Some([false; 3]));
        assert_eq!(change(user, root), Some([true; 3]), "root becomes the user");
        assert_eq!(change(root, user), None, "a user cannot become root");
        assert_eq!(change(of(1001, &[3], 0), user), Some([false; 3]));
        let mut half = user;
        half.users[2] = 0;
        assert_eq!(change(half, user), None, "it could have become root again");
        assert_eq!(change(user, half), None);
        let (dropped, bound) = (of(0, &[], 0), of(0, &[5], 0));
        assert_eq!(
            change(dropped, of(0, &[5], SETGID)),
            Some([false, false, true])
        );
        assert_eq!(change(dropped, bound), None, "it would be in a group");
        assert_eq!(
            change(bound, dropped),
            Some([false; 3]),
            "it is in one less"
        );
    }
}
