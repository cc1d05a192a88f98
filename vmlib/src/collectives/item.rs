//! The values that collective calls transfer and combine, and their layout in messages.

use crate::number::{self, Number};
use bytes::{BufMut, BytesMut};

/// A value of fixed length.
pub(super) trait Item: Copy {
    /// Length in messages. Bytes.
    const LEN: usize;

    /// A value that is overwritten.
    fn empty() -> Self;

    /// Reads a value of exactly its length.
    fn get(bytes: &[u8]) -> Self;

    /// Appends values to a message.
    fn put(items: &[Self], out: &mut BytesMut);

    /// Overwrites `items` with those of a message of exactly their length.
    fn fill(items: &mut [Self], bytes: &[u8]) {
        for (item, bytes) in items.iter_mut().zip(bytes.chunks_exact(Self::LEN)) {
            *item = Self::get(bytes);
        }
    }
}

impl<T: Number> Item for T {
    const LEN: usize = size_of::<T>();

    fn empty() -> Self {
        T::zeroed()
    }

    fn get(bytes: &[u8]) -> Self {
        bytemuck::pod_read_unaligned::<T>(bytes).swapped_if_big()
    }

    fn put(items: &[Self], out: &mut BytesMut) {
        if cfg!(target_endian = "little") {
            return out.put_slice(bytemuck::cast_slice(items));
        }
        for item in items {
            out.put_slice(bytemuck::bytes_of(&item.swapped_if_big()));
        }
    }

    fn fill(items: &mut [Self], bytes: &[u8]) {
        number::fill(items, bytes);
    }
}

/// A number and the instance of the member that has it.
impl<T: Number> Item for (T, u32) {
    const LEN: usize = size_of::<T>() + 4;

    fn empty() -> Self {
        (T::zeroed(), 0)
    }

    fn get(bytes: &[u8]) -> Self {
        let (value, instance) = bytes.split_at(size_of::<T>());
        (<T as Item>::get(value), <u32 as Item>::get(instance))
    }

    fn put(items: &[Self], out: &mut BytesMut) {
        for (value, instance) in items {
            <T as Item>::put(&[*value], out);
            <u32 as Item>::put(&[*instance], out);
        }
    }
}

/// Where the values of a message stand in an operation whose other operands are a member's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// They are those of lower instances.
    Before,
    /// They are those of higher instances.
    After,
}

/// Combines own values with those of a message, of exactly their length.
pub(super) type Fold<'a, T> = &'a dyn Fn(&mut [T], &[u8], Side);

/// The fold of an operation on two values.
pub(super) fn fold<T: Item>(operation: impl Fn(T, T) -> T) -> impl Fn(&mut [T], &[u8], Side) {
    move |own, bytes, side| {
        let other = bytes.chunks_exact(T::LEN).map(T::get);
        match side {
            Side::Before => own
                .iter_mut()
                .zip(other)
                .for_each(|(own, other)| *own = operation(other, *own)),
            Side::After => own
                .iter_mut()
                .zip(other)
                .for_each(|(own, other)| *own = operation(*own, other)),
        }
    }
}
