//! Reduction: the values of all members are combined, for one member or for all.
//!
//! All members of a reduction to all get the same bits: whatever the algorithm, the operands of a
//! combination stand in the same order at every member that computes it.

use super::{
    broadcast::broadcast_items,
    call::{Call, Reach, position, segments},
    choice::{Algorithm, Collective, algorithm},
    divided,
    item::{Fold, Item, Side, fold},
    op::{Op, Operands},
    tree,
};
use crate::{Group, Number, Task, error::GroupError};

impl Task {
    /// Combines the values of all members, place by place, for the member with instance `root`;
    /// the others get `None`. All members pass equally many values. A member that is not the root
    /// returns when its part is sent.
    ///
    /// # Errors
    /// [`GroupError`], see [`crate::collectives`]; [`GroupError::Shape`] for operations on bits of
    /// floating-point numbers.
    pub fn reduce<T: Number>(
        &self,
        group: &Group,
        root: u32,
        op: Op,
        values: &[T],
    ) -> Result<Option<Vec<T>>, GroupError> {
        op.check::<T>(group)?;
        op.fold(|fold| self.reduce_fold(group, root, Operands::AnyOrder, values, fold))
    }

    /// As [`Task::reduce`], with an operation of the program's own. `operation` must be associative.
    ///
    /// # Errors
    /// As [`Task::reduce`].
    pub fn reduce_by<T: Number>(
        &self,
        group: &Group,
        root: u32,
        operands: Operands,
        values: &[T],
        operation: impl Fn(T, T) -> T,
    ) -> Result<Option<Vec<T>>, GroupError> {
        self.reduce_fold(group, root, operands, values, &fold(operation))
    }

    /// Combines the values of all members, place by place, for all. All members pass equally many
    /// values, and all get the same bits.
    ///
    /// ```no_run
    /// # use vmlib::{Group, GroupError, Op, Task};
    /// # fn example(vm: &Task, group: &Group, own: &[f64]) -> Result<(), GroupError> {
    /// let dot: f64 = own.iter().map(|x| x * x).sum();
    /// let norm = vm.allreduce(group, Op::Sum, &[dot])?[0].sqrt();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Task::reduce`].
    pub fn allreduce<T: Number>(
        &self,
        group: &Group,
        op: Op,
        values: &[T],
    ) -> Result<Vec<T>, GroupError> {
        let mut values = values.to_vec();
        self.allreduce_in_place(group, op, &mut values)?;
        Ok(values)
    }

    /// As [`Task::allreduce`]; the result replaces `values`. After an error the values are undefined.
    ///
    /// # Errors
    /// As [`Task::reduce`].
    pub fn allreduce_in_place<T: Number>(
        &self,
        group: &Group,
        op: Op,
        values: &mut [T],
    ) -> Result<(), GroupError> {
        op.check::<T>(group)?;
        op.fold(|fold| self.allreduce_fold(group, Operands::AnyOrder, values, fold))
    }

    /// As [`Task::allreduce`], with an operation of the program's own. `operation` must be
    /// associative.
    ///
    /// # Errors
    /// As [`Task::reduce`].
    pub fn allreduce_by<T: Number>(
        &self,
        group: &Group,
        operands: Operands,
        values: &[T],
        operation: impl Fn(T, T) -> T,
    ) -> Result<Vec<T>, GroupError> {
        let mut values = values.to_vec();
        self.allreduce_fold(group, operands, &mut values, &fold(operation))?;
        Ok(values)
    }

    /// The smallest value of all members at each place, and the lowest instance that has it. NaN
    /// counts only if all members have it.
    ///
    /// # Errors
    /// As [`Task::reduce`].
    pub fn min_with_place<T: Number>(
        &self,
        group: &Group,
        values: &[T],
    ) -> Result<Vec<(T, u32)>, GroupError> {
        self.with_place(group, values, T::is_above)
    }

    /// The greatest value of all members at each place, and the lowest instance that has it. NaN
    /// counts only if all members have it.
    ///
    /// # Errors
    /// As [`Task::reduce`].
    pub fn max_with_place<T: Number>(
        &self,
        group: &Group,
        values: &[T],
    ) -> Result<Vec<(T, u32)>, GroupError> {
        self.with_place(group, values, T::is_below)
    }

    /// `gives_way`: whether the second value is to be taken. If neither value gives way to the other,
    /// or both do, the lower instance is taken.
    fn with_place<T: Number>(
        &self,
        group: &Group,
        values: &[T],
        gives_way: fn(T, T) -> bool,
    ) -> Result<Vec<(T, u32)>, GroupError> {
        let mut placed: Vec<(T, u32)> = values.iter().map(|v| (*v, group.instance())).collect();
        let better = |one: (T, u32), other: (T, u32)| {
            let (to_other, to_one) = (gives_way(one.0, other.0), gives_way(other.0, one.0));
            match to_other == to_one {
                true if other.1 < one.1 => other,
                true => one,
                false if to_other => other,
                false => one,
            }
        };
        let bytes = placed.len() * <(T, u32)>::LEN;
        let flat = is_flat(group, Operands::AnyOrder, bytes);
        let reach = if flat { Reach::All } else { Reach::Neighbours };
        self.collective(group, Collective::Allreduce, reach, |call| match flat {
            true => by_one(call, &mut placed, &fold(better)),
            false => by_doubling(call, &mut placed, &fold(better)),
        })?;
        Ok(placed)
    }

