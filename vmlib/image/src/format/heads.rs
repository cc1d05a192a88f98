//! What an image tells before its memory comes: the first five sections, each checked as it
//! arrives against what came before it.

use std::borrow::Cow;

use crate::{
    format::error::Impossible,
    raw::records::{
        self, CPU, Cpu, FACTS, FILES, Facts, FileRecord, MAPPINGS, Mapping, NAMES, Name, Plain,
        SPACE, THREADS, ThreadRecord,
    },
};

/// What an image tells before its memory comes. Every [`Name`] in it is inside the names.
#[derive(Clone, Debug)]
pub struct Heads {
    /// Of an image with early rounds.
    cpu: Option<Cpu>,
    facts: Facts,
    names: Vec<u8>,
    threads: Vec<ThreadRecord>,
    files: Vec<FileRecord>,
    mappings: Vec<Mapping>,
}

impl Heads {
    pub(super) fn empty() -> Self {
        Heads {
            cpu: None,
            facts: Facts::from_prefix(&[0; Facts::LEN]).expect("as many bytes as it has"),
            names: Vec::new(),
            threads: Vec::new(),
            files: Vec::new(),
            mappings: Vec::new(),
        }
    }

    /// The host, and where the process resumes.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The threads.
    pub fn threads(&self) -> &[ThreadRecord] {
        &self.threads
    }

    /// The open descriptors.
    pub fn files(&self) -> &[FileRecord] {
        &self.files
    }

    /// The mappings, by address; no two overlap.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The bytes of a name; none of a name that is not of this image and outside of its names.
    pub fn name_bytes(&self, name: Name) -> &[u8] {
        let at = name.at as usize;
        self.names
            .get(at..at.saturating_add(name.len as usize))
            .unwrap_or_default()
    }

