//! Consoles: their requests, the listings that they are shown, and the programs that they run, to
//! the last line of output.
//!
//! | file | what it decides |
//! |---|---|
//! | `requests` | which reply a request of a console gets, or what it waits for |
//! | `listing` | the tasks of the machine with what they use |
//! | `runs` | programs that a console runs as if they were local |
//! | `flush` | the end of a run, after the last line |
//! | `streams` | output of a master on another host than its console |

mod flush;
mod listing;
mod requests;
mod runs;
mod streams;

pub(super) use listing::Listing;
pub(super) use requests::Console;
pub(super) use runs::{Run, RunAsked};
pub(super) use streams::{Delivery, Unsent};
