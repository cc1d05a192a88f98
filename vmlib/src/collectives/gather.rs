//! Gather and scatter: the blocks of all members at one member, or from it.

use super::{
    call::{Call, Reach, position},
    choice::{Algorithm, Collective, algorithm},
    item::Item,
    op::Operands,
    tree,
};
use crate::{Group, Number, Task, error::GroupError};
use bytes::Bytes;

impl Task {
    /// Gives the values of all members, one after the other by instance, to the member with instance
    /// `root`; the others get `None`. All members pass equally many values. A member that is not the
    /// root returns when its part is sent.
    ///
    /// # Errors
    /// [`GroupError`], see [`crate::collectives`].
    pub fn gather<T: Number>(
        &self,
        group: &Group,
        root: u32,
        values: &[T],
    ) -> Result<Option<Vec<T>>, GroupError> {
        let root = position(group, root)?;
        let bytes = size_of_val(values);
        let choice = algorithm(Collective::Gather, group.size(), bytes, Operands::AnyOrder);
        match choice {
            Algorithm::Binomial => {
                self.collective(group, Collective::Gather, Reach::Neighbours, |call| {
                    by_tree(call, root, values)
                })
            }
            _ => self.collective(group, Collective::Gather, Reach::One(root), |call| {
                directly(call, root, values)
            }),
        }
    }

    /// As [`Task::gather`], with as many values as each member likes: one list for each member, by
    /// instance.
    ///
    /// # Errors
    /// As [`Task::gather`].
    pub fn gatherv<T: Number>(
        &self,
        group: &Group,
        root: u32,
        values: &[T],
    ) -> Result<Option<Vec<Vec<T>>>, GroupError> {
        let root = position(group, root)?;
        self.collective(group, Collective::GatherBytes, Reach::One(root), |call| {
            if call.me() != root {
                let sealed = call.seal_items(size_of_val(values), values);
                call.send(&[root], sealed)?;
                return Ok(None);
            }
            let of = |from: usize| match from == root {
                true => Ok(values.to_vec()),
                false => receive_list(call, from),
            };
            (0..call.size()).map(of).collect::<Result<_, _>>().map(Some)
        })
    }

    /// As [`Task::gatherv`], with bytes.
    ///
    /// # Errors
    /// As [`Task::gather`].
    pub fn gather_bytes(
        &self,
        group: &Group,
        root: u32,
        bytes: impl Into<Bytes>,
    ) -> Result<Option<Vec<Bytes>>, GroupError> {
        let root = position(group, root)?;
        let bytes = bytes.into();
        self.collective(group, Collective::GatherBytes, Reach::One(root), |call| {
            if call.me() != root {
                call.send(&[root], call.seal(bytes.len(), &bytes))?;
                return Ok(None);
            }
            let of = |from: usize| match from == root {
                true => Ok(bytes.clone()),
                false => Ok(call.receive(from)?.payload),
            };
            (0..call.size()).map(of).collect::<Result<_, _>>().map(Some)
        })
    }

    /// Divides the root's values into equal blocks, and gives each member the block of its place by
    /// instance. The others' `values` are not used. The root does not wait for the others, and may
    /// end then.
    ///
    /// # Errors
    /// [`GroupError`], see [`crate::collectives`]; [`GroupError::Shape`] at the root if the number of
    /// values is no multiple of the number of members.
    pub fn scatter<T: Number>(
        &self,
        group: &Group,
        root: u32,
        values: &[T],
    ) -> Result<Vec<T>, GroupError> {
        let count = group.size();
        self.scatter_blocks(
            group,
            root,
            |call| match values.len().is_multiple_of(count) {
                true => Ok(()),
                false => Err(call.shape(format!(
                    "{} values cannot be divided among {count} members",
                    values.len()
                ))),
            },
            |at| &values[at * (values.len() / count)..][..values.len() / count],
        )
    }

    /// As [`Task::scatter`], with a list for each member, by instance.
    ///
    /// # Errors
    /// As [`Task::scatter`]; [`GroupError::Shape`] at the root if there is not one list for each member.
    pub fn scatterv<T: Number, L: AsRef<[T]>>(
        &self,
        group: &Group,
        root: u32,
        lists: &[L],
    ) -> Result<Vec<T>, GroupError> {
        let check = |call: &Call<'_>| one_for_each(call, lists.len());
        self.scatter_blocks(group, root, check, |at| lists[at].as_ref())
    }

