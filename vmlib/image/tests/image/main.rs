//! Images made from records, read back, cut, flipped, and made to lie.

mod arbitrary;
mod damage;
mod files;
mod host;
mod impossible;
mod made;
mod memory;
mod page;
mod summary;
