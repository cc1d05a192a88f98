//! Receiving into a buffer of the program.
//!
//! A call that finds no message posts its buffer ([`vm_endpoint::posted`]). Until the call leaves, the
//! chunks of its message are written there, by whichever thread reads them: a long body of a task of the
//! same host in one copy, from the memory of its sender. A message that has come before is copied from
//! the inbox.
//!
//! The call leaves with its message, or withdraws the buffer: what the buffer holds moves into the inbox,
//! where the next receive finds it. So a time-out or an error loses nothing. A move, a checkpoint or a
//! restart finds the buffer in the memory of the process, and the call goes on.
//!
//! The `unsafe` part here lends the buffer to the endpoint for the time of the call.

use crate::{
    Task,
    clock::now,
    error::RecvIntoError,
    message::{Envelope, Source, Tag},
    number::{Number, from_little_endian},
    primitive::{Attempt, Core, Shared, none_or_wait},
    ring::Until,
};
use std::{any::type_name, marker::PhantomData, slice, time::Duration};
use vm_endpoint::{Buffer, Filter, Posted, Time};

impl Task {
    /// Receives the first message from `from` with `tag` into the first bytes of `buffer`, and waits for
    /// it. The length of the message is in the [`Envelope`].
    ///
    /// This is the way with the fewest copies: a long message of a task of the same host is copied once,
    /// and no memory is allocated for it. [`Task::recv`] needs to know no length.
    ///
    /// # Errors
    /// [`RecvIntoError`], see there: for example, the message is longer than the buffer. The message then
    /// stays in the inbox. After an error, any byte of the buffer may have another value.
    pub fn recv_into(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: &mut [u8],
    ) -> Result<Envelope, RecvIntoError> {
        self.recv_slice_into(from, tag, buffer)
    }

    /// Receives numbers that were sent with [`Task::send_slice`] into the first ones of `numbers`; see
    /// [`Task::recv_into`]. The length in the [`Envelope`] is in bytes.
    ///
    /// # Errors
    /// As [`Task::recv_into`].
    pub fn recv_slice_into<T: Number>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        numbers: &mut [T],
    ) -> Result<Envelope, RecvIntoError> {
        let received = self.receive_into(self.filter(from, tag), None, numbers)?;
        Ok(received.expect("a wait without an end ends with a message"))
    }

    /// Like [`Task::recv_into`], and waits no longer than `time`. If no message is whole then, any byte of
    /// the buffer may have another value, and what has come is in the inbox.
    ///
    /// # Errors
    /// As [`Task::recv_into`].
    pub fn recv_into_timeout(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: &mut [u8],
        time: Duration,
    ) -> Result<Option<Envelope>, RecvIntoError> {
        self.recv_slice_into_timeout(from, tag, buffer, time)
    }

    /// Like [`Task::recv_slice_into`], and waits no longer than `time`; see [`Task::recv_into_timeout`].
    ///
    /// # Errors
    /// As [`Task::recv_into`].
    pub fn recv_slice_into_timeout<T: Number>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        numbers: &mut [T],
        time: Duration,
    ) -> Result<Option<Envelope>, RecvIntoError> {
        self.receive_into(self.filter(from, tag), Some(now() + time), numbers)
    }

    fn receive_into<T: Number>(
        &self,
        filter: Filter,
        until: Option<Time>,
        numbers: &mut [T],
    ) -> Result<Option<Envelope>, RecvIntoError> {
        let mut call = Call {
            shared: &self.shared,
            filter,
            unit: size_of::<T>(),
            type_name: type_name::<T>(),
            buffer: bytemuck::cast_slice_mut(numbers),
            is_posted: false,
            lent: PhantomData,
        };
        let mut looked = false;
        let received = self.shared.run(|core, now| {
            Ok::<_, RecvIntoError>(match call.attempt(core, now)? {
                Some(received) => Attempt::Done(Some(received)),
                None => {
                    core.only = filter.from;
                    none_or_wait(until, now, &mut looked)
                }
            })
        });
        drop(call);
        if let Ok(Some(received)) = &received {
            from_little_endian(&mut numbers[..received.len / size_of::<T>()]);
        }
        received
    }
}

/// A call that receives into a buffer.
struct Call<'a> {
    shared: &'a Shared,
    filter: Filter,
    /// Bytes of a number, and the name of its type.
    unit: usize,
    type_name: &'static str,
    /// Used by the endpoint alone while it is posted.
    buffer: *mut [u8],
    is_posted: bool,
    lent: PhantomData<&'a mut [u8]>,
}

impl Call<'_> {
    /// The message, if it is there. An error if it does not fit or cannot come.
    fn attempt(&mut self, core: &mut Core, now: Time) -> Result<Option<Envelope>, RecvIntoError> {
        let mut received = self.take(core, now)?;
        if received.is_none() {
            self.post(core);
            if self.is_posted {
                core.read_rings(Until::Landed);
            } else {
                core.read_rings(Until::Empty);
            }
            received = self.take(core, now)?;
        }
        match &received {
            Some(received) => core.awaited.received(received.from),
            None => {
                core.room()?;
                core.can_come(&self.filter, now)?;
            }
        }
        Ok(received)
    }

    /// Posts the buffer, unless another call has posted one.
    fn post(&mut self, core: &mut Core) {
        if self.is_posted {
            return;
        }
        // SAFETY: the buffer is borrowed for the call. The endpoint has it until it is claimed or
        // withdrawn, which the call does before it leaves, in `drop` at the latest. Until then the call
        // does not use it.
        let buffer = unsafe { slice::from_raw_parts_mut(self.buffer.cast(), self.buffer.len()) };
        let posted = Posted::new(self.filter, self.unit, Buffer::OfCall(buffer));
        self.is_posted = core.endpoint.post(posted);
    }

    /// Takes the message out of the posted buffer or the inbox.
    fn take(&mut self, core: &mut Core, now: Time) -> Result<Option<Envelope>, RecvIntoError> {
        if self.is_posted
            && let Some((envelope, _)) = core.endpoint.claim_posted()
        {
            self.is_posted = false;
            return Ok(Some(envelope.into()));
        }
        let Some(found) = core.endpoint.peek(&self.filter) else {
            return Ok(None);
        };
        let found = Envelope::from(found);
        self.check(&found)?;
        if self.is_posted {
            core.endpoint.withdraw();
            self.is_posted = false;
        }
        // Which message that is was not changed by the withdrawal: an incomplete one is no message yet.
        let message = core.endpoint.take(now, &self.filter, &mut core.out);
        let message = message.expect("the message was found");
        // SAFETY: the buffer is borrowed for the call, and is not posted.
        let buffer = unsafe { &mut *self.buffer };
        buffer[..found.len].copy_from_slice(&message.body);
        Ok(Some(found))
    }

    /// Whether the message fits into the buffer.
    fn check(&self, found: &Envelope) -> Result<(), RecvIntoError> {
        let Envelope { from, tag, len } = *found;
        if len > self.buffer.len() {
            return Err(RecvIntoError::TooLong {
                from,
                tag,
                len,
                room: self.buffer.len(),
            });
        }
        if !len.is_multiple_of(self.unit) {
            return Err(RecvIntoError::NoNumbers {
                from,
                tag,
                len,
                wanted: self.type_name,
                size: self.unit,
            });
        }
        Ok(())
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.is_posted {
            let mut core = self.shared.lock();
            core.endpoint.withdraw();
            // A whole message may be one that another thread waits for.
            self.shared.wake(&core);
        }
    }
}
