//! The errors of a link's handshake and of its records.

/// Why a link cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecureError {
    /// The first bytes are not those of a link, or of another version of the handshake.
    #[error("it does not speak this protocol of links")]
    Foreign,
    /// One end encrypts, the other does not.
    #[error(
        "one end encrypts its links and the other does not: use --unencrypted-links on every \
         daemon of the machine, or on none"
    )]
    Mode,
    /// The other end does not know the secret.
    #[error("it has another secret: give both daemons the same one (see --secret-file)")]
    Secret,
    /// A record cannot be opened, or has an impossible length.
    #[error("it sent a bad record")]
    Record,
}

impl SecureError {
    /// The byte of the alert that reports this error to the other end.
    pub const fn alert(self) -> u8 {
        match self {
            SecureError::Foreign => 1,
            SecureError::Mode => 2,
            SecureError::Secret => 3,
            SecureError::Record => 4,
        }
    }

    /// The error that the other end has reported by an alert. An unknown byte means
    /// [`SecureError::Foreign`].
    pub const fn from_alert(alert: u8) -> SecureError {
        match alert {
            2 => SecureError::Mode,
            3 => SecureError::Secret,
            4 => SecureError::Record,
            _ => SecureError::Foreign,
        }
    }
}
