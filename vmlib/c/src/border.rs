//! The memory of the program, as the functions get it: addresses, which may be NULL.
//!
//! The types here are the arguments of the functions. A program in C makes them by calling one of the
//! functions; no Rust code can, so each value is one that such a call has passed. What the caller
//! promises about an address is in `include/vm.h`: it is NULL, or that of as much memory of its type as the
//! call says, which no other thread writes to, or for results uses, during the call. The lifetime of a value
//! ends with the call at the latest. All that can be checked is: NULL, alignment, and lengths.
//!
//! The `unsafe` code here reads and writes that memory.

use crate::{code::Code, error::Error};
use std::{
    ffi::{CStr, c_char, c_void},
    marker::PhantomData,
    ptr, slice,
};
use vmlib::Number;

/// The address of a text that ends with a zero byte.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Text<'a> {
    address: *const c_char,
    memory: PhantomData<&'a CStr>,
}

impl<'a> Text<'a> {
    /// The text; an error for NULL, and for bytes that are no UTF-8.
    pub fn get(self, what: &str) -> Result<&'a str, Error> {
        self.optional(what)?
            .ok_or_else(|| Error::invalid(format!("{what} is NULL: pass a text")))
    }

    /// The text, or `None` for NULL.
    pub fn optional(self, what: &str) -> Result<Option<&'a str>, Error> {
        if self.address.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's address, which is not NULL, is that of a text with a zero byte at its end.
        let text = unsafe { CStr::from_ptr(self.address) };
        match text.to_str() {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Error::invalid(format!("{what} is no UTF-8 text"))),
        }
    }
}

/// The address of `T`s that a call reads.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct In<'a, T> {
    address: *const T,
    memory: PhantomData<&'a T>,
}

impl<'a, T: Copy> In<'a, T> {
    /// So many of them. NULL is no error for none.
    pub fn slice(self, count: usize, what: &str) -> Result<&'a [T], Error> {
        if count == 0 {
            return Ok(&[]);
        }
        check(self.address, count, what)?;
        // SAFETY: the caller's address, which is not NULL, is aligned and is that of so many values.
        Ok(unsafe { slice::from_raw_parts(self.address, count) })
    }
}

impl<'a> In<'a, c_void> {
    /// So many numbers. NULL is no error for none.
    pub fn numbers<T: Number>(self, count: usize, what: &str) -> Result<&'a [T], Error> {
        let typed: In<'a, T> = In {
            address: self.address.cast(),
            memory: PhantomData,
        };
        typed.slice(count, what)
    }
}

impl<'a> In<'a, Text<'a>> {
    /// The texts up to a NULL; none for NULL in their place.
    pub fn texts_to_null(self, what: &str) -> Result<Vec<&'a str>, Error> {
        let mut texts = Vec::new();
        if self.address.is_null() {
            return Ok(texts);
        }
        check(self.address, 1, what)?;
        loop {
            // SAFETY: the caller's address is that of addresses of texts, and of a NULL behind them,
            // which was not read yet.
            let text = unsafe { *self.address.add(texts.len()) };
            match text.optional(what)? {
                Some(text) => texts.push(text),
                None => return Ok(texts),
            }
        }
    }
}

/// The address of `T`s that a call writes.
#[derive(Debug)]
#[repr(transparent)]
pub struct Room<'a, T> {
    address: *mut T,
    memory: PhantomData<&'a mut T>,
}

impl<'a, T: Copy> Room<'a, T> {
    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        self.address.is_null()
    }

    /// So many of them. NULL is no error for none.
    pub fn slice(self, count: usize, what: &str) -> Result<&'a mut [T], Error> {
        if count == 0 {
            return Ok(&mut []);
        }
        check(self.address, count, what)?;
        // SAFETY: the caller's address, which is not NULL, is aligned and is that of so many values, which
        // the call alone uses. Memory of a program in another language has some value of these types, for
        // which all are good.
        Ok(unsafe { slice::from_raw_parts_mut(self.address, count) })
    }
}

impl<'a> Room<'a, c_void> {
    /// So many numbers. NULL is no error for none.
    pub fn numbers<T: Number>(self, count: usize, what: &str) -> Result<&'a mut [T], Error> {
        let typed: Room<'a, T> = Room {
            address: self.address.cast(),
            memory: PhantomData,
        };
        typed.slice(count, what)
    }
}

