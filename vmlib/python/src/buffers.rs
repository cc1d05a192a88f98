//! Memory that Python and the library share.
//!
//! The `unsafe` parts here give a received message to Python without a copy, and lend memory of a Python
//! object to a receive.

use crate::failures::Failure;
use bytes::Bytes;
use pyo3::{
    buffer::PyBuffer,
    exceptions::PyBufferError,
    ffi,
    prelude::*,
    pybacked::PyBackedBytes,
    types::{PyBytes, PyMemoryView},
};
use std::{ffi::c_int, slice};

/// The bytes of a received message, which Python reads as a buffer, without a copy.
#[pyclass(frozen, module = "vmachine._vmachine")]
pub struct Body {
    pub(crate) bytes: Bytes,
}

#[pymethods]
impl Body {
    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    /// Gives Python the memory of the message, read-only.
    ///
    /// # Safety
    /// `view` is null, or a view that is to be filled, as Python calls it.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let bytes = &slf.get().bytes;
        let (start, len) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as isize);
        // SAFETY: the view holds a reference to this object, which is never changed, so the memory of the
        // message lives as long as the view. Python writes nothing to it: the view is read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 1, flags) };
        match filled {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

/// The bytes that are to be sent: `bytes` as they are, which nobody changes; anything else is copied.
pub(crate) fn body_of(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        return Ok(Bytes::from_owner(PyBackedBytes::from(bytes.clone())));
    }
    let buffer = bytes_of(object)?;
    Ok(buffer.to_vec(object.py())?.into())
}

/// The memory of an object, as bytes one after the other.
pub(crate) fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    PyBuffer::get(object)
}

/// Memory of a Python object that a receive writes to.
pub(crate) struct Lent {
    buffer: PyBuffer<u8>,
}

impl Lent {
    /// An error if the memory is read-only or has gaps.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = bytes_of(object)?;
        if buffer.readonly() {
            return Err(Failure::value(
                "the buffer is read-only: receive into a bytearray or an array that can be written",
            )
            .raise(object.py()));
        }
        if !buffer.is_c_contiguous() {
            return Err(Failure::value(
                "the buffer has gaps: receive into a contiguous one, and copy from it",
            )
            .raise(object.py()));
        }
        Ok(Lent { buffer })
    }

    /// The memory. Other threads of the program must leave it alone meanwhile, as with every call of
    /// Python that fills a buffer and releases the interpreter.
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        let (start, len) = (self.buffer.buf_ptr(), self.buffer.len_bytes());
        if len == 0 {
            return &mut [];
        }
        // SAFETY: the memory is contiguous and may be written, see `new`. The object neither frees nor
        // moves it while the buffer exists, which is as long as the slice.
        unsafe { slice::from_raw_parts_mut(start.cast(), len) }
    }
}

/// A view of the bytes, as one of Python's own.
pub(crate) fn view_of<'py>(py: Python<'py>, bytes: Bytes) -> PyResult<Bound<'py, PyMemoryView>> {
    PyMemoryView::from(Bound::new(py, Body { bytes })?.as_any())
}
