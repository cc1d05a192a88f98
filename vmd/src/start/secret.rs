//! The machine's secret, which all daemons of a machine know and nobody else.
//!
//! In a file it is one line of text. A generated secret is 64 hexadecimal digits of 256 random
//! bits; any text of at least 16 bytes is accepted. The key of the links is derived from it.

use anyhow::{Context, bail, ensure};
use std::{
    fmt::{self, Write as _},
    fs::{File, OpenOptions},
    io::{self, BufRead, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

/// Environment variable in which a launcher may hand the secret over. Tasks do not inherit it.
pub const ENV_SECRET: &str = "VM_SECRET";
/// A shorter secret can be guessed. Bytes.
const TEXT_MIN: usize = 16;
/// A larger file is not a secret. Bytes.
const TEXT_MAX: usize = 4096;
/// Separates this use of the secret from any other. Part of the protocol.
const PURPOSE: &str = "vm 2026 key of the links between daemons";

/// The key of the links, derived from the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// The bytes of the key.
    pub fn key(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key as text, for a helper process of this daemon.
    pub fn to_hex(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Reads the text that [`Secret::to_hex`] made.
    ///
    /// # Errors
    /// When the text is not such a key.
    pub fn from_hex(text: &str) -> anyhow::Result<Secret> {
        let mut key = [0; 32];
        ensure!(text.len() == 64 && text.is_ascii(), "that is no key");
        for (index, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16)?;
        }
        Ok(Secret(key))
    }

    /// Derives the key from the secret's text.
    ///
    /// # Errors
    /// When the text is too short.
    pub fn from_text(text: &str) -> anyhow::Result<Secret> {
        let text = text.trim();
        ensure!(
            (TEXT_MIN..=TEXT_MAX).contains(&text.len()),
            "a secret has {TEXT_MIN} to {TEXT_MAX} bytes, this one {}",
            text.len()
        );
        Ok(Secret(blake3::derive_key(PURPOSE, text.as_bytes())))
    }

    /// Reads the first line of `input`.
    ///
    /// # Errors
    /// When the input has no first line, or the line is not a secret.
    pub fn from_line(input: impl Read) -> anyhow::Result<Secret> {
        let mut line = String::new();
        io::BufReader::new(input.take(TEXT_MAX as u64 + 2))
            .read_line(&mut line)
            .context("cannot read the secret from standard input")?;
        Secret::from_text(&line).context("no secret on the first line of standard input")
    }

    /// Reads the secret from a file.
    ///
    /// # Errors
    /// When the file is missing, not the user's own, readable by others, or not a secret.
    pub fn from_file(path: &Path) -> anyhow::Result<Secret> {
        let file = File::open(path).with_context(|| format!("no secret in {}", path.display()))?;
        let facts = file.metadata()?;
        let uid = rustix::process::geteuid().as_raw();
        if facts.uid() != uid {
            bail!(
                "the secret {} belongs to user {}, not to you",
                path.display(),
                facts.uid()
            );
        }
        if facts.mode() & 0o077 != 0 {
            bail!(
                "the secret {} is open to others (mode {:04o}); run `chmod 600 {}`",
                path.display(),
                facts.mode() & 0o7777,
                path.display()
            );
        }
        let mut text = String::new();
        file.take(TEXT_MAX as u64 + 1)
            .read_to_string(&mut text)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Secret::from_text(&text).with_context(|| format!("no secret in {}", path.display()))
    }

    /// Makes a random secret and writes it to a new file.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn create(path: &Path) -> anyhow::Result<Secret> {
        let mut random = [0; 32];
        fill_random(&mut random);
        let mut text = String::with_capacity(65);
        for byte in random {
            write!(text, "{byte:02x}").expect("a string takes everything");
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot make the secret {}", path.display()))?;
        writeln!(file, "{text}")
            .with_context(|| format!("cannot write the secret {}", path.display()))?;
        Secret::from_text(&text)
    }
}

/// Fills `bytes` with random bytes of the system.
pub fn fill_random(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the system gives no random numbers: {error}"),
        }
    }
}

/// A random number of the system.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_created_secret_is_private_and_read_back() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let path = temp.path().join("secret");
        let secret = Secret::create(&path).expect("created");
        assert_eq!(fs::metadata(&path).expect("written").mode() & 0o777, 0o600);
        assert_eq!(Secret::from_file(&path).expect("read"), secret);
        let text = fs::read_to_string(&path).expect("text");
        assert_eq!(Secret::from_line(text.as_bytes()).expect("read"), secret);
        assert_eq!(text.trim().len(), 64);
        assert!(
            Secret::create(&path).is_err(),
            "a secret is never overwritten"
        );
    }

    #[test]
    fn a_secret_open_to_others_or_too_short_is_refused() {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let path = temp.path().join("secret");
        Secret::create(&path).expect("created");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("a mode");
        let error = Secret::from_file(&path).expect_err("open to the group");
        assert!(format!("{error:#}").contains("chmod 600"));
        assert!(Secret::from_text("short").is_err());
        assert!(Secret::from_line(&b"\n"[..]).is_err());
    }
}
