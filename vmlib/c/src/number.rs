//! The types of numbers that travel in arrays (`vm_type`).

use crate::error::Error;
use std::ffi::c_int;

/// A type of numbers, by its number in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `VM_INT8`
    Int8,
    /// `VM_UINT8`
    Uint8,
    /// `VM_INT16`
    Int16,
    /// `VM_UINT16`
    Uint16,
    /// `VM_INT32`
    Int32,
    /// `VM_UINT32`
    Uint32,
    /// `VM_INT64`
    Int64,
    /// `VM_UINT64`
    Uint64,
    /// `VM_FLOAT`
    Float,
    /// `VM_DOUBLE`
    Double,
}

impl Type {
    /// The type of that number.
    pub fn of(number: c_int) -> Result<Type, Error> {
        Ok(match number {
            1 => Type::Int8,
            2 => Type::Uint8,
            3 => Type::Int16,
            4 => Type::Uint16,
            5 => Type::Int32,
            6 => Type::Uint32,
            7 => Type::Int64,
            8 => Type::Uint64,
            9 => Type::Float,
            10 => Type::Double,
            other => {
                return Err(Error::invalid(format!(
                    "{other} is no vm_type: pass VM_DOUBLE, VM_INT32 or another one of them"
                )));
            }
        })
    }
}

/// Evaluates `$body` with `$number` as the type of numbers that `$type` names.
macro_rules! with_numbers {
    ($type:expr, $number:ident => $body:expr) => {
        match $crate::number::Type::of($type)? {
            $crate::number::Type::Int8 => {
                type $number = i8;
                $body
            }
            $crate::number::Type::Uint8 => {
                type $number = u8;
                $body
            }
            $crate::number::Type::Int16 => {
                type $number = i16;
                $body
            }
            $crate::number::Type::Uint16 => {
                type $number = u16;
                $body
            }
            $crate::number::Type::Int32 => {
                type $number = i32;
                $body
            }
            $crate::number::Type::Uint32 => {
                type $number = u32;
                $body
            }
            $crate::number::Type::Int64 => {
                type $number = i64;
                $body
            }
            $crate::number::Type::Uint64 => {
                type $number = u64;
                $body
            }
            $crate::number::Type::Float => {
                type $number = f32;
                $body
            }
            $crate::number::Type::Double => {
                type $number = f64;
                $body
            }
        }
    };
}
pub(crate) use with_numbers;
