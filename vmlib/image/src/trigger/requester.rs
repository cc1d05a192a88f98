//! The end of a request in the process that is saved.
//!
//! **Runs in signal handlers**: it allocates nothing and locks nothing.

use crate::{
    frozen::{
        fault::{Outcome, Step as _, Text, refuse},
        file_calls,
    },
    raw::sys::{self, nr},
    save::sequence::SaveResult,
    trigger::{
        packet::{Modes, PACKET, Reply, name_of},
        request_error::ANSWER,
    },
};

/// The connection to the requester. Dropping the value does not close the descriptors, because a
/// restored process does not have them.
pub struct Requester {
    socket: i32,
    token: u64,
    modes: Modes,
    image: i32,
}

impl Requester {
    /// Connects to the requester, and receives the modes and the descriptor of the image. `None` if
    /// the requester is gone or may not request an image.
    pub fn connect(token: u64) -> Option<Self> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the call opens a descriptor.
        let made = unsafe { sys::call3(nr::SOCKET, libc::AF_UNIX as usize, kind as usize, 0) };
        let socket = sys::check(made).ok()? as i32;
        let asked = connect(socket, token).and_then(|()| receive(socket));
        if asked.is_none() {
            sys::close(socket);
        }
        asked.map(|(modes, image)| Requester {
            socket,
            token,
            modes,
            image,
        })
    }

    pub fn modes(&self) -> Modes {
        self.modes
    }

    pub fn token(&self) -> u64 {
        self.token
    }

    pub fn socket(&self) -> i32 {
        self.socket
    }

    /// The descriptor of the image, once. The caller closes it.
    pub fn take_image(&mut self) -> Outcome<i32> {
        match std::mem::replace(&mut self.image, -1) {
            -1 => refuse!("the image's file was used already"),
            image => Ok(image),
        }
    }

    pub fn say_begun(&mut self) {
        self.say(&Reply::Begun);
        sys::close(self.socket);
    }

    pub fn say_refused(&mut self, why: &Text) {
        self.say(&Reply::Refused(why.as_str().as_bytes()));
        if self.image >= 0 {
            sys::close(self.image);
        }
        sys::close(self.socket);
    }

    /// Reports the save. With `waits`, waits until the requester has kept the image; returns
    /// whether it has.
    pub fn say_saved(&mut self, saved: SaveResult, waits: bool) -> bool {
        self.say(&Reply::Saved {
            bytes: saved.bytes,
            ns: saved.freeze_ns,
        });
        let mut word = [0];
        let is_kept = waits
            && loop {
                match sys::read(self.socket, &mut word) {
                    Ok(len) => break len == 1,
                    Err(sys::EINTR) => {}
                    // The requester may wait for a slow disk.
                    Err(sys::EAGAIN) => continue,
                    Err(_) => break false,
                }
            };
        sys::close(self.socket);
        is_kept
    }

    fn say(&self, reply: &Reply<'_>) {
        let mut packet = [0; PACKET];
        let len = reply.write(&mut packet);
        let (fd, at) = (self.socket as usize, packet.as_ptr() as usize);
        // SAFETY: the kernel reads the packet. The requester may be gone.
        unsafe { sys::call6(nr::SENDTO, fd, at, len, libc::MSG_NOSIGNAL as usize, 0, 0) };
    }
}

/// Connects to the socket of a request, if the socket belongs to root or to this user.
fn connect(socket: i32, token: u64) -> Option<()> {
    let name = name_of(token);
    // SAFETY: zeros are a value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    for (place, byte) in address.sun_path[1..].iter_mut().zip(name) {
        *place = byte as libc::c_char;
    }
    let len = size_of::<libc::sa_family_t>() + 1 + name.len();
    let limit = [ANSWER.as_secs(), 0u64];
    let (fd, level) = (socket as usize, libc::SOL_SOCKET as usize);
    // SAFETY: the kernel reads the address and the time limit.
    let user = unsafe {
        let (at, time) = (&raw const address as usize, limit.as_ptr() as usize);
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            sys::call5(nr::SETSOCKOPT, fd, level, option as usize, time, 16);
        }
        sys::check(sys::call3(nr::CONNECT, fd, at, len)).ok()?;
        sys::call0(nr::GETEUID) as u32
    };
    let peer = file_calls::peer(socket).ok()?;
    (peer.uid == 0 || peer.uid == user).then_some(())
}

/// Receives the modes and the descriptor of the image.
fn receive(socket: i32) -> Option<(Modes, i32)> {
    /// Bytes of the head of control data.
    const HEAD: usize = size_of::<libc::cmsghdr>();
    let mut modes = [0u8; 4];
    let mut control = [0u64; 4];
    let mut part = libc::iovec {
        iov_base: modes.as_mut_ptr().cast(),
        iov_len: modes.len(),
    };
    // SAFETY: zeros are a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let at = &raw mut message as usize;
    let flags = libc::MSG_CMSG_CLOEXEC as usize;
    // SAFETY: the kernel writes into both buffers.
    let len = sys::check(unsafe { sys::call3(nr::RECVMSG, socket as usize, at, flags) });
    // SAFETY: the buffer has room for a head and a descriptor, and zeros where the kernel wrote
    // none.
    let (head, image) = unsafe {
        let start = control.as_ptr();
        let head = &*start.cast::<libc::cmsghdr>();
        (head, start.cast::<u8>().add(HEAD).cast::<i32>().read())
    };
    let is_handed = (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        && head.cmsg_len >= HEAD + size_of::<i32>();
    match len.step("receiving the request") {
        Ok(4) if is_handed => Some((Modes::from_bits(u32::from_le_bytes(modes)), image)),
        _ => None,
    }
}
