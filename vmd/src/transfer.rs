//! The way of an image from host to host: through two processes of their own, so that the daemons'
//! turns stay short.
//!
//! ```text
//! task -> pipe -> sender  == TCP, sealed ==>  receiver -> pipe -> restorer
//! ```
//!
//! The sender connects to the port of the target's daemon and says what it is, in the open:
//! `vm-move` and the ticket, 16 bytes. That daemon hands the connection to a receiver. Then both
//! ends prove the machine's secret as on a link ([`crate::secure`]); the first sealed bytes are the
//! ticket again, so that only who knows the secret is heard. What follows is the image. The image
//! has checksums and an end of its own: a way that breaks is found by the restorer.

use crate::{
    fault::{self, Strike},
    secret::Secret,
    secure::{Mode, SEALED_MAX, Secure},
    sockets::tune_link,
};
use anyhow::{Context as _, bail, ensure};
use rustix::{
    fd::{AsFd, OwnedFd},
    process::{Pid, Signal},
};
use std::{
    env,
    fs::File,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    time::Duration,
};
use vm_wire::{FrameReader, limits};

/// First bytes of a connection that brings an image.
pub const MAGIC: &[u8; 8] = b"vm-move\x01";
/// [`MAGIC`] and the ticket.
pub const OPENING: usize = MAGIC.len() + 8;
/// The first arguments of the two processes.
const SENDER: &str = "transfer-sender";
const RECEIVER: &str = "transfer-receiver";
/// The first argument of the process that becomes a task.
const RESTORER: &str = "transfer-restorer";
/// Environment variable of the two processes: the key of the links.
const ENV_KEY: &str = "VM_TRANSFER_KEY";
/// Bytes that are read at once, and that a pipe holds.
pub const READ_BYTES: usize = 1 << 20;
/// How long connecting and the handshake may take.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Under these numbers the restorer finds the image; the data and the interrupt socket follow.
pub const IMAGE: i32 = 200;

/// If this process was started as one of them: runs it, and says how it ended.
pub fn run_if_asked() -> Option<anyhow::Result<()>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [SENDER, addr, ticket, mode] => Some(send(addr, ticket, mode).context("sending an image")),
        [RECEIVER, ticket, mode] => Some(receive(ticket, mode).context("receiving an image")),
        [RESTORER] => Some(restore()),
        _ => None,
    }
}

/// A process that carries an image, and where it says why it fails. The daemon reaps it like all
/// that it did not expect.
pub type Carried = (Pid, Option<OwnedFd>);

/// Starts the process that sends what comes out of `image`.
///
/// # Errors
/// What the system says.
pub fn start_sender(
    addr: &str,
    ticket: u64,
    secret: &Secret,
    mode: Mode,
    image: OwnedFd,
) -> io::Result<Carried> {
    let mut command = helper(secret, "sender");
    command
        .args([SENDER, addr, &ticket.to_string(), mode_word(mode)])
        .stdin(image)
        .stdout(Stdio::null());
    spawn(command)
}

/// Starts the process that writes to `image` what comes over `socket`.
///
/// # Errors
/// What the system says.
pub fn start_receiver(
    socket: OwnedFd,
    ticket: u64,
    secret: &Secret,
    mode: Mode,
    image: OwnedFd,
) -> io::Result<Carried> {
    let mut command = helper(secret, "receiver");
    command
        .args([RECEIVER, &ticket.to_string(), mode_word(mode)])
        .stdin(socket)
        .stdout(image);
    spawn(command)
}

fn spawn(mut command: Command) -> io::Result<Carried> {
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let words = child.stderr.take().map(OwnedFd::from);
    Ok((Pid::from_child(&child), words))
}

/// A process that becomes a task: what the spawner still gives it are its streams.
pub fn restorer() -> Command {
    let mut command = this_program();
    command.arg(RESTORER).env_clear();
    fault::pass_on(&mut command, "restorer");
    command
}

/// This daemon's own program, also after its file was replaced.
pub fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("vmd");
    command
}

fn helper(secret: &Secret, point: &str) -> Command {
    let mut command = this_program();
    fault::pass_on(&mut command, point);
    command.env(ENV_KEY, secret.to_hex());
    let daemon = rustix::process::getpid();
    // SAFETY: the closure runs between fork and exec and makes system calls only.
    unsafe {
        command.pre_exec(move || tie_to(daemon));
    }
    command
}