    /// A name as text; what is not UTF-8 is replaced.
    pub fn name(&self, name: Name) -> Cow<'_, str> {
        String::from_utf8_lossy(self.name_bytes(name))
    }

    /// Whether the image has what this file held: with this record or another of the same file.
    pub fn is_carried(&self, file: &FileRecord) -> bool {
        let same_name = |one: &FileRecord| self.name_bytes(one.name) == self.name_bytes(file.name);
        let same = |one: &FileRecord| one.is_same_file(file) && same_name(one);
        self.files.iter().any(|one| one.carried == 1 && same(one))
    }

    /// Takes over the content of one of the first five sections. Its length was checked.
    pub(super) fn take(
        &mut self,
        kind: u16,
        content: &[u8],
        page_size: u64,
    ) -> Result<(), Impossible> {
        match kind {
            CPU => self.cpu = Cpu::from_prefix(content),
            FACTS => {
                self.facts = Facts::from_prefix(content).expect("the length was checked");
                if self.cpu.is_some_and(|cpu| cpu != self.facts.cpu) {
                    return Err(Impossible::TwoProcessors);
                }
            }
            NAMES => {
                self.names = content.to_vec();
                self.check_facts()?;
            }
            THREADS => {
                self.threads = records(content);
                self.check_threads()?;
            }
            FILES => {
                self.files = records(content);
                self.check_files()?;
            }
            // The mappings of an early round have no names, and are replaced by later ones.
            SPACE => {
                self.names = Vec::new();
                self.mappings = records(content);
                self.check_mappings(page_size)?;
            }
            MAPPINGS => {
                self.mappings = records(content);
                self.check_mappings(page_size)?;
                self.check_pipes()?;
            }
            _ => unreachable!("only heads come here"),
        }
        Ok(())
    }

    /// Whether all of these addresses belong to one mapping.
    pub(super) fn in_one_mapping(&self, start: u64, len: u64) -> bool {
        let end = start.checked_add(len);
        let mapping = self.mapping_at(start);
        mapping.is_some_and(|mapping| end.is_some_and(|end| end <= mapping.end))
    }

    /// The mapping that begins there, or is the last to begin before.
    pub(super) fn mapping_at(&self, address: u64) -> Option<&Mapping> {
        let behind = self.mappings.partition_point(|one| one.start <= address);
        behind.checked_sub(1).map(|at| &self.mappings[at])
    }

    fn check_name(&self, record: usize, name: Name) -> Result<(), Impossible> {
        let end = u64::from(name.at) + u64::from(name.len);
        if end > self.names.len() as u64 {
            return Err(Impossible::Name(record));
        }
        Ok(())
    }

    fn check_facts(&self) -> Result<(), Impossible> {
        let facts = &self.facts;
        for name in [
            facts.kernel,
            facts.host,
            facts.exe,
            facts.library,
            facts.command,
            facts.dir,
            facts.comm,
        ] {
            self.check_name(0, name)?;
        }
        match facts.ordinary <= 1 && facts.reserved == 0 {
            true => Ok(()),
            false => Err(Impossible::Reserved),
        }
    }

    fn check_threads(&self) -> Result<(), Impossible> {
        let (said, found) = (self.facts.threads, self.threads.len());
        if said as usize != found || found == 0 {
            return Err(Impossible::Threads { said, found });
        }
        if self.threads.iter().any(|thread| thread.reserved != 0) {
            return Err(Impossible::Reserved);
        }
        Ok(())
    }

    fn check_files(&self) -> Result<(), Impossible> {
        for (number, file) in self.files.iter().enumerate() {
            self.check_name(number, file.name)?;
            // A duplicate follows the record that opens the file, and that one is no duplicate:
            // so the restored process, which opens them in their order, finds each original open.
            let is_first = |other: &&FileRecord| other.fd == file.original;
            let original = self.files[..=number].iter().find(is_first);
            let good = (records::FD_FILE..=records::FD_KERNEL).contains(&file.kind)
                && i32::try_from(file.fd).is_ok()
                && file.close_on_exec <= 1
                && original.is_some_and(|original| original.original == original.fd)
                && self.may_be_carried(number, file);
            if !good {
                return Err(Impossible::File(number));
            }
        }
        let mut numbers: Vec<u32> = self.files.iter().map(|file| file.fd).collect();
        numbers.sort_unstable();
        match numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Impossible::FileTwice(pair[0])),
            None => Ok(()),
        }
    }

    /// Only what opens a regular file is carried; one without a name with its first record.
    fn may_be_carried(&self, number: usize, file: &FileRecord) -> bool {
        let is_first = file.original == file.fd;
        let is_carried = |other: &FileRecord| other.carried == 1 && other.is_same_file(file);
        let has_content = || self.files[..=number].iter().any(is_carried);
        match (file.carried, file.kind) {
            (0, records::FD_UNNAMED) => !is_first || has_content(),
            (0, _) => true,
            (1, records::FD_FILE | records::FD_UNNAMED) => {
                is_first && file.is_regular() && file.size < 1 << records::OFFSET_BITS
            }
            _ => false,
        }
    }

    fn check_mappings(&self, page_size: u64) -> Result<(), Impossible> {
        const PROTECTIONS: u32 = 7;
        const FLAGS: u32 = records::GROWS_DOWN | records::DENSE | records::FULL;
        let mut end = 0;
        for (number, mapping) in self.mappings.iter().enumerate() {
            self.check_name(number, mapping.name)?;
            let good = mapping.start < mapping.end
                && mapping.start % page_size == 0
                && mapping.end % page_size == 0
                && mapping.kind <= records::FILE
                && mapping.prot & !PROTECTIONS == 0
                && mapping.flags & !FLAGS == 0;
            if !good {
                return Err(Impossible::Mapping(number));
            }
            if mapping.start < end {
                return Err(Impossible::MappingOrder(number));
            }
            end = mapping.end;
        }
        Ok(())
    }

    fn check_pipes(&self) -> Result<(), Impossible> {
        let outside = |file: &FileRecord| {
            let len = u64::from(file.content_len);
            file.kind == records::FD_PIPE && len > 0 && !self.in_one_mapping(file.content, len)
        };
        match self.files.iter().position(outside) {
            Some(number) => Err(Impossible::Pipe(number)),
            None => Ok(()),
        }
    }
}

/// Bytes as records; their length is a multiple.
fn records<T: Plain>(content: &[u8]) -> Vec<T> {
    content
        .chunks_exact(T::LEN)
        .map(|bytes| T::from_prefix(bytes).expect("as many bytes as it has"))
        .collect()
}
