//! Reductions of long values to all: each member reduces a part, then all parts are gathered.

use super::{
    call::Call,
    item::{Fold, Item, Side},
};
use crate::error::GroupError;
use std::ops::Range;

/// Rabenseifner's algorithm. The number of members is a power of two.
pub(super) fn by_halving<T: Item>(
    call: &Call<'_>,
    values: &mut [T],
    fold: Fold<'_, T>,
) -> Result<(), GroupError> {
    let (n, me) = (call.size(), call.me());
    debug_assert!(n.is_power_of_two());
    let mut own = 0..values.len();
    // The partner of each step, and the part that it reduces.
    let mut given: Vec<(usize, Range<usize>)> = Vec::new();
    let mut distance = n / 2;
    while distance > 0 {
        let partner = me ^ distance;
        let middle = own.start + own.len() / 2;
        let (low, high) = (own.start..middle, middle..own.end);
        let (mine, theirs, side) = match me < partner {
            true => (low, high, Side::After),
            false => (high, low, Side::Before),
        };
        call.send_items(partner, &values[theirs.clone()])?;
        call.receive_fold(partner, &mut values[mine.clone()], fold, side)?;
        given.push((partner, theirs));
        own = mine;
        distance /= 2;
    }
    for (partner, theirs) in given.into_iter().rev() {
        call.send_items(partner, &values[own.clone()])?;
        call.receive_items(partner, &mut values[theirs.clone()])?;
        own = own.start.min(theirs.start)..own.end.max(theirs.end);
    }
    Ok(())
}

/// The ring: block `b` goes from member `b` around to the member before it, and is whole there.
pub(super) fn by_ring<T: Item>(
    call: &Call<'_>,
    values: &mut [T],
    fold: Fold<'_, T>,
) -> Result<(), GroupError> {
    let n = call.size();
    let len = values.len();
    let block = |index: usize| index * len / n..(index + 1) * len / n;
    let (next, before) = (call.after(1), call.before(1));
    for step in 0..n - 1 {
        call.send_items(next, &values[block(call.before(step))])?;
        let arriving = &mut values[block(call.before(step + 1))];
        call.receive_fold(before, arriving, fold, Side::Before)?;
    }
    for step in 0..n - 1 {
        call.send_items(next, &values[block(call.before(step + n - 1))])?;
        call.receive_items(before, &mut values[block(call.before(step))])?;
    }
    Ok(())
}