/// In the child: death together with the daemon.
fn tie_to(daemon: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    match rustix::process::getppid() == Some(daemon) {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Encrypted => "encrypted",
        Mode::Plain => "plain",
    }
}

fn mode_of(word: &str) -> Mode {
    match word {
        "plain" => Mode::Plain,
        _ => Mode::Encrypted,
    }
}

fn key() -> anyhow::Result<Secret> {
    let hex = env::var(ENV_KEY).context("no key")?;
    Secret::from_hex(&hex)
}

fn send(addr: &str, ticket: &str, mode: &str) -> anyhow::Result<()> {
    let (secret, mode) = (key()?, mode_of(mode));
    let addr: SocketAddr = addr.parse()?;
    let ticket: u64 = ticket.parse()?;
    let mut image = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut socket = TcpStream::connect_timeout(&addr, CONNECT_TIME)
        .with_context(|| format!("connecting to {addr}"))?;
    tune(&socket)?;
    let mut out = [&MAGIC[..], &ticket.to_le_bytes()].concat();
    let mut secure = Secure::maker(&secret, mode, &mut out);
    socket.write_all(&out)?;
    let mut reader = FrameReader::new();
    let mut bytes = vec![0; READ_BYTES];
    socket.set_read_timeout(Some(CONNECT_TIME))?;
    while !secure.is_open() {
        let more = take(&mut socket, &mut secure, &mut reader, &mut bytes)?;
        ensure!(more, "the target awaits no image");
    }
    out.clear();
    secure.seal(&ticket.to_le_bytes(), &mut out);
    loop {
        socket.write_all(&out)?;
        out.clear();
        let count = match image.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("reading the image"),
        };
        if fault::at_carrier("sender") == Strike::Reset {
            rustix::net::connect_unspec(&socket)?;
        }
        if secure.sends_plain() {
            socket.write_all(&bytes[..count])?;
            continue;
        }
        for part in bytes[..count].chunks(SEALED_MAX) {
            secure.seal(part, &mut out);
        }
    }
}

fn receive(ticket: &str, mode: &str) -> anyhow::Result<()> {
    let (secret, mode) = (key()?, mode_of(mode));
    let ticket: u64 = ticket.parse()?;
    let mut socket = TcpStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut image = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(false)?;
    tune(&socket)?;
    socket.set_read_timeout(Some(CONNECT_TIME))?;
    let mut secure = Secure::other_end(&secret, mode);
    let mut reader = FrameReader::new();
    let mut room = vec![0; READ_BYTES];
    let mut proved = false;
    loop {
        if !take(&mut socket, &mut secure, &mut reader, &mut room)? {
            ensure!(proved, "the sender went away");
            return Ok(());
        }
        let mut bytes = reader.buffer(0).split();
        if !proved && !bytes.is_empty() {
            ensure!(bytes.len() >= 8, "the sender does not name its ticket");
            let named = bytes.split_to(8);
            ensure!(
                named[..] == ticket.to_le_bytes(),
                "the sender has another ticket"
            );
            proved = true;
            socket.set_read_timeout(None)?;
        }
        if let Some(last) = bytes.last_mut() {
            match fault::at_carrier("receiver") {
                Strike::Break => *last ^= 1,
                Strike::Reset => rustix::net::connect_unspec(&socket)?,
                _ => {}
            }
        }
        match image.write_all(&bytes) {
            // Who reads it has ended, and is asked why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            result => result.context("handing on the image")?,
        }
    }
}

/// As for a link, but the other end may have no room for a while: it restores what came.
fn tune(socket: &TcpStream) -> io::Result<()> {
    tune_link(socket)?;
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

/// Becomes the task.
fn restore() -> anyhow::Result<()> {
    fault::at_carrier("restorer");
    // SAFETY: the daemon has put the image there.
    let image = unsafe { rustix::fd::BorrowedFd::borrow_raw(IMAGE) };
    match vm_checkpoint::restore(image, vm_checkpoint::Way::default()) {
        Ok(never) => match never {},
        Err(error) => Err(error).context("bringing a task back"),
    }
}
