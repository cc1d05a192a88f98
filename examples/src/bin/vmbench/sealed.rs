//! The limit of a move: the transfer of its bytes alone, over a connection that is encrypted like
//! the machine's, into the fresh memory of another process.

use crate::bare::tcp_pair;
use anyhow::{Context, Result, ensure};
use rustix::stdio::stdin;
use snow::{Builder, HandshakeState, TransportState};
use std::{
    io::{Read, Write},
    net::TcpStream,
    os::fd::{AsFd, OwnedFd},
    process::{Command, ExitStatus},
    time::Instant,
};

/// The pattern between daemons, without the machine's secret.
const PATTERN: &str = "Noise_NN_25519_AESGCM_SHA256";
/// Bytes that sealing adds to a record, and bytes of the record's length field.
const TAG: usize = 16;
const LENGTH: usize = 2;
/// Plain bytes of one record.
const RECORD: usize = 65_535 - TAG;
/// Bytes that are sealed and sent at once.
const PIECE: usize = 4 * RECORD;

/// This program itself, even if its file was built anew since the start.
pub const OWN: &str = "/proc/self/exe";

/// Setting for large pages, as the machine's own tasks get them when they are restored.
pub const LARGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// Sends the memory to a process that is started for it. Returns the microseconds until all of it
/// has arrived.
pub fn send(memory: &[u8]) -> Result<f64> {
    let (mut socket, there) = tcp_pair()?;
    let mut process = Command::new(OWN)
        .args(["bare-fill", &memory.len().to_string()])
        .env(LARGE_PAGES.0, LARGE_PAGES.1)
        .stdin(OwnedFd::from(there))
        .spawn()?;
    let mut noise = shake(builder()?.build_initiator()?, &mut socket)?;
    let mut sealed = vec![0; 4 * (LENGTH + RECORD + TAG)];
    let begin = Instant::now();
    for piece in memory.chunks(PIECE) {
        let mut end = 0;
        for plain in piece.chunks(RECORD) {
            let count = noise.write_message(plain, &mut sealed[end + LENGTH..])?;
            sealed[end..end + LENGTH].copy_from_slice(&u16::try_from(count)?.to_le_bytes());
            end += LENGTH + count;
        }
        socket.write_all(&sealed[..end])?;
    }
    socket.read_exact(&mut [0]).context("the other process")?;
    let time = 1e6 * begin.elapsed().as_secs_f64();
    let status: ExitStatus = process.wait()?;
    ensure!(status.success(), "a bare process ended with {status}");
    Ok(time)
}

/// Both ends of an encrypted connection without the connection.
pub struct Cipher {
    seals: TransportState,
    opens: TransportState,
    sealed: Vec<u8>,
    opened: Vec<u8>,
}

impl Cipher {
    /// Two ends that have agreed on keys.
    pub fn new() -> Result<Self> {
        let mut one = builder()?.build_initiator()?;
        let mut other = builder()?.build_responder()?;
        let (mut message, mut content) = ([0; 128], [0; 128]);
        while !one.is_handshake_finished() {
            let count = one.write_message(&[], &mut message)?;
            other.read_message(&message[..count], &mut content)?;
            std::mem::swap(&mut one, &mut other);
        }
        Ok(Cipher {
            seals: one.into_transport_mode()?,
            opens: other.into_transport_mode()?,
            sealed: vec![0; RECORD + TAG],
            opened: vec![0; RECORD + TAG],
        })
    }

    /// Seals and opens a message.
    pub fn pass(&mut self, message: &[u8]) -> Result<()> {
        for plain in message.chunks(RECORD) {
            let count = self.seals.write_message(plain, &mut self.sealed)?;
            self.opens
                .read_message(&self.sealed[..count], &mut self.opened)?;
        }
        Ok(())
    }
}

/// Makes the computer allocate as much memory, and a quarter more, before a move or the transfer of
/// its bytes alone is measured. A virtual machine gives idle memory back to its host, and takes
/// seconds to get a GiB again. Without this call the next process that needs memory would wait for
/// that.
pub fn find_memory(bytes: usize) -> Result<()> {
    use_memory(bytes + bytes / 4)
}

/// Has a process use `bytes` bytes of memory, and end.
pub fn use_memory(bytes: usize) -> Result<()> {
    let status = Command::new(OWN)
        .args(["bare-memory", &bytes.to_string()])
        .env(LARGE_PAGES.0, LARGE_PAGES.1)
        .status()?;
    ensure!(status.success(), "a bare process ended with {status}");
    Ok(())
}

/// The work of the process that uses memory.
pub fn fill_memory(bytes: usize) {
    std::hint::black_box(vec![1u8; bytes]);
}

/// The work of the receiving process: fills fresh memory with the bytes from its standard input.
pub fn fill(bytes: usize) -> Result<()> {
    let mut socket = TcpStream::from(stdin().as_fd().try_clone_to_owned()?);
    let mut noise = shake(builder()?.build_responder()?, &mut socket)?;
    // The memory is larger by a tag, because records are opened in place.
    let mut memory = vec![0; bytes + TAG];
    let mut sealed = vec![0; PIECE];
    let (mut end, mut filled) = (0, 0);
    while filled < bytes {
        let read = socket.read(&mut sealed[end..])?;
        ensure!(read > 0, "the bytes ended early");
        end += read;
        let mut start = 0;
        while let Some(length) = sealed[start..end].first_chunk::<LENGTH>() {
            let length = usize::from(u16::from_le_bytes(*length));
            let Some(record) = sealed[start..end].get(LENGTH..LENGTH + length) else {
                break;
            };
            filled += noise.read_message(record, &mut memory[filled..])?;
            start += LENGTH + length;
        }
        sealed.copy_within(start..end, 0);
        end -= start;
    }
    socket.write_all(&[0])?;
    Ok(())
}

fn builder() -> Result<Builder<'static>> {
    Ok(Builder::new(PATTERN.parse()?))
}

/// Exchanges the two messages of the handshake.
fn shake(mut noise: HandshakeState, socket: &mut TcpStream) -> Result<TransportState> {
    let mut message = [0; 128];
    while !noise.is_handshake_finished() {
        if noise.is_my_turn() {
            let count = noise.write_message(&[], &mut message)?;
            socket.write_all(&[u8::try_from(count)?])?;
            socket.write_all(&message[..count])?;
        } else {
            socket.read_exact(&mut message[..1])?;
            let count = usize::from(message[0]);
            let room = message.get_mut(..count).context("a long handshake")?;
            socket.read_exact(room)?;
            let record = room.to_vec();
            noise.read_message(&record, &mut [])?;
        }
    }
    Ok(noise.into_transport_mode()?)
}
