//! Broadcast: one member's bytes go to all.
//!
//! The first message goes through the binomial tree and tells the length of the whole. Short bytes are
//! in it; long ones follow in segments: by the same tree, by a chain, or, on one host, from the root to
//! each member. A member passes a message on as it came, before it uses the message.

use super::{
    call::{Call, Reach, position},
    choice::{
        Algorithm, Collective, FLAT_MEMBERS, LENT_SEGMENT_BYTES, SEGMENT_BYTES, of_broadcast,
    },
    item::Item,
    tree,
};
use crate::{
    Group, Number, SendError, Task,
    error::GroupError,
    message::{decode_value, encode_value},
};
use bytes::{Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};
use vm_wire::limits;

/// Bound on the first buffer of long bytes, so that a forged length takes no memory. Bytes.
const FIRST_BUFFER_MAX: usize = 4 * 1024 * 1024;

impl Task {
    /// Gives `value` of the member with instance `root` to all members. Every member calls this
    /// with the same `root`; the others' values are replaced. The root does not wait for the others,
    /// and may end then.
    ///
    /// # Errors
    /// [`GroupError`]; see [`crate::collectives`].
    pub fn broadcast<T: Serialize + DeserializeOwned>(
        &self,
        group: &Group,
        root: u32,
        value: &mut T,
    ) -> Result<(), GroupError> {
        if group.instance() == root {
            let body = encode_value(value).map_err(SendError::Value)?;
            self.broadcast_bytes(group, root, body)?;
            return Ok(());
        }
        let body = self.broadcast_bytes(group, root, Bytes::new())?;
        *value = decode_value(&body).map_err(|cause| GroupError::Value {
            group: group.name().to_owned(),
            from: group.members().tid(root).unwrap_or_default(),
            cause,
        })?;
        Ok(())
    }

    /// As [`Task::broadcast`], with bytes, at most 1 GiB: those of the root are returned everywhere.
    ///
    /// # Errors
    /// As [`Task::broadcast`]; [`GroupError::Send`] at the root for more bytes.
    pub fn broadcast_bytes(
        &self,
        group: &Group,
        root: u32,
        bytes: impl Into<Bytes>,
    ) -> Result<Bytes, GroupError> {
        let root = position(group, root)?;
        let bytes = bytes.into();
        self.collective(group, Collective::Broadcast, reach(group, root), |call| {
            if call.me() == root {
                let len = bytes.len() as u64;
                if len > limits::MESSAGE_MAX {
                    return Err(SendError::TooLong { len }.into());
                }
                give(call, root, &bytes)?;
                return Ok(bytes);
            }
            let mut whole = Whole::default();
            take(call, root, |payload, total| whole.add(payload, total))?;
            Ok(whole.finish())
        })
    }

    /// As [`Task::broadcast`], with numbers, of which every member has equally many. One copy, from
    /// the messages into `values`.
    ///
    /// # Errors
    /// As [`Task::broadcast`]; [`GroupError::Shape`] when the root has more or fewer.
    pub fn broadcast_slice<T: Number>(
        &self,
        group: &Group,
        root: u32,
        values: &mut [T],
    ) -> Result<(), GroupError> {
        let root = position(group, root)?;
        self.collective(group, Collective::Broadcast, reach(group, root), |call| {
            broadcast_items(call, root, values)
        })
    }
}

/// All may wait for the root if it sends to all.
fn reach(group: &Group, root: usize) -> Reach {
    let is_root = position(group, group.instance()).is_ok_and(|me| me == root);
    match is_root && group.size() <= FLAT_MEMBERS {
        true => Reach::All,
        false => Reach::Neighbours,
    }
}

/// The broadcast of items within a call.
pub(super) fn broadcast_items<T: Number>(
    call: &Call<'_>,
    root: usize,
    items: &mut [T],
) -> Result<(), GroupError> {
    if call.me() == root {
        if cfg!(target_endian = "little") {
            return give(call, root, bytemuck::cast_slice(items));
        }
        let mut swapped = BytesMut::new();
        T::put(items, &mut swapped);
        return give(call, root, &swapped);
    }
    let whole = size_of_val(items);
    let mut done = 0;
    take(call, root, |payload, total| {
        let from = done;
        done += payload.len() / T::LEN;
        if total != whole || !payload.len().is_multiple_of(T::LEN) || done > items.len() {
            return Err(call.shape(format!(
                "the root sent {total} bytes where this task has {whole}"
            )));
        }
        T::fill(&mut items[from..done], &payload);
        Ok(())
    })
}

