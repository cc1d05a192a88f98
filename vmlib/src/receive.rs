//! One read of the data socket, with the descriptors that come along.
//!
//! The `unsafe` parts here are the system call, which fills memory that has no value yet, and the
//! descriptors that the kernel has made for this process.

use rustix::{
    fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    io::Errno,
};
use std::{
    collections::VecDeque,
    mem::{MaybeUninit, size_of},
    ptr,
};

/// Descriptors that come with one frame, at most.
const DESCRIPTORS_MAX: usize = 3;

/// The control message with descriptors, as the kernel aligns it.
#[repr(C)]
struct Control {
    head: libc::cmsghdr,
    descriptors: [i32; DESCRIPTORS_MAX + 1],
}

/// Reads once, without waiting. Returns how many bytes of `room` were written, from its beginning; 0
/// at the end of file.
pub(crate) fn receive(
    socket: impl AsFd,
    room: &mut [MaybeUninit<u8>],
    descriptors: &mut VecDeque<OwnedFd>,
) -> Result<usize, Errno> {
    let mut part = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    // SAFETY: zeros are values of both structs. The kernel writes at most `room.len()` bytes to
    // `room` and at most `msg_controllen` bytes to `control`, and the pointers are used for this call
    // alone.
    let (len, control, control_len) = unsafe {
        let mut control: Control = std::mem::zeroed();
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = ptr::from_mut(&mut part);
        message.msg_iovlen = 1;
        message.msg_control = ptr::from_mut(&mut control).cast();
        message.msg_controllen = size_of::<Control>() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        let len = libc::recvmsg(socket.as_fd().as_raw_fd(), &mut message, flags);
        (len, control, message.msg_controllen as usize)
    };
    let Ok(len) = usize::try_from(len) else {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    let head = size_of::<libc::cmsghdr>();
    if control_len >= head
        && (control.head.cmsg_level, control.head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
    {
        let count = control.head.cmsg_len.saturating_sub(head) / size_of::<i32>();
        for descriptor in control.descriptors.into_iter().take(count) {
            // SAFETY: the kernel has made it for this process just now.
            descriptors.push_back(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::{io::IoSlice, os::unix::net::UnixStream};

    #[test]
    fn descriptors_come_in_the_read_that_ends_with_their_bytes() {
        let (near, far) = UnixStream::pair().unwrap();
        let read = || {
            let mut room = [MaybeUninit::uninit(); 64];
            let mut descriptors = VecDeque::new();
            let len = receive(&far, &mut room, &mut descriptors);
            (len, descriptors.len())
        };
        assert_eq!(read(), (Err(Errno::AGAIN), 0));
        rustix::io::write(&near, b"before").unwrap();
        let fds = [near.as_fd(), far.as_fd(), near.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [IoSlice::new(b"with")];
        sendmsg(&near, &bytes, &mut control, SendFlags::NOSIGNAL).unwrap();
        rustix::io::write(&near, b"after").unwrap();
        // The kernel ends a read behind bytes with descriptors.
        assert_eq!(read(), (Ok("beforewith".len()), 3));
        assert_eq!(read(), (Ok("after".len()), 0));
        drop(near);
        assert_eq!(read(), (Ok(0), 0));
    }
}
