//! What is in an image, and whether it is whole.

use super::source::{Watched, failed, is_seekable, not_interrupted, open, reasons};
use crate::interrupt::Interrupt;
use std::path::{Path, PathBuf};
use vm_image::{
    format::{ImageError, ImageReader},
    inspect::{Needs, Summary},
};

/// What is in an image, and what that means here.
#[derive(Debug)]
pub struct Report {
    /// The image.
    pub file: PathBuf,
    /// What is in it.
    pub summary: Summary,
    /// Which hosts it is good for.
    pub needs: Needs,
    /// Why it cannot be brought back on this one; none if it can.
    pub reasons: Vec<String>,
    /// Why the image is not whole, as far as it was read.
    pub damage: Option<ImageError>,
}

/// Looks into an image; its memory is passed over where the file allows it.
///
/// # Errors
/// When the file cannot be opened, or not even the heads are good.
pub fn look(file: &Path, interrupt: &Interrupt) -> anyhow::Result<Report> {
    let opened = open(file)?;
    let _phase = interrupt.waiting();
    let source = Watched {
        file: &opened,
        interrupt,
    };
    let mut image = ImageReader::new(source).map_err(|error| failed(file, error))?;
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

/// A whole image, and what it takes to bring its process back.
#[derive(Debug)]
pub struct Whole {
    /// Bytes of the image.
    pub bytes: u64,
    /// Which hosts it is good for, and what has to be there.
    pub needs: Needs,
    /// Why it cannot be brought back on this one; none if it can.
    pub reasons: Vec<String>,
}

/// Reads all of an image. The inner error says where it is damaged.
///
/// # Errors
/// When the file cannot be opened or read.
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
