//! Sends and receives that are started, and completed later.

use crate::{
    border::{In, Out, Place, Room},
    code::Status,
    error::{Error, call},
    forked,
    handle::{Handle, Kept, Table},
    number::with_numbers,
    select::{self, sent_tag, source},
    task::task,
};
use std::ffi::{c_int, c_void};
use vmlib::{Completed, Message, Request, Task, Tid};

impl Kept for Request {
    const KIND: u8 = 5;
    fn table() -> &'static Table<Self> {
        static TABLE: Table<Request> = Table::new();
        &TABLE
    }
}

/// Starts to send bytes.
#[unsafe(no_mangle)]
pub extern "C" fn vm_start_send(
    vm: Handle<Task>,
    to: u64,
    tag: i32,
    data: In<'_, c_void>,
    size: usize,
    request: Out<'_, Handle<Request>>,
) -> c_int {
    call(|| {
        let (task, tag) = (task(vm)?, sent_tag(tag)?);
        let mut place = request.place_with(Handle::NULL, "the place for the request")?;
        let data = data.numbers::<u8>(size, "the data")?;
        place.put(Handle::keep(task.start_send_slice(Tid(to), tag, data)?));
        Ok(Status::Done)
    })
}

/// Starts to send numbers.
#[unsafe(no_mangle)]
pub extern "C" fn vm_start_send_array(
    vm: Handle<Task>,
    to: u64,
    tag: i32,
    values: In<'_, c_void>,
    count: usize,
    r#type: c_int,
    request: Out<'_, Handle<Request>>,
) -> c_int {
    call(|| {
        let (task, tag) = (task(vm)?, sent_tag(tag)?);
        let mut place = request.place_with(Handle::NULL, "the place for the request")?;
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(count, "the array")?;
            place.put(Handle::keep(task.start_send_slice(Tid(to), tag, values)?));
        });
        Ok(Status::Done)
    })
}

/// Starts to receive a message.
#[unsafe(no_mangle)]
pub extern "C" fn vm_start_recv(
    vm: Handle<Task>,
    from: u64,
    tag: i32,
    request: Out<'_, Handle<Request>>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let mut place = request.place_with(Handle::NULL, "the place for the request")?;
        let started = task.start_recv(source(from)?, select::tag(tag))?;
        place.put(Handle::keep(started));
        Ok(Status::Done)
    })
}

/// Requests that a call has taken out of the table: no other call can complete them meanwhile. What is
/// open afterwards is put back.
struct Taken {
    handles: Vec<Handle<Request>>,
    requests: Vec<Request>,
}

impl Taken {
    /// Takes all; an error if one of them cannot be found, and then none.
    fn all(handles: Vec<Handle<Request>>) -> Result<Taken, Error> {
        let mut taken = Taken {
            handles: Vec::new(),
            requests: Vec::new(),
        };
        for handle in handles {
            let request = handle.take()?;
            taken.handles.push(handle);
            taken.requests.push(request);
        }
        Ok(taken)
    }

    /// The request of that place is complete: it stays out of the table.
    fn complete(&mut self, index: usize) {
        self.handles.remove(index);
        drop(self.requests.remove(index));
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for (handle, request) in self.handles.drain(..).zip(self.requests.drain(..)) {
            handle.put_back(request);
        }
    }
}

/// The place for the message of a receive; NULL is good if the program does not want it.
type MessagePlace<'a> = Option<Place<'a, Handle<Message>>>;

fn message_place(message: Out<'_, Handle<Message>>) -> Result<MessagePlace<'_>, Error> {
    let mut place = message.optional("the place for the message")?;
    if let Some(place) = &mut place {
        place.put(Handle::NULL);
    }
    Ok(place)
}

fn put_message(place: MessagePlace<'_>, completed: Completed) {
    if let (Some(mut place), Some(message)) = (place, completed.message()) {
        place.put(Handle::keep(message));
    }
}

/// Completes one request, whose handle is set to NULL then.
fn complete(
    request: Room<'_, Handle<Request>>,
    message: Out<'_, Handle<Message>>,
    complete: impl FnOnce(&mut Request) -> Result<Option<Completed>, vmlib::WaitError>,
) -> c_int {
    call(|| {
        forked::check()?;
        let request = &mut request.slice(1, "the place of the request")?[0];
        let place = message_place(message)?;
        let mut taken = Taken::all(vec![*request])?;
        let Some(completed) = complete(&mut taken.requests[0])? else {
            return Ok(Status::Nothing);
        };
        taken.complete(0);
        *request = Handle::NULL;
        put_message(place, completed);
        Ok(Status::Done)
    })
}

/// Completes a request, if that can be done at once.
#[unsafe(no_mangle)]
pub extern "C" fn vm_test(
    request: Room<'_, Handle<Request>>,
    message: Out<'_, Handle<Message>>,
) -> c_int {
    complete(request, message, Request::test)
}

/// Completes a request, and waits for that.
#[unsafe(no_mangle)]
pub extern "C" fn vm_wait(
    request: Room<'_, Handle<Request>>,
    message: Out<'_, Handle<Message>>,
) -> c_int {
    complete(request, message, |request| request.wait().map(Some))
}

/// The requests of an array that are not NULL, and their places in it.
fn open(requests: &[Handle<Request>]) -> Result<(Vec<usize>, Taken), Error> {
    let is_open = |index: &usize| !requests[*index].is_null();
    let places: Vec<usize> = (0..requests.len()).filter(is_open).collect();
    let taken = Taken::all(places.iter().map(|index| requests[*index]).collect())?;
    Ok((places, taken))
}

/// Completes one of several requests, and waits for that.
#[unsafe(no_mangle)]
pub extern "C" fn vm_wait_any(
    vm: Handle<Task>,
    requests: Room<'_, Handle<Request>>,
    count: usize,
    index: Out<'_, usize>,
    message: Out<'_, Handle<Message>>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let requests = requests.slice(count, "the requests")?;
        let mut index = index.place("the place for the index")?;
        let place = message_place(message)?;
        let (places, mut taken) = open(requests)?;
        let Some((at, completed)) = task.wait_any(&mut taken.requests)? else {
            return Ok(Status::Nothing);
        };
        taken.complete(at);
        index.put(places[at]);
        requests[places[at]] = Handle::NULL;
        put_message(place, completed);
        Ok(Status::Done)
    })
}

/// Completes all requests, and waits for that.
#[unsafe(no_mangle)]
pub extern "C" fn vm_wait_all(
    vm: Handle<Task>,
    requests: Room<'_, Handle<Request>>,
    count: usize,
    messages: Room<'_, Handle<Message>>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let requests = requests.slice(count, "the requests")?;
        let messages = match messages.is_null() {
            true => None,
            false => Some(messages.slice(count, "the room for the messages")?),
        };
        let (places, mut taken) = open(requests)?;
        let completed = task.wait_all(&mut taken.requests)?;
        while !taken.requests.is_empty() {
            taken.complete(0);
        }
        requests.fill(Handle::NULL);
        if let Some(messages) = messages {
            messages.fill(Handle::NULL);
            for (index, completed) in places.into_iter().zip(completed) {
                if let Some(message) = completed.message() {
                    messages[index] = Handle::keep(message);
                }
            }
        }
        Ok(Status::Done)
    })
}

/// Cancels a request, and frees it.
#[unsafe(no_mangle)]
pub extern "C" fn vm_cancel(request: Room<'_, Handle<Request>>) -> c_int {
    call(|| {
        let request = &mut request.slice(1, "the place of the request")?[0];
        request.free()?;
        *request = Handle::NULL;
        Ok(Status::Done)
    })
}
