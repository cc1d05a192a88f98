//! Starting tasks.

use crate::{
    border::{In, Out, Room, Text},
    code::{Code, Status},
    error::{Error, call},
    handle::{Handle, Kept, Table},
    task::{self, copy_out, task},
};
use std::{ffi::c_int, mem};
use vmlib::{Spawn, SpawnError, Task, Tid};

/// The tasks that a program describes step by step (`vm_spawn`).
#[derive(Debug, Clone)]
pub struct Description {
    spawn: Spawn,
    count: u32,
    hosts: Vec<String>,
}

impl Description {
    fn new(program: &str) -> Self {
        Description {
            spawn: Spawn::new(program),
            count: 1,
            hosts: Vec::new(),
        }
    }

    fn change(&mut self, change: impl FnOnce(Spawn) -> Spawn) {
        let spawn = mem::replace(&mut self.spawn, Spawn::new(""));
        self.spawn = change(spawn);
    }

    /// Starts the tasks. `started` gets the ids of those that run, also if others do not.
    fn start(
        self,
        task: &Task,
        room: &mut [u64],
        started: impl FnOnce(usize),
    ) -> Result<Status, Error> {
        if room.len() < self.count as usize {
            let text = format!(
                "{} tasks, and room for {} ids: no task was started",
                self.count,
                room.len()
            );
            return Err(Error::new(Code::Space, text));
        }
        let spawn = match self.hosts.is_empty() {
            true => self.spawn.count(self.count),
            false => self.spawn.count(self.count).on_each(self.hosts),
        };
        let put = |tids: &[Tid]| {
            started(tids.len());
            copy_out(tids.iter().map(|tid| tid.0), room, "ids")
        };
        match task.spawn(&spawn) {
            Ok(tids) => put(&tids)?,
            Err(error) => {
                if let SpawnError::Partly { started, .. } = &error {
                    put(started)?;
                }
                return Err(error.into());
            }
        }
        Ok(Status::Done)
    }
}

impl Kept for Description {
    const KIND: u8 = 3;
    fn table() -> &'static Table<Self> {
        static TABLE: Table<Description> = Table::new();
        &TABLE
    }
}

/// Changes a description.
fn describe(
    spawn: Handle<Description>,
    change: impl FnOnce(&mut Description) -> Result<(), Error>,
) -> c_int {
    call(|| {
        spawn.with(change)??;
        Ok(Status::Done)
    })
}

/// Begins to describe tasks of a program.
#[unsafe(no_mangle)]
pub extern "C" fn vm_spawn_new(program: Text<'_>, spawn: Out<'_, Handle<Description>>) -> c_int {
    call(|| {
        let mut place = spawn.place_with(Handle::NULL, "the place for the description")?;
        let description = Description::new(program.get("the program")?);
        place.put(Handle::keep(description));
        Ok(Status::Done)
    })
}

/// Adds an argument.
#[unsafe(no_mangle)]
pub extern "C" fn vm_spawn_arg(spawn: Handle<Description>, arg: Text<'_>) -> c_int {
    describe(spawn, |it| {
        let arg = arg.get("the argument")?;
        it.change(|spawn| spawn.arg(arg));
        Ok(())
    })
}

/// Adds a variable to the environment.
#[unsafe(no_mangle)]
pub extern "C" fn vm_spawn_env(
    spawn: Handle<Description>,
    name: Text<'_>,
    value: Text<'_>,
) -> c_int {
    describe(spawn, |it| {
        let (name, value) = (name.get("the name")?, value.get("the value")?);
        it.change(|spawn| spawn.env(name, value));
        Ok(())
    })
}

/// Sets the working directory.
#[unsafe(no_mangle)]
pub extern "C" fn vm_spawn_dir(spawn: Handle<Description>, dir: Text<'_>) -> c_int {
    describe(spawn, |it| {
        let dir = dir.get("the directory")?;
        it.change(|spawn| spawn.dir(dir));
        Ok(())
    })
}

/// Sets how many tasks are started.
#[unsafe(no_mangle)]
pub extern "C" fn vm_spawn_count(spawn: Handle<Description>, count: u32) -> c_int {
    describe(spawn, |it| {
        it.count = count;
        Ok(())
    })
}

/// Sets the context in which the tasks begin.
#[unsafe(no_mangle)]
pub extern "C" fn vm_spawn_in_context(spawn: Handle<Description>, number: u32) -> c_int {
    describe(spawn, |it| {
        let context = task::context(number)?;
        it.change(|spawn| spawn.in_context(context));
        Ok(())
    })
}

/// Adds a host to those on which the tasks are started in turn.
#[unsafe(no_mangle)]
pub extern "C" fn vm_spawn_on(spawn: Handle<Description>, host: Text<'_>) -> c_int {
    describe(spawn, |it| {
        it.hosts.push(host.get("the host")?.to_owned());
        Ok(())
    })
}

/// Starts the described tasks.
#[unsafe(no_mangle)]
pub extern "C" fn vm_spawn_start(
    vm: Handle<Task>,
    spawn: Handle<Description>,
    tids: Room<'_, u64>,
    room: usize,
    started: Out<'_, usize>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let description = spawn.with(|it| it.clone())?;
        let started = started.optional("the place for the count")?;
        let room = tids.slice(room, "the room for the ids")?;
        description.start(&task, room, |count| {
            if let Some(mut place) = started {
                place.put(count);
            }
        })
    })
}

/// Frees a description.
#[unsafe(no_mangle)]
pub extern "C" fn vm_spawn_free(spawn: Handle<Description>) -> c_int {
    call(|| spawn.free().map(|()| Status::Done))
}

/// Starts so many tasks of a program with these arguments, wherever the machine likes.
#[unsafe(no_mangle)]
pub extern "C" fn vm_start_tasks(
    vm: Handle<Task>,
    program: Text<'_>,
    args: In<'_, Text<'_>>,
    count: u32,
    tids: Room<'_, u64>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let mut description = Description::new(program.get("the program")?);
        let args = args.texts_to_null("an argument")?;
        description.change(|spawn| spawn.args(args));
        description.count = count;
        let room = tids.slice(count as usize, "the room for the ids")?;
        description.start(&task, room, |_| ())
    })
}