    /// As [`Task::scatterv`], with bytes.
    ///
    /// # Errors
    /// As [`Task::scatterv`].
    pub fn scatter_bytes(
        &self,
        group: &Group,
        root: u32,
        blocks: &[Bytes],
    ) -> Result<Bytes, GroupError> {
        let root = position(group, root)?;
        let reach = reach_of_root(group, root);
        self.collective(group, Collective::Scatter, reach, |call| {
            if call.me() != root {
                return Ok(call.receive(root)?.payload);
            }
            one_for_each(call, blocks.len())?;
            for to in (1..call.size()).map(|distance| call.after(distance)) {
                call.send(&[to], call.seal(blocks[to].len(), &blocks[to]))?;
            }
            Ok(blocks[root].clone())
        })
    }

    fn scatter_blocks<'a, T: Number>(
        &self,
        group: &Group,
        root: u32,
        check: impl FnOnce(&Call<'_>) -> Result<(), GroupError>,
        block: impl Fn(usize) -> &'a [T],
    ) -> Result<Vec<T>, GroupError> {
        let root = position(group, root)?;
        let reach = reach_of_root(group, root);
        self.collective(group, Collective::Scatter, reach, |call| {
            if call.me() != root {
                return receive_list(call, root);
            }
            check(call)?;
            for to in (1..call.size()).map(|distance| call.after(distance)) {
                let sealed = call.seal_items(size_of_val(block(to)), block(to));
                call.send(&[to], sealed)?;
            }
            Ok(block(root).to_vec())
        })
    }
}

/// In a scatter all wait for the root alone.
fn reach_of_root(group: &Group, root: usize) -> Reach {
    match position(group, group.instance()) {
        Ok(me) if me == root => Reach::All,
        _ => Reach::Nobody,
    }
}

/// An error unless there are as many blocks as members.
pub(super) fn one_for_each(call: &Call<'_>, blocks: usize) -> Result<(), GroupError> {
    match blocks == call.size() {
        true => Ok(()),
        false => Err(call.shape(format!("{blocks} lists for {} members", call.size()))),
    }
}

/// Receives numbers of which only the sender knows how many there are.
pub(super) fn receive_list<T: Number>(call: &Call<'_>, from: usize) -> Result<Vec<T>, GroupError> {
    read_list(call, &call.receive(from)?.payload)
}

/// Reads all numbers of a payload.
pub(super) fn read_list<T: Number>(call: &Call<'_>, payload: &[u8]) -> Result<Vec<T>, GroupError> {
    let len = payload.len();
    if !len.is_multiple_of(T::LEN) {
        return Err(call.shape(format!("{len} bytes are no numbers of {} bytes", T::LEN)));
    }
    let mut list = vec![T::empty(); len / T::LEN];
    T::fill(&mut list, payload);
    Ok(list)
}

fn directly<T: Number>(
    call: &Call<'_>,
    root: usize,
    values: &[T],
) -> Result<Option<Vec<T>>, GroupError> {
    if call.me() != root {
        call.send_items(root, values)?;
        return Ok(None);
    }
    let len = values.len();
    let mut all = vec![T::empty(); len * call.size()];
    for from in 0..call.size() {
        let block = &mut all[from * len..][..len];
        match from == root {
            true => block.copy_from_slice(values),
            false => call.receive_items(from, block)?,
        }
    }
    Ok(Some(all))
}

/// Each member receives the blocks of its subtree, and sends them up together.
fn by_tree<T: Number>(
    call: &Call<'_>,
    root: usize,
    values: &[T],
) -> Result<Option<Vec<T>>, GroupError> {
    let n = call.size();
    let me = (call.me() + n - root) % n;
    let position = |relative: usize| (relative + root) % n;
    let len = values.len();
    let mut blocks = vec![T::empty(); len * tree::subtree(me, n)];
    blocks[..len].copy_from_slice(values);
    for child in tree::children(me, n) {
        let of_child = &mut blocks[(child - me) * len..][..tree::subtree(child, n) * len];
        call.receive_items(position(child), of_child)?;
    }
    if let Some(parent) = tree::parent(me) {
        call.send_items(position(parent), &blocks)?;
        return Ok(None);
    }
    // The tree begins with the root's block, the result with that of the lowest instance.
    blocks.rotate_right(root * len);
    Ok(Some(blocks))
}