impl<'a> Room<'a, c_void> {
    /// The places of so many numbers, which a call sets at its end. They may be those that it reads before.
    pub fn places<T: Number>(self, count: usize, what: &str) -> Result<Places<'a, T>, Error> {
        let address: *mut T = self.address.cast();
        if count > 0 {
            check(address, count, what)?;
        }
        Ok(Places {
            address,
            count,
            memory: PhantomData,
        })
    }
}

/// Where results go: checked before the call, filled after it.
#[derive(Debug)]
pub struct Places<'a, T> {
    address: *mut T,
    count: usize,
    memory: PhantomData<&'a mut T>,
}

impl<T: Number> Places<'_, T> {
    /// Sets all; an error if these are more or fewer.
    pub fn fill(self, values: &[T]) -> Result<(), Error> {
        if values.len() != self.count {
            let text = format!("{} values came, and not {}", values.len(), self.count);
            return Err(Error::new(Code::Shape, text));
        }
        if self.count > 0 {
            // SAFETY: `Room::places` has checked the caller's address, which is that of so many values, that
            // the call alone uses. `values` is memory of Rust, and no part of it.
            unsafe { ptr::copy_nonoverlapping(values.as_ptr(), self.address, self.count) };
        }
        Ok(())
    }
}

/// The address of the one `T` that a call sets.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<'a, T> {
    address: *mut T,
    memory: PhantomData<&'a mut T>,
}

/// Where a result goes: checked before the call, filled after it.
#[derive(Debug)]
pub struct Place<'a, T> {
    address: *mut T,
    memory: PhantomData<&'a mut T>,
}

impl<'a, T: Copy> Out<'a, T> {
    /// The place; an error for NULL.
    pub fn place(self, what: &str) -> Result<Place<'a, T>, Error> {
        check(self.address, 1, what)?;
        Ok(Place {
            address: self.address,
            memory: PhantomData,
        })
    }

    /// The place, which holds `value` from now on: also if the call fails later.
    pub fn place_with(self, value: T, what: &str) -> Result<Place<'a, T>, Error> {
        let mut place = self.place(what)?;
        place.put(value);
        Ok(place)
    }

    /// The place, or `None` for NULL.
    pub fn optional(self, what: &str) -> Result<Option<Place<'a, T>>, Error> {
        if self.address.is_null() {
            return Ok(None);
        }
        self.place(what).map(Some)
    }
}

impl<T: Copy> Place<'_, T> {
    /// Sets it.
    pub fn put(&mut self, value: T) {
        // SAFETY: `Out::place` has checked the caller's address, which is that of one value, that the call
        // alone uses. What was there before needs no drop: all results are plain values.
        unsafe { ptr::write(self.address, value) };
    }
}

/// The checks of an address of so many values: not NULL, aligned, a length that memory can have.
fn check<T>(address: *const T, count: usize, what: &str) -> Result<(), Error> {
    if address.is_null() {
        return Err(Error::invalid(format!("{what} is NULL")));
    }
    if !address.is_aligned() {
        return Err(Error::invalid(format!(
            "{what} is at {address:p}, which is not aligned to the {} bytes of its type",
            align_of::<T>()
        )));
    }
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Error::invalid(format!(
            "{what} has {count} elements, more than memory can hold"
        ))),
    }
}

/// Writes a text and a zero byte; an error if there is no room for them.
pub fn write_text(text: &str, room: &mut [c_char], what: &str) -> Result<(), Error> {
    let Some((end, rest)) = room
        .get_mut(..=text.len())
        .and_then(|it| it.split_last_mut())
    else {
        return Err(Error::new(
            Code::Space,
            format!(
                "{what} needs {} bytes, with the zero at its end; there are {}",
                text.len() + 1,
                room.len()
            ),
        ));
    };
    for (place, byte) in rest.iter_mut().zip(text.bytes()) {
        *place = byte as c_char;
    }
    *end = 0;
    Ok(())
}

/// A text as a field of a struct: as much of it as fits, with zero bytes behind it.
pub fn text_field<const LEN: usize>(text: &str) -> [c_char; LEN] {
    let mut field = [0; LEN];
    let end = text.floor_char_boundary(LEN - 1);
    for (place, byte) in field.iter_mut().zip(text[..end].bytes()) {
        *place = byte as c_char;
    }
    field
}