    fn allreduce_fold<T: Number>(
        &self,
        group: &Group,
        operands: Operands,
        values: &mut [T],
        fold: Fold<'_, T>,
    ) -> Result<(), GroupError> {
        let reach = match is_flat(group, operands, size_of_val(values)) {
            true => Reach::All,
            false => Reach::Neighbours,
        };
        self.collective(group, Collective::Allreduce, reach, |call| {
            to_all(call, operands, values, fold)
        })
    }

    fn reduce_fold<T: Number>(
        &self,
        group: &Group,
        root: u32,
        operands: Operands,
        values: &[T],
        fold: Fold<'_, T>,
    ) -> Result<Option<Vec<T>>, GroupError> {
        let root = position(group, root)?;
        // The operands of a tree with another root would begin in the middle.
        let top = match operands {
            Operands::AnyOrder => root,
            Operands::ByInstance => 0,
        };
        let reach = match root == top {
            true => Reach::Neighbours,
            false => Reach::All,
        };
        let mut values = values.to_vec();
        self.collective(group, Collective::Reduce, reach, |call| {
            to_one(call, top, &mut values, fold)?;
            if root != top && call.me() == top {
                call.send_items(root, &values)?;
            } else if root != top && call.me() == root {
                call.receive_items(top, &mut values)?;
            }
            Ok((call.me() == root).then_some(values))
        })
    }
}

fn is_flat(group: &Group, operands: Operands, bytes: usize) -> bool {
    algorithm(Collective::Allreduce, group.size(), bytes, operands) == Algorithm::Flat
}

/// The reduction by a binomial tree, segment by segment. Its root has the result in `values`.
pub(super) fn to_one<T: Item>(
    call: &Call<'_>,
    root: usize,
    values: &mut [T],
    fold: Fold<'_, T>,
) -> Result<(), GroupError> {
    let n = call.size();
    let me = (call.me() + n - root) % n;
    let position = |relative: usize| (relative + root) % n;
    let total = values.len() * T::LEN;
    for range in segments::<T>(values.len()) {
        let own = &mut values[range];
        for child in tree::children(me, n) {
            let part = call.receive(position(child))?;
            call.check(position(child), &part, total, own.len() * T::LEN)?;
            fold(own, &part.payload, Side::After);
        }
        if let Some(parent) = tree::parent(me) {
            call.send(&[position(parent)], call.seal_items(total, own))?;
        }
    }
    Ok(())
}

fn to_all<T: Number>(
    call: &Call<'_>,
    operands: Operands,
    values: &mut [T],
    fold: Fold<'_, T>,
) -> Result<(), GroupError> {
    let bytes = size_of_val(values);
    match algorithm(Collective::Allreduce, call.size(), bytes, operands) {
        Algorithm::Flat => by_one(call, values, fold),
        Algorithm::Halving => divided::by_halving(call, values, fold),
        Algorithm::Ring => divided::by_ring(call, values, fold),
        Algorithm::ReduceThenBroadcast => {
            to_one(call, 0, values, fold)?;
            broadcast_items(call, 0, values)
        }
        _ => by_doubling(call, values, fold),
    }
}

/// The first member combines the values of all, and sends the result to all.
fn by_one<T: Item>(call: &Call<'_>, values: &mut [T], fold: Fold<'_, T>) -> Result<(), GroupError> {
    if call.me() != 0 {
        call.send_items(0, values)?;
        return call.receive_items(0, values);
    }
    let others: Vec<usize> = (1..call.size()).collect();
    for from in &others {
        call.receive_fold(*from, values, fold, Side::After)?;
    }
    let total = values.len() * T::LEN;
    call.send(&others, call.seal_items(total, values))
}

/// Recursive doubling. The members beyond the largest power of two give their values to one below
/// first, and get the result from it.
fn by_doubling<T: Item>(
    call: &Call<'_>,
    values: &mut [T],
    fold: Fold<'_, T>,
) -> Result<(), GroupError> {
    let (n, me) = (call.size(), call.me());
    let core = 1 << n.ilog2();
    if me >= core {
        call.send_items(me - core, values)?;
        return call.receive_items(me - core, values);
    }
    let beyond = (me + core < n).then_some(me + core);
    if let Some(beyond) = beyond {
        call.receive_fold(beyond, values, fold, Side::After)?;
    }
    let mut distance = 1;
    while distance < core {
        let partner = me ^ distance;
        let side = match partner < me {
            true => Side::Before,
            false => Side::After,
        };
        call.send_items(partner, values)?;
        call.receive_fold(partner, values, fold, side)?;
        distance *= 2;
    }
    match beyond {
        Some(beyond) => call.send_items(beyond, values),
        None => Ok(()),
    }
}
