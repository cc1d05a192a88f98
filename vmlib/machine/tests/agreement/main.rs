//! The agreement of many hosts: scripts with a recorded course, and many random courses.

mod network;
mod random;
mod script;
