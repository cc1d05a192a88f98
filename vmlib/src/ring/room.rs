//! Room for the bytes of a chunk, which are written there by address.
//!
//! The `unsafe` part here counts bytes of a vector that were written behind its end.

use vm_endpoint::Room;

/// Has `write` fill the room.
///
/// # Errors
/// The error of `write`: the room is as before, except that unused bytes may have other values.
///
/// # Safety
/// If `write` returns `Ok`, it has written `len` bytes to its address. It writes no more than that.
pub(super) unsafe fn fill<E>(
    room: Room<'_>,
    len: usize,
    write: impl FnOnce(*mut u8) -> Result<(), E>,
) -> Result<(), E> {
    match room {
        Room::End(vector) => {
            vector.reserve(len);
            write(vector.spare_capacity_mut().as_mut_ptr().cast())?;
            // SAFETY: there is room for `len` bytes behind the vector's, and `write` has written them.
            unsafe { vector.set_len(vector.len() + len) };
            Ok(())
        }
        Room::Part(part) => {
            assert_eq!(part.len(), len, "the room is as long as the chunk");
            write(part.as_mut_ptr())
        }
    }
}
