//! The operations of reductions.

use super::item::{Fold, fold};
use crate::{Group, error::GroupError, number::Number};
use std::any::type_name;

/// An operation that combines the values of all members, one by one by their place in the slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// The sum. Integers wrap around.
    Sum,
    /// The product. Integers wrap around.
    Product,
    /// The smallest value. Of floating-point numbers, NaN only if all are.
    Min,
    /// The greatest value. Of floating-point numbers, NaN only if all are.
    Max,
    /// Bitwise and, of integers.
    And,
    /// Bitwise or, of integers.
    Or,
    /// Bitwise exclusive or, of integers.
    Xor,
}

/// In which order a program's own operation may be given its operands. The operation must be
/// associative in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    /// `a` and `b` give what `b` and `a` give: the operands may come in any order.
    AnyOrder,
    /// The operands come by instance: those of lower instances first.
    ByInstance,
}

impl Op {
    /// An error if numbers of this type do not have the operation.
    pub(super) fn check<T: Number>(self, group: &Group) -> Result<(), GroupError> {
        match self {
            Op::And | Op::Or | Op::Xor if !T::HAS_BITS => Err(GroupError::Shape {
                group: group.name().to_owned(),
                what: format!("{} has no {self:?}", type_name::<T>()),
            }),
            _ => Ok(()),
        }
    }

    /// Gives the operation to `take`.
    pub(super) fn fold<T: Number, R>(self, take: impl FnOnce(Fold<'_, T>) -> R) -> R {
        match self {
            Op::Sum => take(&fold(T::plus)),
            Op::Product => take(&fold(T::times)),
            Op::Min => take(&fold(T::lower)),
            Op::Max => take(&fold(T::upper)),
            Op::And => take(&fold(T::and)),
            Op::Or => take(&fold(T::or)),
            Op::Xor => take(&fold(T::xor)),
        }
    }
}
