//! Functions of the program that are called around each save of its task.

use crate::{
    code::Status,
    error::{Error, call},
    handle::Handle,
    task::task,
};
use std::{
    ffi::{c_int, c_void},
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};
use vmlib::{Callbacks, Task};

/// `vm_before_save`: 0, or another number if there must be no save now.
type Before = Option<extern "C" fn(context: *mut c_void) -> c_int>;

/// `vm_after_save`
type After = Option<extern "C" fn(context: *mut c_void)>;

/// The functions of one `vm_around_saves`.
struct Functions {
    before_save: Before,
    after_save: After,
    after_resume: After,
    /// Belongs to the program.
    context: AtomicPtr<c_void>,
}

impl Callbacks for Functions {
    fn before_save(&mut self) -> Result<(), String> {
        let context = self.context.load(Relaxed);
        match self.before_save.map_or(0, |function| function(context)) {
            0 => Ok(()),
            number => Err(format!(
                "the program does not want to be saved now ({number})"
            )),
        }
    }

    fn after_save(&mut self) {
        if let Some(function) = self.after_save {
            function(self.context.load(Relaxed));
        }
    }

    fn after_resume(&mut self) {
        if let Some(function) = self.after_resume {
            function(self.context.load(Relaxed));
        }
    }
}

/// Has functions called around each save of this task.
#[unsafe(no_mangle)]
pub extern "C" fn vm_around_saves(
    vm: Handle<Task>,
    before_save: Before,
    after_save: After,
    after_resume: After,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        if before_save.is_none() && after_save.is_none() && after_resume.is_none() {
            return Err(Error::invalid("all three functions are NULL"));
        }
        task.around_saves(Box::new(Functions {
            before_save,
            after_save,
            after_resume,
            context: AtomicPtr::new(context),
        }));
        Ok(Status::Done)
    })
}
