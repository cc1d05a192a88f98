//! Handles: what a program holds of the things that the library keeps for it.
//!
//! A handle is a number in the form of a pointer: the kind of the thing in its highest byte, and below that
//! a number that is never used again. Each kind has a table. So a handle that was freed is not found, and
//! one of another kind neither: both are errors.

use crate::error::Error;
use std::{
    collections::BTreeMap,
    ffi::c_void,
    marker::PhantomData,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

// A handle has room for the number of its kind.
const _: () = assert!(usize::BITS == 64);

/// Where the kind is in a handle.
const KIND_SHIFT: u32 = 56;

/// The things that have handles: the numbers of their kinds, and their names in the header.
const KINDS: &[(u8, &str)] = &[
    (1, "vm_task"),
    (2, "vm_message"),
    (3, "vm_spawn"),
    (4, "vm_group"),
    (5, "vm_request"),
    (6, "vm_blocks"),
];

/// A thing that a program may have a handle of.
pub trait Kept: Sized + 'static {
    /// The number of its kind.
    const KIND: u8;

    /// Where the things of this kind are.
    fn table() -> &'static Table<Self>;
}

/// The things of one kind.
#[derive(Debug)]
pub struct Table<T> {
    held: Mutex<Held<T>>,
}

#[derive(Debug)]
struct Held<T> {
    /// The last number that was given.
    last: u64,
    things: BTreeMap<u64, T>,
}

impl<T> Table<T> {
    /// A table without things.
    pub const fn new() -> Self {
        Table {
            held: Mutex::new(Held {
                last: 0,
                things: BTreeMap::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle of a `T`, or NULL.
#[derive(Debug)]
#[repr(transparent)]
pub struct Handle<T> {
    number: *mut c_void,
    of: PhantomData<T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> Handle<T> {
    /// No thing.
    pub const NULL: Handle<T> = Handle {
        number: ptr::null_mut(),
        of: PhantomData,
    };

    /// Whether it is no thing.
    pub fn is_null(self) -> bool {
        self.number.is_null()
    }

    fn from_number(number: u64) -> Self {
        Handle {
            number: ptr::without_provenance_mut(number as usize),
            of: PhantomData,
        }
    }

    fn number(self) -> u64 {
        self.number.addr() as u64
    }
}

impl<T: Kept> Handle<T> {
    /// Keeps a thing, and makes its handle.
    pub fn keep(thing: T) -> Self {
        let mut held = T::table().lock();
        held.last += 1;
        let number = u64::from(T::KIND) << KIND_SHIFT | held.last;
        held.things.insert(number, thing);
        Handle::from_number(number)
    }

    /// Looks at the thing. The table is locked meanwhile.
    pub fn with<R>(self, look: impl FnOnce(&mut T) -> R) -> Result<R, Error> {
        let mut held = T::table().lock();
        match held.things.get_mut(&self.number()) {
            Some(thing) => Ok(look(thing)),
            None => Err(self.not_found()),
        }
    }

    /// Takes the thing out of the table. The handle is freed.
    pub fn take(self) -> Result<T, Error> {
        let thing = T::table().lock().things.remove(&self.number());
        thing.ok_or_else(|| self.not_found())
    }

    /// Puts the thing back that [`Handle::take`] has taken.
    pub fn put_back(self, thing: T) {
        T::table().lock().things.insert(self.number(), thing);
    }

    /// Frees the handle, unless it is NULL.
    pub fn free(self) -> Result<(), Error> {
        if self.is_null() {
            return Ok(());
        }
        self.take().map(drop)
    }

    fn not_found(self) -> Error {
        let name = |kind: u8| KINDS.iter().find(|(number, _)| *number == kind);
        let wanted = name(T::KIND).map_or("handle", |(_, name)| name);
        let kind = (self.number() >> KIND_SHIFT) as u8;
        Error::invalid(match name(kind) {
            _ if self.is_null() => format!("the {wanted} is NULL"),
            Some(_) if kind == T::KIND => {
                format!("the {wanted} was freed: do not use it after that")
            }
            Some((_, name)) => format!("a {name} was passed where a {wanted} is expected"),
            None => format!("{:p} is no {wanted} of this library", self.number),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Thing;

    impl Kept for Thing {
        const KIND: u8 = 2;
        fn table() -> &'static Table<Self> {
            static TABLE: Table<Thing> = Table::new();
            &TABLE
        }
    }

    #[test]
    fn a_freed_handle_is_an_error_and_no_later_one_has_its_number() {
        let first = Handle::keep(Thing);
        assert!(first.with(|_| ()).is_ok());
        first.free().expect("it is there");
        let second = Handle::keep(Thing);
        assert_ne!(first.number(), second.number());
        for wrong in [
            first,
            Handle::NULL,
            Handle::from_number(77),
            Handle::from_number(1 << 56),
        ] {
            assert!(wrong.with(|_| ()).is_err(), "{wrong:?}");
            assert!(wrong.take().is_err(), "{wrong:?}");
        }
        assert!(Handle::<Thing>::NULL.free().is_ok());
    }
}
