//! A child process that does not outlive its value.

use std::process::Child;

/// A child that ends with this value.
#[derive(Debug)]
pub(super) struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail only if the child has ended and was waited for, as it should.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
