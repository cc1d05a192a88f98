//! The transfer of an image from host to host: through two processes of their own, so that the
//! daemons' turns stay short.
//!
//! ```text
//! task -> pipe -> sender  == TCP, sealed ==>  receiver -> pipe -> restorer
//! ```
//!
//! The sender connects to the port of the target's daemon and first sends 16 unprotected bytes:
//! `vm-move` with a version, and the ticket. The daemon hands the connection to a receiver. Then
//! both ends prove the machine's secret as on a link ([`crate::net::secure`]). The first sealed
//! bytes are the ticket again, so that only a sender that knows the secret is accepted. The image
//! follows. The image has checksums and an end of its own, so the restorer detects a connection
//! that breaks.

use crate::{
    fault::{self, Strike},
    image::lent::Lender,
    net::{
        secure::{self, LENGTH, Mode, SEALED, SEALED_MAX, Secure},
        sockets::tune_bulk,
    },
    process::{
        helper,
        helper_job::{HelperJob, ReceiverJob, RenamedFolder, RestorerJob, SenderJob},
        portable,
        starter::Starter,
    },
    start::secret::{ENV_SECRET, Secret},
};
use anyhow::{Context as _, bail, ensure};
use rustix::{
    fd::{AsFd, FromRawFd as _, OwnedFd},
    io::Errno,
};
use std::{
    convert::Infallible,
    env,
    io::{self, IoSliceMut, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use vm_wire::{FrameReader, interrupt::Folders, limits};

/// First bytes of a connection that brings an image.
pub const MAGIC: &[u8; 8] = b"vm-move\x01";
/// [`MAGIC`] and the ticket.
pub const OPENING: usize = MAGIC.len() + 8;
/// Environment variable of the sender and the receiver with the key of the links.
const ENV_KEY: &str = "VM_TRANSFER_KEY";
/// Bytes that are read at once, and the capacity of a pipe.
pub const READ_BYTES: usize = 1 << 20;
/// Bytes that are sealed, sent, opened and passed on at once: they stay in the processor's cache.
const PIECE: usize = 512 << 10;
/// Length of a record with the most plain bytes, in bytes, and the number of such records that are
/// sent at once.
const RECORD: usize = SEALED_MAX + SEALED;
const RECORDS: usize = PIECE / SEALED_MAX;
/// If a partial record lies at least this number of bytes behind the opened ones, moving it forward
/// to gain room is worth the copy.
const GAP: usize = 4 << 10;
/// Time limit for the connection and the handshake.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How often the sender tries to connect: the target closes connections of strangers if there are
/// too many.
const CONNECT_TRIES: u32 = 4;
/// Pause before the next attempt.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Number of the descriptor at which the restorer finds the image. The data socket and the
/// interrupt socket follow.
pub const IMAGE: i32 = 200;

/// Starts transfer processes, each with a pipe for its error messages. The daemon reaps them like
/// all children that it did not expect.
pub type Helpers = Starter<Command, Option<OwnedFd>, io::Error>;

/// The process that sends the image from `image`.
pub fn sender(addr: &str, ticket: u64, secret: &Secret, mode: Mode, image: OwnedFd) -> Command {
    let job = HelperJob::TransferSender(SenderJob {
        addr: addr.to_owned(),
        ticket,
        mode,
    });
    let mut command = transfer_command(&job, secret, "sender");
    command.stdin(image).stdout(Stdio::null());
    command
}

/// The process that writes the image from `socket` to `image`.
pub fn receiver(
    socket: OwnedFd,
    ticket: u64,
    secret: &Secret,
    mode: Mode,
    image: OwnedFd,
) -> Command {
    let job = HelperJob::TransferReceiver(ReceiverJob { ticket, mode });
    let mut command = transfer_command(&job, secret, "receiver");
    command.stdin(socket).stdout(image);
    command
}

/// The key is passed in the environment, which other users cannot read.
fn transfer_command(job: &HelperJob, secret: &Secret, point: &str) -> Command {
    let mut command = helper::tied_command(job);
    fault::pass_on(&mut command, point);
    command.env(ENV_KEY, secret.to_hex());
    command
}

/// How a process is made from an image.
#[derive(Debug, Clone, Default)]
pub struct Back {
    /// Whether files that the task writes are rolled back to their content at the save.
    pub roll_back: bool,
    /// The names of folders at the save and their names here, if they differ.
    pub folders: Option<Folders>,
}

/// The restorer: the process that becomes a task. The spawner adds its streams. It has the daemon's
/// environment; a process that is restored from an image has the environment of the image instead.
pub fn restorer(how: &Back) -> Command {
    let folder = how.folders.as_ref().map(|folders| RenamedFolder {
        saved: (&folders.here).into(),
        here: (&folders.there).into(),
    });
    let job = HelperJob::TransferRestorer(RestorerJob {
        roll_back: how.roll_back,
        folder,
    });
    let mut command = helper::command(&job);
    command.env_remove(ENV_SECRET);
    fault::pass_on(&mut command, "restorer");
    command
}

fn key() -> anyhow::Result<Secret> {
    let hex = env::var(ENV_KEY).context("no key")?;
    Secret::from_hex(&hex)
}

/// Sends the image that is standard input.
///
/// # Errors
/// The reason why the image did not arrive, as far as the sender knows it.
pub fn send(job: &SenderJob) -> anyhow::Result<()> {
    let SenderJob { addr, ticket, mode } = job;
    let (secret, ticket, mode) = (key()?, *ticket, *mode);
    let addr: SocketAddr = addr
        .parse()
        .with_context(|| format!("the address '{addr}'"))?;
    let image = io::stdin();
    let (start, mut tries) = (Instant::now(), 1);
    let (mut socket, mut secure) = loop {
        match open(addr, ticket, &secret, mode) {
            Ok(open) => break open,
            Err(_) if tries < CONNECT_TRIES && start.elapsed() < CONNECT_TIME => {
                thread::sleep(CONNECT_PAUSE);
            }
            Err(error) => return Err(error),
        }
        tries += 1;
    };
    let mut sealed = Vec::new();
    secure.seal(&ticket.to_le_bytes(), &mut sealed);
    send_all(&mut socket, &sealed)?;
    if secure.sends_plain() {
        return send_plain(&image, &mut socket);
    }
    send_sealed(&image, &mut socket, &mut secure)
}

/// Connects to the target's daemon, whose receiver proves the secret.
fn open(
    addr: SocketAddr,
    ticket: u64,
    secret: &Secret,
    mode: Mode,
) -> anyhow::Result<(TcpStream, Secure)> {
    let mut socket = TcpStream::connect_timeout(&addr, CONNECT_TIME)
        .with_context(|| format!("connecting to {addr}"))?;
    tune(&socket)?;
    socket2::SockRef::from(&socket).set_send_buffer_size(limits::MOVE_SEND_BYTES)?;
    let mut out = [&MAGIC[..], &ticket.to_le_bytes()].concat();
    let mut secure = Secure::maker(secret, mode, &mut out);
    socket.write_all(&out)?;
    let mut reader = FrameReader::new();
    let mut bytes = vec![0; READ_BYTES];
    socket.set_read_timeout(Some(CONNECT_TIME))?;
    while !secure.is_open() {
        let more = take(&mut socket, &mut secure, &mut reader, &mut bytes)?;
        ensure!(more, "the target awaits no image");
    }
    Ok((socket, secure))
}

/// Sends the image without encryption.
fn send_plain(image: &impl AsFd, socket: &mut TcpStream) -> anyhow::Result<()> {
    let mut bytes = vec![0; PIECE];
    loop {
        let count = read(image, &mut bytes).context("reading the image")?;
        if count == 0 {
            return Ok(());
        }
        strike_sender(socket)?;
        send_all(socket, &bytes[..count])?;
    }
}

/// Reads the image into the buffer in which it is sealed, and sends it.
fn send_sealed(
    image: &impl AsFd,
    socket: &mut TcpStream,
    secure: &mut Secure,
) -> anyhow::Result<()> {
    let mut records = vec![0; RECORDS * RECORD];
    loop {
        let contents = records
            .chunks_exact_mut(RECORD)
            .map(|record| IoSliceMut::new(&mut record[LENGTH..LENGTH + SEALED_MAX]));
        let mut contents: Vec<IoSliceMut> = contents.collect();
        let mut count =
            again(|| rustix::io::readv(image, &mut contents)).context("reading the image")?;
        if count == 0 {
            return Ok(());
        }
        strike_sender(socket)?;
        let mut end = 0;
        while count > 0 {
            let content = count.min(SEALED_MAX);
            secure.seal_within(&mut records[end..end + content + SEALED]);
            count -= content;
            end += content + SEALED;
        }
        send_all(socket, &records[..end])?;
    }
}

/// Faults that tests request for the connection.
fn strike_sender(socket: &TcpStream) -> io::Result<()> {
    if fault::at_carrier("sender") == Strike::Reset {
        rustix::net::connect_unspec(socket)?;
    }
    Ok(())
}

fn send_all(socket: &mut TcpStream, bytes: &[u8]) -> anyhow::Result<()> {
    socket.write_all(bytes).context("writing to the other end")
}

/// Reads once; 0 at the end.
fn read(from: &impl AsFd, room: &mut [u8]) -> io::Result<usize> {
    again(|| rustix::io::read(from, &mut *room))
}

/// Repeats a call that a signal has interrupted.
fn again(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Receives an image over the socket that is standard input, and writes it to standard output.
///
/// # Errors
/// The reason why the image is not complete.
pub fn receive(job: &ReceiverJob) -> anyhow::Result<()> {
    let ReceiverJob { ticket, mode } = *job;
    let secret = key()?;
    let mut socket = TcpStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut image = Lender::new(io::stdout().as_fd().try_clone_to_owned()?, 2 * PIECE)?;
    socket.set_nonblocking(false)?;
    tune(&socket)?;
    socket.set_read_timeout(Some(CONNECT_TIME))?;
    let mut secure = Secure::other_end(&secret, mode);
    let mut reader = FrameReader::new();
    let mut room = vec![0; READ_BYTES];
    while reader.buffer(0).is_empty() {
        let more = take(&mut socket, &mut secure, &mut reader, &mut room)?;
        ensure!(more, "the sender went away");
    }
    let first = reader.buffer(0).split();
    let (named, first) = first
        .split_first_chunk::<8>()
        .context("the sender does not name its ticket")?;
    let is_that = *named == ticket.to_le_bytes();
    ensure!(is_that, "the sender has another ticket");
    socket.set_read_timeout(None)?;
    for part in first.chunks(PIECE) {
        image.room(0)?[..part.len()].copy_from_slice(part);
        image.filled(part.len());
    }
    let passed = match mode {
        Mode::Plain => pass_plain(&socket, &mut image),
        Mode::Encrypted => pass_sealed(&socket, &mut secure, &mut image),
    };
    match passed {
        // The process that reads the pipe has ended, and reports the reason itself.
        Err(error) if error.downcast_ref() == Some(&Errno::PIPE) => Ok(()),
        passed => passed,
    }
}

/// Passes on the received bytes, until the end.
fn pass_plain(socket: &TcpStream, image: &mut Lender) -> anyhow::Result<()> {
    loop {
        image.lend()?;
        let room = &mut image.room(0)?[..PIECE];
        let count = read(socket, room)?;
        if count == 0 {
            return Ok(());
        }
        strike(&mut room[..count], socket)?;
        image.filled(count);
    }
}

/// Opens each record in the receive buffer, moves its content to the end of the one before, and
/// passes it on, until the end.
fn pass_sealed(socket: &TcpStream, secure: &mut Secure, image: &mut Lender) -> anyhow::Result<()> {
    let came = secure.rest();
    image.room(0)?[..came.len()].copy_from_slice(&came);
    // The part of the room that holds sealed bytes.
    let mut sealed = 0..came.len();
    loop {
        loop {
            let room = image.room(sealed.end)?;
            let Some(length) = secure::sealed(&room[sealed.clone()])? else {
                break;
            };
            let start = sealed.start + LENGTH;
            let count = secure.open_within(&mut room[..start + length], start)?;
            strike(&mut room[..count], socket)?;
            image.filled(count);
            sealed = start + length - count..sealed.end - count;
        }
        image.lend()?;
        let room = image.room(sealed.end)?;
        if sealed.start > GAP || sealed.is_empty() {
            room.copy_within(sealed.clone(), 0);
            sealed = 0..sealed.len();
        }
        match read(socket, &mut room[sealed.end..][..PIECE])? {
            0 => return Ok(()),
            count => sealed.end += count,
        }
    }
}

/// Faults that tests request for an image that arrives.
fn strike(bytes: &mut [u8], socket: &TcpStream) -> io::Result<()> {
    if let Some(last) = bytes.last_mut() {
        match fault::at_carrier("receiver") {
            Strike::Break => *last ^= 1,
            Strike::Reset => rustix::net::connect_unspec(socket)?,
            _ => {}
        }
    }
    Ok(())
}

/// Sets the socket options: like a link's, but without the time limit for unacknowledged data,
/// because the other end may have no room for a while: it restores the bytes that came before.
fn tune(socket: &TcpStream) -> io::Result<()> {
    tune_bulk(socket)?;
    socket2::SockRef::from(socket).set_tcp_user_timeout(Some(limits::MOVE_SILENCE))
}

/// Reads once; `false` at the end.
fn take(
    socket: &mut TcpStream,
    secure: &mut Secure,
    reader: &mut FrameReader,
    bytes: &mut [u8],
) -> anyhow::Result<bool> {
    let count = loop {
        match socket.read(bytes) {
            Ok(count) => break count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => bail!("reading from the other end: {error}"),
        }
    };
    secure.input(reader).extend_from_slice(&bytes[..count]);
    let mut out = Vec::new();
    let result = secure.receive(reader, &mut out);
    socket.write_all(&out)?;
    result?;
    Ok(count > 0)
}

/// A folder that has another name on this host: the name at the save, and the name here.
type Renamed<'a> = (&'a Path, &'a Path);

/// Becomes the task. Returns only on failure.
///
/// # Errors
/// The reason why the task cannot be restored.
pub fn restore(job: &RestorerJob) -> anyhow::Result<()> {
    let folder = job.folder.as_ref();
    let folders = folder.map(|folder| (&*folder.saved, &*folder.here));
    fault::at_carrier("restorer");
    // SAFETY: the daemon has put the image at this number, for this process alone.
    let image = unsafe { OwnedFd::from_raw_fd(IMAGE) };
    let how = match portable::is_state(&image)? {
        true => portable::go_on(image, folders),
        false => restore_image(image, job.roll_back, folders),
    };
    match how.context("restoring a task")? {}
}

#[cfg(target_arch = "x86_64")]
fn restore_image(
    image: OwnedFd,
    roll_back: bool,
    folders: Option<Renamed<'_>>,
) -> anyhow::Result<Infallible> {
    let way = vm_image::RestoreOptions {
        roll_back,
        folders: folders.as_slice(),
        ..vm_image::RestoreOptions::default()
    };
    Ok(vm_image::restore(image.as_fd(), way)?)
}

#[cfg(not(target_arch = "x86_64"))]
fn restore_image(_: OwnedFd, _: bool, _: Option<Renamed<'_>>) -> anyhow::Result<Infallible> {
    bail!("images of processes are restored on x86-64 only")
}
