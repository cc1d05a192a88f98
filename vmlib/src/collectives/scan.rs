//! Scan: each member gets the combined values of the members up to itself.
//!
//! Hillis and Steele: Data parallel algorithms (1986). In each step the distance doubles, and with it
//! the number of members whose values a member has combined.

use super::{
    call::{Call, Reach},
    choice::Collective,
    item::{Fold, Item, Side, fold},
    op::Op,
};
use crate::{Group, Number, Task, error::GroupError};

impl Task {
    /// Combines, place by place, the values of the members with lower instances and this one's own.
    /// All members pass equally many values.
    ///
    /// # Errors
    /// As [`Task::reduce`].
    pub fn scan<T: Number>(
        &self,
        group: &Group,
        op: Op,
        values: &[T],
    ) -> Result<Vec<T>, GroupError> {
        op.check::<T>(group)?;
        op.fold(|fold| self.scan_fold(group, values, fold))
    }

    /// As [`Task::scan`], with an operation of the program's own. `operation` must be associative;
    /// its operands come by instance.
    ///
    /// # Errors
    /// As [`Task::reduce`].
    pub fn scan_by<T: Number>(
        &self,
        group: &Group,
        values: &[T],
        operation: impl Fn(T, T) -> T,
    ) -> Result<Vec<T>, GroupError> {
        self.scan_fold(group, values, &fold(operation))
    }

    /// Combines, place by place, the values of the members with lower instances, without this one's
    /// own; `None` for the lowest instance.
    ///
    /// # Errors
    /// As [`Task::reduce`].
    pub fn exclusive_scan<T: Number>(
        &self,
        group: &Group,
        op: Op,
        values: &[T],
    ) -> Result<Option<Vec<T>>, GroupError> {
        op.check::<T>(group)?;
        op.fold(|fold| {
            let mut values = values.to_vec();
            self.collective(group, Collective::Scan, Reach::Neighbours, |call| {
                inclusive(call, &mut values, fold)?;
                let me = call.me();
                if me + 1 < call.size() {
                    call.send_items(me + 1, &values)?;
                }
                if me == 0 {
                    return Ok(None);
                }
                call.receive_items(me - 1, &mut values)?;
                Ok(Some(values))
            })
        })
    }

    fn scan_fold<T: Number>(
        &self,
        group: &Group,
        values: &[T],
        fold: Fold<'_, T>,
    ) -> Result<Vec<T>, GroupError> {
        let mut values = values.to_vec();
        self.collective(group, Collective::Scan, Reach::Neighbours, |call| {
            inclusive(call, &mut values, fold)
        })?;
        Ok(values)
    }
}

fn inclusive<T: Item>(
    call: &Call<'_>,
    values: &mut [T],
    fold: Fold<'_, T>,
) -> Result<(), GroupError> {
    let (n, me) = (call.size(), call.me());
    let mut distance = 1;
    while distance < n {
        if me + distance < n {
            call.send_items(me + distance, values)?;
        }
        if me >= distance {
            call.receive_fold(me - distance, values, fold, Side::Before)?;
        }
        distance *= 2;
    }
    Ok(())
}
