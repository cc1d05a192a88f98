//! Code that the example programs share; each program itself is one short file in `src/bin`.
//!
//! The main example aligns two genomes. [`fasta`] reads them, [`align`] holds the algorithm, which
//! knows nothing of processes: `bin/align-serial.rs` runs it in one, `bin/align` spreads it over
//! the machine, and both print the same [`align::report`]. [`heat`] and [`matrix`] are what the
//! programs of these names compute, whose tasks exchange messages all the time; [`workers`] starts
//! those of all three. [`cluster`] starts a machine of several
//! daemons on this computer, for `demo`, `vmbench` and `longrun`.

pub mod align;
pub mod cluster;
pub mod fasta;
pub mod heat;
pub mod matrix;
pub mod workers;
