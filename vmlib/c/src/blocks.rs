//! Results of collective calls that have a length for each member.

use crate::{
    border::Out,
    code::Status,
    error::{Error, call, value},
    handle::{Handle, Kept, Table},
};
use std::ffi::{c_int, c_void};
use vmlib::Number;

/// One list of numbers for each member (`vm_blocks`).
#[derive(Debug)]
pub struct Blocks {
    blocks: Vec<Block>,
}

/// A list, aligned for every type of numbers.
#[derive(Debug)]
struct Block {
    words: Vec<u64>,
    count: usize,
}

impl Kept for Blocks {
    const KIND: u8 = 6;
    fn table() -> &'static Table<Self> {
        static TABLE: Table<Blocks> = Table::new();
        &TABLE
    }
}

impl Blocks {
    /// Copies of these lists.
    pub fn new<T: Number>(lists: &[Vec<T>]) -> Self {
        let block = |list: &Vec<T>| {
            let bytes: &[u8] = bytemuck::cast_slice(list);
            let mut words = vec![0u64; bytes.len().div_ceil(size_of::<u64>())];
            bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
            Block {
                words,
                count: list.len(),
            }
        };
        Blocks {
            blocks: lists.iter().map(block).collect(),
        }
    }
}

/// How many blocks there are.
#[unsafe(no_mangle)]
pub extern "C" fn vm_blocks_count(blocks: Handle<Blocks>) -> i64 {
    let count = || blocks.with(|it| it.blocks.len());
    value(count, |count| count as i64, i64::from)
}

/// Where the numbers of a block are, and how many.
#[unsafe(no_mangle)]
pub extern "C" fn vm_blocks_get(
    blocks: Handle<Blocks>,
    index: usize,
    values: Out<'_, *const c_void>,
    count: Out<'_, usize>,
) -> c_int {
    call(|| {
        let mut values = values.place_with(std::ptr::null(), "the place for the values")?;
        let mut count = count.place_with(0, "the place for the count")?;
        blocks.with(|it| match it.blocks.get(index) {
            Some(block) => {
                values.put(block.words.as_ptr().cast());
                count.put(block.count);
                Ok(Status::Done)
            }
            None => Err(Error::invalid(format!(
                "block {index} of {}; they are numbered from 0",
                it.blocks.len()
            ))),
        })?
    })
}

/// Frees blocks.
#[unsafe(no_mangle)]
pub extern "C" fn vm_blocks_free(blocks: Handle<Blocks>) -> c_int {
    call(|| blocks.free().map(|()| Status::Done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_aligned_for_every_number_and_has_those_of_its_list() {
        let blocks = Blocks::new(&[vec![1i16, -2, 3], Vec::new()]);
        let bytes: &[u8] = bytemuck::cast_slice(&blocks.blocks[0].words);
        assert_eq!(&bytes[..6], bytemuck::cast_slice::<i16, u8>(&[1, -2, 3]));
        assert_eq!(
            blocks.blocks.iter().map(|it| it.count).collect::<Vec<_>>(),
            [3, 0]
        );
    }
}
