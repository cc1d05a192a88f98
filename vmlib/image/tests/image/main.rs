//! Images made from records: read, cut, damaged, and with contradictions.

mod arbitrary;
mod damage;
mod files;
mod host;
mod impossible;
mod made;
mod memory;
mod page;
mod summary;
