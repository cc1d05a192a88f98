//! The numbers that travel in slices, and their arithmetic in collective calls.
//!
//! A slice of numbers has one layout on every host: little-endian, one number after the other.

use bytes::Bytes;

/// A number that travels in slices: the integers of 8 to 64 bits, `f32`, `f64`.
pub trait Number: sealed::LittleEndian + sealed::Arithmetic {}

pub(crate) mod sealed {
    /// The only implementors are below, so that a slice has one layout on every host.
    pub trait LittleEndian: bytemuck::Pod {
        /// The same number with its bytes in, or back from, little-endian order.
        #[must_use]
        fn swapped_if_big(self) -> Self;
    }

    /// The operations of [`crate::Op`]. Integers wrap around. The order of two floating-point numbers
    /// is the same on every architecture: a number that is not a number (NaN) loses against every
    /// other, and of two equal ones the first is taken.
    pub trait Arithmetic: Copy {
        /// Whether the operations on bits exist.
        const HAS_BITS: bool;
        /// Sum.
        fn plus(self, other: Self) -> Self;
        /// Product.
        fn times(self, other: Self) -> Self;
        /// Whether `other` is to be taken as the smaller of both.
        fn is_above(self, other: Self) -> bool;
        /// Whether `other` is to be taken as the greater of both.
        fn is_below(self, other: Self) -> bool;
        /// Bitwise and.
        fn and(self, other: Self) -> Self;
        /// Bitwise or.
        fn or(self, other: Self) -> Self;
        /// Bitwise exclusive or.
        fn xor(self, other: Self) -> Self;

        /// The smaller of both.
        fn lower(self, other: Self) -> Self {
            if self.is_above(other) { other } else { self }
        }

        /// The greater of both.
        fn upper(self, other: Self) -> Self {
            if self.is_below(other) { other } else { self }
        }
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Number for $integer {}
        impl sealed::LittleEndian for $integer {
            fn swapped_if_big(self) -> Self { self.to_le() }
        }
        impl sealed::Arithmetic for $integer {
            const HAS_BITS: bool = true;
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn is_above(self, other: Self) -> bool { other < self }
            fn is_below(self, other: Self) -> bool { other > self }
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn xor(self, other: Self) -> Self { self ^ other }
        }
    )*};
}

macro_rules! floats {
    ($($float:ty)*) => {$(
        impl Number for $float {}
        impl sealed::LittleEndian for $float {
            fn swapped_if_big(self) -> Self { <$float>::from_bits(self.to_bits().to_le()) }
        }
        impl sealed::Arithmetic for $float {
            const HAS_BITS: bool = false;
            fn plus(self, other: Self) -> Self { self + other }
            fn times(self, other: Self) -> Self { self * other }
            fn is_above(self, other: Self) -> bool { other < self || self.is_nan() }
            fn is_below(self, other: Self) -> bool { other > self || self.is_nan() }
            // Refused before any call ([`Self::HAS_BITS`]).
            fn and(self, _: Self) -> Self { self }
            fn or(self, _: Self) -> Self { self }
            fn xor(self, _: Self) -> Self { self }
        }
    )*};
}

integers! { u8 u16 u32 u64 i8 i16 i32 i64 }
floats! { f32 f64 }

/// The body of a message of numbers: the one copy that keeps them until they are acknowledged.
pub(crate) fn encode_slice<T: Number>(numbers: &[T]) -> Bytes {
    if cfg!(target_endian = "little") {
        return Bytes::copy_from_slice(bytemuck::cast_slice(numbers));
    }
    let swapped: Vec<T> = numbers.iter().map(|n| n.swapped_if_big()).collect();
    Bytes::copy_from_slice(bytemuck::cast_slice(&swapped))
}

/// Copies a body of exactly their length into `numbers`.
pub(crate) fn fill<T: Number>(numbers: &mut [T], body: &[u8]) {
    bytemuck::cast_slice_mut(numbers).copy_from_slice(body);
    from_little_endian(numbers);
}

/// Makes numbers of what are the bytes of a message.
pub(crate) fn from_little_endian<T: Number>(numbers: &mut [T]) {
    if cfg!(target_endian = "big") {
        for number in numbers {
            *number = number.swapped_if_big();
        }
    }
}
