//! Numbers of the signals that the daemon itself sends, or treats differently from others. Linux
//! uses these numbers on every architecture for which the daemon is built.

/// The terminal of a run was closed.
pub(super) const SIGHUP: i32 = 1;
/// Interrupt from the keyboard.
pub(super) const SIGINT: i32 = 2;
/// Quit from the keyboard.
pub(super) const SIGQUIT: i32 = 3;
/// Ends a process, which can neither handle nor ignore it.
pub(super) const SIGKILL: i32 = 9;
/// Asks a process to end.
pub(super) const SIGTERM: i32 = 15;
