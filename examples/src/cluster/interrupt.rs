//! Ctrl-C and the signals that end a program, as a flag.

use anyhow::Result;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Whether this program was told to end by a signal.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP only set the flag.
    ///
    /// # Errors
    /// When a handler for them exists already.
    pub fn catch() -> Result<Self> {
        let interrupt = Interrupt::default();
        let flag = Arc::clone(&interrupt.0);
        ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))?;
        Ok(interrupt)
    }

    /// Whether one of the signals has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
