//! An object store for tests: the server s3rver in a process of its own, which `.ci/run` installs.
//! The server checks the key of a request, but not its signature. With `VM_OBJECT_STORE=PROGRAM`
//! the tests use the given s3s-fs instead (`cargo install s3s-fs --features binary`), which also
//! checks signatures.
//!
//! The server is reached through a relay. The relay keeps its port when the server is killed and
//! started again, and can kill the server after a number of bytes, in the middle of a transfer.

use super::{PATIENCE, client::read_some, end_with_us, wait_for};
use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, BufRead, BufReader, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    thread,
};
use tempfile::TempDir;

/// The name of the only bucket.
pub const BUCKET: &str = "saved";
/// The only key that the server accepts.
pub const KEY: &str = "S3RVER";
/// The secret key that the server accepts.
pub const SECRET: &str = "S3RVER";
/// Suffix of the files of objects in the server's folder.
const OBJECT: &str = "._S3rver_object";
/// Environment variable with the path of the server that checks signatures.
const ENV_STRICT: &str = "VM_OBJECT_STORE";
/// The path at which `.ci/run` installs s3rver.
const PROGRAM: &str = "target/object-store/node_modules/s3rver/bin/s3rver.js";

/// A server, which ends when this value is dropped.
#[derive(Debug)]
pub struct ObjectStore {
    folder: TempDir,
    server: Arc<Mutex<Server>>,
    /// Number of bytes that the relay passes on, in both directions, before it kills the server.
    left: Arc<AtomicI64>,
    endpoint: String,
    /// The server that checks signatures, if the tests use it.
    strict: Option<OsString>,
}

#[derive(Debug)]
struct Server {
    process: Option<Child>,
    addr: Option<SocketAddr>,
}

impl Server {
    fn end(&mut self) {
        self.addr = None;
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl ObjectStore {
    /// A server with an empty bucket. `None` if the server is not installed; the reason goes to
    /// standard error.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn start() -> Option<ObjectStore> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(PROGRAM);
        let strict = env::var_os(ENV_STRICT);
        if strict.is_none() && !program.exists() {
            eprintln!("skipped: no object store here, {PROGRAM}; see .ci/run");
            return None;
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("a port");
        let server = Arc::new(Mutex::new(Server {
            process: None,
            addr: None,
        }));
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let store = ObjectStore {
            folder: tempfile::tempdir().expect("a folder"),
            server: server.clone(),
            left: left.clone(),
            endpoint: format!("http://{addr}"),
            strict,
        };
        // The thread ends with the test process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let addr = server.lock().expect("no panic").addr;
                // Without a running server, the connection is closed at once.
                if let Some(Ok(there)) = addr.map(TcpStream::connect) {
                    relay(&client, &there, &server, &left);
                }
            }
        });
        store.revive();
        Some(store)
    }

    /// Starts the server again, with its former content.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn revive(&self) {
        let program = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(PROGRAM);
        let mut command = Command::new(self.strict.clone().unwrap_or_else(|| "node".into()));
        if self.strict.is_some() {
            let bucket = self.folder.path().join(BUCKET);
            fs::create_dir_all(bucket).expect("a folder");
            command
                .env("RUST_LOG", "s3s_fs=info")
                .args(["--host", "127.0.0.1", "--port", "0"])
                .args(["--access-key", KEY, "--secret-key", SECRET]);
        } else {
            command
                .arg(program)
                .args(["--address", "127.0.0.1", "--port", "0", "--silent"])
                .args(["--configure-bucket", BUCKET, "--directory"]);
        }
        command
            .arg(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        end_with_us(&mut command);
        let mut process = command.spawn().expect("node runs");
        let out = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut addrs = out.lines().map_while(Result::ok).filter_map(|line| {
            let (_, addr) = line
                .split_once("S3rver listening on ")
                .or(line.split_once("server is running at http://"))?;
            addr.trim().parse().ok()
        });
        let addr = addrs.next().expect("it says where it listens");
        self.left.store(i64::MAX, SeqCst);
        let mut server = self.server.lock().expect("no panic");
        server.process = Some(process);
        server.addr = Some(addr);
    }

    /// Ends the server. Requests to it fail from now on.
    ///
    /// # Panics
    /// If another thread has panicked with the lock of the server.
    pub fn end(&self) {
        self.server.lock().expect("no panic").end();
    }

    /// Kills the server when this number of bytes has passed the relay, in both directions.
    pub fn end_after(&self, bytes: i64) {
        self.left.store(bytes, SeqCst);
    }

    /// Whether the server checks signatures.
    pub fn is_strict(&self) -> bool {
        self.strict.is_some()
    }

    fn ending(&self) -> &'static str {
        match self.strict {
            Some(_) => "",
            None => OBJECT,
        }
    }

    /// The URL of the relay.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The URL of the bucket, with a prefix.
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// Sets the credentials of the server in the environment of a command.
    pub fn let_in(&self, command: &mut Command) {
        command
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env_remove("AWS_SESSION_TOKEN")
            .env_remove("AWS_REGION");
    }

    /// The keys of all objects below the prefix.
    ///
    /// # Panics
    /// If the server's folder cannot be read.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let root = self.folder.path().join(BUCKET).join(prefix);
        let mut keys = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let path = path.strip_prefix(&root).expect("below it");
                let path = path.to_str().expect("text");
                keys.extend(path.strip_suffix(self.ending()).map(str::to_owned));
            }
        }
        keys.sort();
        keys
    }

    /// The file in which the server stores an object.
    pub fn file(&self, prefix: &str, key: &str) -> PathBuf {
        let folder = self.folder.path().join(BUCKET).join(prefix);
        folder.join(format!("{key}{}", self.ending()))
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        if let Ok(mut server) = self.server.lock() {
            server.end();
        }
    }
}

/// Passes bytes on in both directions, until one side has ended.
fn relay(
    client: &TcpStream,
    there: &TcpStream,
    server: &Arc<Mutex<Server>>,
    left: &Arc<AtomicI64>,
) {
    let both = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    let (mut up, mut to) = (both(client), both(there));
    let (server, left) = (server.clone(), left.clone());
    let counted = move |bytes: usize| {
        if left.fetch_sub(bytes as i64, SeqCst) > bytes as i64 {
            return true;
        }
        server.lock().expect("no panic").end();
        false
    };
    let counted_down = counted.clone();
    thread::spawn(move || {
        let _ = pass(&mut up, &mut to, counted);
    });
    let (mut from, mut down) = (both(there), both(client));
    thread::spawn(move || {
        let _ = pass(&mut from, &mut down, counted_down);
    });
}

fn pass(
    from: &mut TcpStream,
    to: &mut TcpStream,
    mut may: impl FnMut(usize) -> bool,
) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    loop {
        let count = read_some(from, &mut buffer).unwrap_or(0);
        if count == 0 || !may(count) || to.write_all(&buffer[..count]).is_err() {
            let _ = from.shutdown(Shutdown::Both);
            return to.shutdown(Shutdown::Both);
        }
    }
}

/// Waits until the bucket has an object below `prefix` whose key ends with `ending`.
///
/// # Panics
/// If no such object comes.
pub fn wait_for_object(store: &ObjectStore, prefix: &str, ending: &str) {
    wait_for(&format!("{ending} in the bucket"), PATIENCE, || {
        let keys = store.keys(prefix);
        keys.iter().any(|key| key.ends_with(ending)).then_some(())
    });
}
