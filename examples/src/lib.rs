//! Code that the example programs share; each program itself is one short file in `src/bin`.
//!
//! The main example aligns two genomes. [`fasta`] reads them, [`align`] has the algorithm, without
//! any knowledge of processes: `bin/align-serial.rs` runs it in one process, `bin/align` spreads it
//! over the machine, and both print the same [`align::report`]. [`heat`] and [`matrix`] have the
//! computations of the programs with these names, whose tasks exchange messages all the time.
//! [`workers`] starts the workers of all three. [`cluster`] starts a machine of several daemons on
//! this computer, for `demo`, `vmbench` and `longrun`.

pub mod align;
pub mod cluster;
pub mod fasta;
pub mod heat;
pub mod matrix;
pub mod workers;
