//! The first sections of an image, before its memory: each is checked against those before it when
//! it arrives.

use std::borrow::Cow;

use crate::{
    format::error::Impossible,
    raw::records::{
        self, CPU, Cpu, FACTS, FILES, Facts, FileRecord, MAPPINGS, Mapping, NAMES, Name, Plain,
        SPACE, THREADS, ThreadRecord,
    },
};

/// The content of an image's first sections. Every [`Name`] in its records lies inside the names.
#[derive(Clone, Debug)]
pub struct Heads {
    /// The processor, in an image with early rounds only.
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

    /// The facts: the processor, the host, and the address at which the process resumes.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The records of the threads, at least one.
    pub fn threads(&self) -> &[ThreadRecord] {
        &self.threads
    }

    /// The records of the open descriptors. An original comes before its duplicates.
    pub fn files(&self) -> &[FileRecord] {
        &self.files
    }

    /// The mappings in ascending order of addresses; no two overlap.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The bytes of a name. A name of another image may lie outside of these names: then it is
    /// empty.
    pub fn name_bytes(&self, name: Name) -> &[u8] {
        let at = name.at as usize;
        self.names
            .get(at..at.saturating_add(name.len as usize))
            .unwrap_or_default()
    }

    /// The name as text; bytes that are not UTF-8 are replaced by U+FFFD.
    pub fn name(&self, name: Name) -> Cow<'_, str> {
        String::from_utf8_lossy(self.name_bytes(name))
    }

    /// Whether the image carries the content of this file, under this record or under another
    /// record of the same file.
    pub fn is_carried(&self, file: &FileRecord) -> bool {
        let same_name = |one: &FileRecord| self.name_bytes(one.name) == self.name_bytes(file.name);
        let same = |one: &FileRecord| one.is_same_file(file) && same_name(one);
        self.files.iter().any(|one| one.carried == 1 && same(one))
    }

    /// Takes over the content of one of the first sections. The caller has checked its length.
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
            // A SPACE has no names, and a later SPACE or MAPPINGS replaces its mappings.
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

    /// Whether `len` bytes from `start` lie inside one mapping.
    pub(super) fn in_one_mapping(&self, start: u64, len: u64) -> bool {
        let end = start.checked_add(len);
        let mapping = self.mapping_at(start);
        mapping.is_some_and(|mapping| end.is_some_and(|end| end <= mapping.end))
    }

    /// The last mapping that begins at or before the address.
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
            // The restored process opens the files in the order of their records. The process must
            // find each original open before it duplicates it, so an original comes first and is no
            // duplicate itself.
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

    /// Whether the mark "carried" of this record is allowed. Only the first record of a regular
    /// file carries content; a file without a name must be carried by its first record.
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

/// Bytes as records. The length is a multiple of a record's.
fn records<T: Plain>(content: &[u8]) -> Vec<T> {
    content
        .chunks_exact(T::LEN)
        .map(|bytes| T::from_prefix(bytes).expect("as many bytes as it has"))
        .collect()
}
