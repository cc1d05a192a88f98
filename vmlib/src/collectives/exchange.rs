//! Exchanges of blocks among all members: all blocks for all, or one block from each to each.

use super::{
    call::{Call, Reach},
    choice::{Algorithm, Collective, SEGMENT_BYTES, algorithm},
    gather::{one_for_each, read_list, receive_list},
    item::Item,
    op::Operands,
};
use crate::{Group, Number, Task, error::GroupError};
use bytes::Bytes;

/// In each step of an exchange in few steps, a member sends to so many others, less one. With more
/// others there are fewer steps, in which all wait for all, and more messages.
const EXCHANGE_RADIX: usize = 4;

impl Task {
    /// Gives the values of all members, one after the other by instance, to all. All members pass
    /// equally many values.
    ///
    /// # Errors
    /// [`GroupError`], see [`crate::collectives`].
    pub fn allgather<T: Number>(&self, group: &Group, values: &[T]) -> Result<Vec<T>, GroupError> {
        let bytes = size_of_val(values);
        self.collective(
            group,
            Collective::Allgather,
            Reach::Neighbours,
            |call| match algorithm(
                Collective::Allgather,
                call.size(),
                bytes,
                Operands::AnyOrder,
            ) {
                Algorithm::Bruck => gather_in_few_steps(call, values),
                _ => gather_around(call, values),
            },
        )
    }

    /// As [`Task::allgather`], with as many values as each member likes: one list for each member,
    /// by instance.
    ///
    /// # Errors
    /// As [`Task::allgather`].
    pub fn allgatherv<T: Number>(
        &self,
        group: &Group,
        values: &[T],
    ) -> Result<Vec<Vec<T>>, GroupError> {
        self.collective(
            group,
            Collective::AllgatherBytes,
            Reach::Neighbours,
            |call| {
                let own = call.seal_items(size_of_val(values), values);
                let blocks = pass_around(call, own)?.into_iter();
                let list = |block: Option<Bytes>| match block {
                    Some(block) => read_list(call, &block),
                    None => Ok(values.to_vec()),
                };
                blocks.map(list).collect()
            },
        )
    }

    /// As [`Task::allgatherv`], with bytes.
    ///
    /// # Errors
    /// As [`Task::allgather`].
    pub fn allgather_bytes(
        &self,
        group: &Group,
        bytes: impl Into<Bytes>,
    ) -> Result<Vec<Bytes>, GroupError> {
        let bytes = bytes.into();
        self.collective(
            group,
            Collective::AllgatherBytes,
            Reach::Neighbours,
            |call| {
                let blocks = pass_around(call, call.seal(bytes.len(), &bytes))?.into_iter();
                Ok(blocks
                    .map(|block| block.unwrap_or_else(|| bytes.clone()))
                    .collect())
            },
        )
    }

    /// Divides each member's values into equal blocks, and gives each member the block of its place
    /// by instance from each. The result has the blocks one after the other, by the instance of their
    /// senders. All members pass equally many values.
    ///
    /// # Errors
    /// [`GroupError`], see [`crate::collectives`]; [`GroupError::Shape`] if the number of values is no
    /// multiple of the number of members.
    pub fn alltoall<T: Number>(&self, group: &Group, values: &[T]) -> Result<Vec<T>, GroupError> {
        self.collective(group, Collective::Alltoall, Reach::All, |call| {
            let n = call.size();
            if !values.len().is_multiple_of(n) {
                return Err(call.shape(format!(
                    "{} values cannot be divided among {n} members",
                    values.len()
                )));
            }
            let bytes = size_of_val(values) / n;
            match algorithm(Collective::Alltoall, n, bytes, Operands::AnyOrder) {
                Algorithm::Bruck => exchange_in_few_steps(call, values),
                _ => exchange_directly(call, values),
            }
        })
    }

    /// As [`Task::alltoall`], with a list for each member, by instance. The result has a list from
    /// each member.
    ///
    /// # Errors
    /// As [`Task::alltoall`]; [`GroupError::Shape`] if there is not one list for each member.
    pub fn alltoallv<T: Number, L: AsRef<[T]>>(
        &self,
        group: &Group,
        lists: &[L],
    ) -> Result<Vec<Vec<T>>, GroupError> {
        self.collective(group, Collective::AlltoallBytes, Reach::All, |call| {
            one_for_each(call, lists.len())?;
            let mut received = vec![Vec::new(); call.size()];
            received[call.me()] = lists[call.me()].as_ref().to_vec();
            let lists: Vec<&[T]> = lists.iter().map(AsRef::as_ref).collect();
            let longest = lists.iter().map(|list| size_of_val(*list)).max();
            directly(
                call,
                longest.unwrap_or(0),
                |to| {
                    let sealed = call.seal_items(size_of_val(lists[to]), lists[to]);
                    call.send(&[to], sealed)
                },
                |from| {
                    received[from] = receive_list(call, from)?;
                    Ok(())
                },
            )?;
            Ok(received)
        })
    }

