//! The preparations of a daemon before it serves: its command line, its folder and its secret, the
//! log, the background (`--detach`), process 1 of a container. This folder owns the files in the
//! daemon's folder, and the descriptors that the daemon inherits from the process that starts it.

pub mod args;
pub mod dir;
pub mod files;

pub mod ended;
pub mod last;
pub mod secret;

pub mod inherited;

pub mod detach;
pub mod logging;

pub mod init;