/// Positions relative to the root.
struct Around {
    root: usize,
    n: usize,
    /// This member.
    me: usize,
    on_one_host: bool,
}

/// How segments go.
struct Ways {
    from: usize,
    to: Vec<usize>,
    /// Payload of a segment at most. Bytes.
    segment: usize,
}

impl Around {
    fn new(call: &Call<'_>, root: usize) -> Self {
        let n = call.size();
        let me = (call.me() + n - root) % n;
        Around {
            root,
            n,
            me,
            on_one_host: call.is_on_one_host(),
        }
    }

    fn position(&self, relative: usize) -> usize {
        (relative + self.root) % self.n
    }

    /// The children in the tree, the largest subtree first.
    fn children(&self) -> Vec<usize> {
        let children = tree::children(self.me, self.n).rev();
        children.map(|child| self.position(child)).collect()
    }

    fn ways(&self, total: usize) -> Ways {
        match of_broadcast(self.n, total, self.on_one_host) {
            Algorithm::Flat => Ways {
                from: self.root,
                to: match self.me {
                    0 => (1..self.n).map(|other| self.position(other)).collect(),
                    _ => Vec::new(),
                },
                segment: LENT_SEGMENT_BYTES,
            },
            Algorithm::Chain => Ways {
                from: self.position(self.me.saturating_sub(1)),
                to: match self.me + 1 < self.n {
                    true => vec![self.position(self.me + 1)],
                    false => Vec::new(),
                },
                segment: SEGMENT_BYTES,
            },
            _ => Ways {
                from: self.parent(),
                to: self.children(),
                segment: SEGMENT_BYTES,
            },
        }
    }

    fn parent(&self) -> usize {
        self.position(tree::parent(self.me).unwrap_or(0))
    }
}

/// The root's part.
fn give(call: &Call<'_>, root: usize, bytes: &[u8]) -> Result<(), GroupError> {
    let around = Around::new(call, root);
    let total = bytes.len();
    let first = if total > SEGMENT_BYTES { &[] } else { bytes };
    call.send(&around.children(), call.seal(total, first))?;
    if total > SEGMENT_BYTES {
        let ways = around.ways(total);
        for segment in bytes.chunks(ways.segment) {
            call.send(&ways.to, call.seal(total, segment))?;
        }
    }
    Ok(())
}

/// Another member's part: `each` gets the payloads in order, and the length of the whole.
fn take(
    call: &Call<'_>,
    root: usize,
    mut each: impl FnMut(Bytes, usize) -> Result<(), GroupError>,
) -> Result<(), GroupError> {
    let around = Around::new(call, root);
    let first = call.receive(around.parent())?;
    call.send(&around.children(), first.sealed)?;
    let total = usize::try_from(first.stamp.total).unwrap_or(usize::MAX);
    if first.payload.len() == total {
        return each(first.payload, total);
    }
    let Ways { from, to, segment } = around.ways(total);
    let mut done = 0;
    while done < total {
        let part = call.receive(from)?;
        call.check(from, &part, total, segment.min(total - done))?;
        call.send(&to, part.sealed)?;
        done += part.payload.len();
        each(part.payload, total)?;
    }
    Ok(())
}

/// Bytes that are put together.
#[derive(Default)]
struct Whole {
    /// The only part.
    one: Bytes,
    many: BytesMut,
}

impl Whole {
    fn add(&mut self, payload: Bytes, total: usize) -> Result<(), GroupError> {
        if payload.len() == total {
            self.one = payload;
            return Ok(());
        }
        if self.many.is_empty() {
            self.many.reserve(total.min(FIRST_BUFFER_MAX));
        }
        self.many.extend_from_slice(&payload);
        Ok(())
    }

    fn finish(self) -> Bytes {
        match self.many.is_empty() {
            true => self.one,
            false => self.many.freeze(),
        }
    }
}
