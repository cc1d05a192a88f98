//! Images of processes: saved, described, verified, and their processes restored.
//!
//! No daemon takes part. `look` reads the heads of an image and compares them with this host. To
//! restore a process, the console's own process becomes it, so terminal, signals and exit code need
//! no relay. The prompt starts a separate console process for that, and waits.

mod look;
mod run;
mod save;
mod source;

pub use look::{Report, Whole, look, verify};
pub use run::{How, run, run_apart};
pub use save::{Made, save};
pub use source::is_stdin;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupt;
    use vm_image::format::ImageError;

    #[test]
    fn the_error_for_a_file_that_is_no_image_has_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("text");
        std::fs::write(&file, "once upon a time").unwrap();
        let interrupt = Interrupt::none();
        let error = look(&file, &interrupt).unwrap_err().to_string();
        assert!(
            error.contains("text: this is not an image of a process"),
            "{error}"
        );
        assert!(matches!(
            verify(&file, &interrupt),
            Ok(Err(ImageError::NotAnImage))
        ));
        let error = verify(&dir.path().join("none"), &interrupt).unwrap_err();
        assert!(format!("{error:#}").contains("cannot open"), "{error:#}");
    }
}
