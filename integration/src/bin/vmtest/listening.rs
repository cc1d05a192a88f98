//! A task with a listening socket of its own, which closes it before each save and opens it again.

use super::shared::{GO, RESULT, STOP, me};
use anyhow::{Context, bail, ensure};
use std::{
    io::{BufRead as _, BufReader, ErrorKind, Write as _},
    mem,
    net::{Ipv4Addr, TcpListener},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};
use vmlib::{ANY, Callbacks, RecvError, Task, TaskError};

/// Starts a listener on that host, and waits for its end.
pub fn listening(vm: &Task, how: &str, host: &str) -> anyhow::Result<()> {
    let listener = vm.spawn(&me(&["listener", how])?.on(host))?[0];
    let () = vm.recv(listener, RESULT)?.value()?;
    // Each callback that opened the port has sent a message before the result. `try_recv` fails for
    // a task that has ended, so the messages are counted before the listener is told to stop.
    let mut opened = 0;
    while vm.try_recv(listener, GO)?.is_some() {
        opened += 1;
    }
    vm.send(listener, STOP, &())?;
    println!("it was opened again {opened} times");
    Ok(())
}

/// State that the callbacks and the thread that serves share.
#[derive(Default)]
struct Place {
    socket: Option<TcpListener>,
    /// Names of the callbacks that were called, in order.
    told: Vec<String>,
    refuses: bool,
    panics: bool,
    /// Whether the task may make calls of the library.
    awake: bool,
}

type Shared = Arc<Mutex<Place>>;

fn lock(place: &Shared) -> MutexGuard<'_, Place> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Place {
    /// Opens a port, and returns its number.
    fn open(&mut self) -> u16 {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        socket.set_nonblocking(true).expect("a socket");
        let port = socket.local_addr().expect("a port").port();
        self.socket = Some(socket);
        port
    }
}

/// Records which callback was called.
struct Teller(Shared);

impl Callbacks for Teller {
    fn before_save(&mut self) -> Result<(), String> {
        lock(&self.0).told.push("before first".to_owned());
        Ok(())
    }

    fn after_save(&mut self) {
        lock(&self.0).told.push("after first".to_owned());
    }

    fn after_resume(&mut self) {
        lock(&self.0).told.push("resume first".to_owned());
    }
}

/// Closes the socket before a save, and opens it again after.
struct Opener(Shared, Task);

impl Opener {
    fn open(&self, told: &str) {
        let mut place = lock(&self.0);
        place.told.push(told.to_owned());
        let port = place.open();
        drop(place);
        let parent = self.1.parent().expect("it was spawned");
        self.1.send(parent, GO, &()).expect("it may send now");
        println!("port {port} is open");
    }
}

impl Callbacks for Opener {
    fn before_save(&mut self) -> Result<(), String> {
        match self.1.try_recv(ANY, STOP) {
            Err(RecvError::Task(TaskError::InCallback)) => {}
            other => return Err(format!("a call within a callback: {other:?}")),
        }
        let mut place = lock(&self.0);
        if place.refuses {
            place.told.push("refused socket".to_owned());
            return Err("its ledger is open".to_owned());
        }
        if mem::take(&mut place.panics) {
            drop(place);
            panic!("its ledger has fallen down");
        }
        place.told.push("before socket".to_owned());
        place.socket = None;
        Ok(())
    }

    fn after_save(&mut self) {
        self.open("after socket");
    }

    fn after_resume(&mut self) {
        self.open("resume socket");
    }
}

/// Serves a port of its own in a thread, and waits in a call of the library. The task has
/// callbacks, unless `how` is `without`. With `deaf` the task computes at first, and makes no call.
pub fn listener(vm: &Task, how: &str) -> anyhow::Result<()> {
    let parent = vm.parent().context("no parent")?;
    let place = Shared::default();
    lock(&place).awake = how != "deaf";
    if how != "without" {
        vm.around_saves(Box::new(Teller(place.clone())));
        vm.around_saves(Box::new(Opener(place.clone(), vm.clone_handle())));
    }
    println!("port {} is open", lock(&place).open());
    let served = (place.clone(), vm.clone_handle());
    let server = thread::spawn(move || {
        while !serve(&served.0)? {
            thread::sleep(Duration::from_millis(2));
        }
        served.1.send(parent, RESULT, &())?;
        anyhow::Ok(())
    });
    while !lock(&place).awake {
        thread::sleep(Duration::from_millis(2));
    }
    // A callback may panic in this call.
    let wait = || vm.recv(parent, STOP).map(drop);
    loop {
        if let Ok(received) = catch_unwind(AssertUnwindSafe(wait)) {
            received?;
            break;
        }
    }
    match server.join() {
        Ok(served) => served,
        Err(_) => bail!("the server panicked"),
    }
}

/// Serves one connection, if there is one; callbacks wait meanwhile. Returns whether the task was
/// told to end.
fn serve(place: &Shared) -> anyhow::Result<bool> {
    let mut place = lock(place);
    let Some(socket) = &place.socket else {
        return Ok(false);
    };
    let (mut stream, _) = match socket.accept() {
        Ok(accepted) => accepted,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    stream.set_nonblocking(false)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let mut answer = String::new();
    match line.trim() {
        "told" => answer = mem::take(&mut place.told).join(", "),
        "refuse" => place.refuses = true,
        "allow" => place.refuses = false,
        "panic" => place.panics = true,
        "wake" => place.awake = true,
        "end" => {}
        other => ensure!(false, "what is {other}?"),
    }
    stream.write_all(answer.as_bytes())?;
    Ok(line.trim() == "end")
}
