//! The part of an image before its memory: facts, names, threads, files, mappings, and the content
//! of carried files.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::{file_locks::Lock, guards, pages::Pages},
    frozen::fault::Outcome,
    options::Options,
    raw::records::{
        BLOCK, FACTS, FILES, Facts, FileRecord, GONE, MAPPINGS, Mapping, NAMES, Plain as _,
        THREADS, ThreadRecord,
    },
    restore::resume::ResumePlan,
    save::{
        carried_files,
        image_writer::ImageWriter,
        pieces::{Since, pieces, present},
        rounds::{self, Rounds},
        spare::Spare,
    },
};

/// The tables of an image.
pub struct Tables<'a> {
    pub facts: Facts,
    pub names: &'a [u8],
    pub files: &'a [FileRecord],
    pub records: &'a [ThreadRecord],
    pub plan: &'a mut ResumePlan,
    pub locks: &'a [Lock],
}

impl Tables<'_> {
    /// Writes the tables and the carried files. Returns the writer and the memory that is to
    /// follow. With `zeros`, pages of zeros are left out of that memory, and given back if they are
    /// spare.
    pub fn write(
        &mut self,
        image: i32,
        options: Options<'_>,
        rounds: Option<&mut Rounds>,
        mappings: &mut [Mapping],
        zeros: Option<Spare>,
    ) -> Outcome<(ImageWriter, &'static [[u64; 2]])> {
        let files = self.files;
        let (mut out, mut pieces, guards, gone) = match rounds {
            None => {
                let out = ImageWriter::begin(image, options.compress, options.lend)?;
                let mut scan = Pages::open_to_note()?;
                let pieces = pieces(&mut scan, mappings, Since::default(), zeros)?;
                (out, pieces, scan.guards(), None)
            }
            Some(rounds) => {
                let taken = rounds.take()?;
                // A device that writes to memory past the processor leaves no trace in the write
                // watch.
                let traces = !files
                    .iter()
                    .any(|file| file.flags & libc::O_DIRECT as u32 != 0);
                let since = Since {
                    missed: traces.then_some(taken.missed),
                    sent: taken.sent,
                };
                let changed = pieces(&mut Pages::open()?, mappings, since, zeros)?;
                let mut scan = Pages::open_to_note()?;
                let present = present(&mut scan, mappings)?;
                let gone = rounds::gone(taken.sent, present)?;
                (taken.out, changed, scan.guards(), Some(gone))
            }
        };
        // The list of guards is made only now. The search for pages may have passed its memory
        // while that was still empty, so that memory is added here.
        self.plan.guards = guards;
        if let Some(place) = guards::place_of(guards) {
            pieces.insert(place, "pieces of memory")?;
        }
        out.section(FACTS, 0, self.facts.bytes())?;
        out.section(NAMES, 0, self.names)?;
        out.section(THREADS, 0, ThreadRecord::all_bytes(self.records))?;
        out.section(FILES, 0, FileRecord::all_bytes(files))?;
        out.section(MAPPINGS, 0, Mapping::all_bytes(mappings))?;
        let gone = gone.as_ref().map_or(&[][..], |gone| gone.all());
        for part in gone.chunks(BLOCK / 16) {
            // SAFETY: pairs of numbers are read as bytes.
            let bytes =
                unsafe { std::slice::from_raw_parts(part.as_ptr().cast(), size_of_val(part)) };
            out.section(GONE, 0, bytes)?;
        }
        // The files are read only now, because the process could write into them before it was
        // frozen.
        for (number, record) in files.iter().enumerate() {
            if record.carried != 0 {
                carried_files::carry(&mut out, self.locks, number, record)?;
            }
        }
        Ok((out, pieces.into_static()))
    }
}