    /// As [`Task::alltoallv`], with bytes.
    ///
    /// # Errors
    /// As [`Task::alltoallv`].
    pub fn alltoall_bytes(
        &self,
        group: &Group,
        blocks: &[Bytes],
    ) -> Result<Vec<Bytes>, GroupError> {
        self.collective(group, Collective::AlltoallBytes, Reach::All, |call| {
            one_for_each(call, blocks.len())?;
            let mut received = vec![Bytes::new(); call.size()];
            received[call.me()] = blocks[call.me()].clone();
            let longest = blocks.iter().map(Bytes::len).max();
            directly(
                call,
                longest.unwrap_or(0),
                |to| call.send(&[to], call.seal(blocks[to].len(), &blocks[to])),
                |from| {
                    received[from] = call.receive(from)?.payload;
                    Ok(())
                },
            )?;
            Ok(received)
        })
    }
}

/// Sends blocks of any length around a ring. `None` is this member's own.
fn pass_around(call: &Call<'_>, own: Bytes) -> Result<Vec<Option<Bytes>>, GroupError> {
    let mut blocks = vec![None; call.size()];
    let mut passing = own;
    for step in 1..call.size() {
        call.send(&[call.after(1)], passing)?;
        let part = call.receive(call.before(1))?;
        blocks[call.before(step)] = Some(part.payload);
        passing = part.sealed;
    }
    Ok(blocks)
}

/// A direct exchange: `send` sends the block of a position, `receive` receives the block from a
/// position. `longest` is the length of the longest block that this member sends. Bytes.
fn directly(
    call: &Call<'_>,
    longest: usize,
    send: impl Fn(usize) -> Result<(), GroupError>,
    mut receive: impl FnMut(usize) -> Result<(), GroupError>,
) -> Result<(), GroupError> {
    let distances = 1..call.size();
    // Short blocks are all sent before the first wait. Long ones would fill the inboxes.
    if longest <= SEGMENT_BYTES {
        for distance in distances.clone() {
            send(call.after(distance))?;
        }
    }
    for distance in distances {
        if longest > SEGMENT_BYTES {
            send(call.after(distance))?;
        }
        receive(call.before(distance))?;
    }
    Ok(())
}

fn gather_around<T: Number>(call: &Call<'_>, values: &[T]) -> Result<Vec<T>, GroupError> {
    let len = values.len();
    let mut all = vec![T::empty(); len * call.size()];
    all[call.me() * len..][..len].copy_from_slice(values);
    for step in 1..call.size() {
        let passing = call.before(step - 1) * len;
        call.send_items(call.after(1), &all[passing..][..len])?;
        let arriving = call.before(step) * len;
        call.receive_items(call.before(1), &mut all[arriving..][..len])?;
    }
    Ok(all)
}

fn gather_in_few_steps<T: Number>(call: &Call<'_>, values: &[T]) -> Result<Vec<T>, GroupError> {
    let (n, len) = (call.size(), values.len());
    // The blocks of this member and those after it, around the end.
    let mut blocks = vec![T::empty(); len * n];
    blocks[..len].copy_from_slice(values);
    let mut distance = 1;
    while distance < n {
        let count = distance.min(n - distance);
        let (own, rest) = blocks.split_at_mut(distance * len);
        call.send_items(call.before(distance), &own[..count * len])?;
        call.receive_items(call.after(distance), &mut rest[..count * len])?;
        distance *= 2;
    }
    blocks.rotate_right(call.me() * len);
    Ok(blocks)
}

fn exchange_directly<T: Number>(call: &Call<'_>, values: &[T]) -> Result<Vec<T>, GroupError> {
    let len = values.len() / call.size();
    let mut received = values.to_vec();
    directly(
        call,
        size_of_val(&values[..len]),
        |to| call.send_items(to, &values[to * len..][..len]),
        |from| call.receive_items(from, &mut received[from * len..][..len]),
    )?;
    Ok(received)
}

fn exchange_in_few_steps<T: Number>(call: &Call<'_>, values: &[T]) -> Result<Vec<T>, GroupError> {
    let (n, me) = (call.size(), call.me());
    let len = values.len() / n;
    let block = |index: usize| index * len..(index + 1) * len;
    // Block i is on its way to the member i after the one that holds it.
    let mut held = values.to_vec();
    held.rotate_left(me * len);
    let mut distance = 1;
    let mut packed: Vec<T> = Vec::new();
    while distance < n {
        // The blocks that go `digit` distances in this step.
        let moving =
            |digit: usize| (0..n).filter(move |at| at / distance % EXCHANGE_RADIX == digit);
        let digits = (1..EXCHANGE_RADIX).take_while(|digit| digit * distance < n);
        for digit in digits.clone() {
            packed.clear();
            for index in moving(digit) {
                packed.extend_from_slice(&held[block(index)]);
            }
            call.send_items(call.after(digit * distance), &packed)?;
        }
        for digit in digits {
            packed.resize(moving(digit).count() * len, T::empty());
            call.receive_items(call.before(digit * distance), &mut packed)?;
            for (index, packed) in moving(digit).zip(packed.chunks_exact(len.max(1))) {
                held[block(index)].copy_from_slice(packed);
            }
        }
        distance *= EXCHANGE_RADIX;
    }
    // Block i has come from the member i before this one.
    let mut received = held.clone();
    for index in 0..n {
        received[block(call.before(index))].copy_from_slice(&held[block(index)]);
    }
    Ok(received)
}
