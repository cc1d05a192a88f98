//! The codes that the functions return, as `include/vm.h` lists them.

use std::ffi::{CStr, c_char, c_int};

macro_rules! codes {
    ($($variant:ident $name:literal $value:literal $text:literal)*) => {
        /// An error of the interface. The numbers never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = $text] $variant = $value,)*
        }

        /// The name of each code in the header, its number, and what `vm_strerror` says.
        pub const CODES: &[(&str, c_int, &CStr)] = &[$(($name, $value, {
            match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                Ok(text) => text,
                Err(_) => panic!("a text without zero bytes"),
            }
        }),)*];
    };
}

codes! {
    Invalid "VM_EINVAL" -1 "an argument is not valid"
    Internal "VM_EINTERNAL" -2 "the library has a fault"
    Left "VM_ELEFT" -3 "this task has left the machine"
    InCallback "VM_EINCALLBACK" -4 "a callback around a save may not make this call"
    Link "VM_ELINK" -5 "the connection to the daemon failed"
    NoDaemon "VM_ENODAEMON" -6 "no daemon answers on this host"
    Twice "VM_ETWICE" -7 "this process is a task already"
    Silent "VM_ESILENT" -8 "the daemon did not answer in time"
    Protocol "VM_EPROTOCOL" -9 "program and daemon are of different releases"
    System "VM_ESYSTEM" -10 "a call of the operating system failed"
    Refused "VM_EREFUSED" -11 "the machine refuses the request"
    TryAgain "VM_ETRYAGAIN" -12 "not possible now: try again"
    Limit "VM_ELIMIT" -13 "a limit is reached"
    NoHost "VM_ENOHOST" -14 "there is no such host"
    HostLost "VM_EHOSTLOST" -15 "the host was lost"
    NoTask "VM_ENOTASK" -16 "there is no such task"
    Ended "VM_EENDED" -17 "the task has ended"
    NoProgram "VM_ENOPROGRAM" -18 "the program or its folder was not found"
    NotExecutable "VM_ENOEXEC" -19 "the host cannot execute the program"
    Partly "VM_EPARTLY" -20 "some of the tasks were not started"
    TooLong "VM_ETOOLONG" -21 "the message is too long"
    Space "VM_ESPACE" -22 "there is not enough room for the result"
    Type "VM_ETYPE" -23 "the message is not of that type or length"
    InboxFull "VM_EINBOXFULL" -24 "the inbox is full"
    NotOpen "VM_ENOTOPEN" -25 "the result of the request was returned before"
    Unsent "VM_EUNSENT" -26 "started messages were not sent"
    InUse "VM_EINUSE" -27 "another thread uses the handle"
    NoGroup "VM_ENOGROUP" -28 "there is no such group"
    NotMember "VM_ENOTMEMBER" -29 "this task is no member of the group"
    NoInstance "VM_ENOINSTANCE" -30 "the group has no member of that instance"
    Version "VM_EVERSION" -31 "the group has changed: refresh the handle"
    MemberLeft "VM_EMEMBERLEFT" -32 "a member has left the group"
    OutOfStep "VM_EOUTOFSTEP" -33 "a member makes another collective call"
    MemberFailed "VM_EMEMBERFAILED" -34 "the collective call failed at a member"
    Shape "VM_ESHAPE" -35 "the values do not fit the collective call"
    Interrupted "VM_EINTERRUPTED" -36 "the program has interrupted the call"
}

/// The statuses of functions that succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// `VM_OK`.
    Done = 0,
    /// `VM_NOTHING`: there is none, or none in that time.
    Nothing = 1,
    /// `VM_RESTORED`: this process was made of the checkpoint.
    Restored = 2,
}

/// Says in a few words what a code means.
#[unsafe(no_mangle)]
pub extern "C" fn vm_strerror(code: c_int) -> *const c_char {
    let found = CODES.iter().find(|(_, number, _)| *number == code);
    let text = match (code, found) {
        (_, Some((_, _, text))) => text,
        (0, None) => c"success",
        (1, None) => c"nothing there",
        (2, None) => c"brought back from a checkpoint",
        (_, None) => c"not a code of this library",
    };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_defines_every_code_with_its_number() {
        let header = include_str!("../include/vm.h");
        let defined: Vec<(&str, c_int)> = header
            .lines()
            .filter_map(|line| line.strip_prefix("#define VM_E"))
            .filter_map(|rest| rest.split_once(char::is_whitespace))
            .filter_map(|(name, rest)| Some((name, rest.split(')').next()?.trim())))
            .filter_map(|(name, number)| Some((name, number.strip_prefix('(')?.parse().ok()?)))
            .collect();
        let ours: Vec<(&str, c_int)> = CODES
            .iter()
            .map(|(name, number, _)| (&name["VM_E".len()..], *number))
            .collect();
        assert_eq!(defined, ours);
    }
}
