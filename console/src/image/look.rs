//! The summary of an image, and whether the image is whole.

use super::source::{Watched, failed, is_seekable, not_interrupted, open, reader, reasons};
use crate::interrupt::Interrupt;
use std::path::{Path, PathBuf};
use vm_image::{
    format::{ImageError, ImageReader},
    inspect::{Needs, Summary},
};

/// The summary of an image, and whether its process can be restored on this host.
#[derive(Debug)]
pub struct Report {
    /// The image.
    pub file: PathBuf,
    /// The summary.
    pub summary: Summary,
    /// The needs of the process on a host.
    pub needs: Needs,
    /// The reasons why the process cannot be restored on this host; none if it can.
    pub reasons: Vec<String>,
    /// The place of damage in the image, as far as the image was read.
    pub damage: Option<ImageError>,
}

/// Reads the heads of an image; skips its memory if the file is seekable.
///
/// # Errors
/// If the file cannot be opened, or the heads are damaged.
pub fn look(file: &Path, interrupt: &Interrupt) -> anyhow::Result<Report> {
    let opened = open(file)?;
    let _phase = interrupt.waiting();
    let mut image = reader(file, &opened, interrupt)?;
    let prefix = *image.prefix();
    let seekable = is_seekable(&opened);
    let heads = match seekable {
        true => image.pass_heads(),
        false => image.read_heads(),
    };
    let heads = heads.map_err(|error| failed(file, error))?;
    let (summary, needs) = (Summary::of_heads(heads), Needs::of(&prefix, heads));
    let reasons = reasons(&prefix, heads, false, &[]);
    let rest = match seekable {
        true => Summary::pass_on(&mut image),
        false => Summary::read_on(&mut image),
    };
    let (summary, damage) = match rest {
        Ok(summary) => (summary, None),
        Err(error) => (summary, Some(not_interrupted(error)?)),
    };
    Ok(Report {
        file: file.to_owned(),
        summary,
        needs,
        reasons,
        damage,
    })
}

/// The results of reading a whole image.
#[derive(Debug)]
pub struct Whole {
    /// Bytes of the image.
    pub bytes: u64,
    /// The needs of the process on a host.
    pub needs: Needs,
    /// The reasons why the process cannot be restored on this host; none if it can.
    pub reasons: Vec<String>,
}

/// Reads a whole image. The inner error names the place of damage.
///
/// # Errors
/// If the file cannot be opened or read.
pub fn verify(file: &Path, interrupt: &Interrupt) -> anyhow::Result<Result<Whole, ImageError>> {
    let opened = open(file)?;
    let _phase = interrupt.waiting();
    let source = Watched {
        file: &opened,
        interrupt,
    };
    let read = || {
        let mut image = ImageReader::new(source)?;
        Summary::read_on(&mut image)?;
        let prefix = *image.prefix();
        let bytes = image.position();
        let heads = image.read_heads()?;
        Ok(Whole {
            bytes,
            needs: Needs::of(&prefix, heads),
            reasons: reasons(&prefix, heads, false, &[]),
        })
    };
    match read() {
        Ok(whole) => Ok(Ok(whole)),
        Err(error @ ImageError::Io { .. }) => Err(failed(file, error)),
        Err(error) => Ok(Err(error)),
    }
}
