//! Names of the folders and files of a store, and their meaning.
//!
//! `a1b2c3-t3.1/g1-e5/t3.17.image`: machine and master of the application, generation and epoch of
//! the checkpoint, task.
//!
//! A name is parsed, formatted, and compared with the text. A text that differs from the formatted
//! name is no name of the store. So no name has a separator, two spellings, or a meaning for the
//! file system.

use vm_wire::{HostId, MachineId, Tid};

/// The file that makes a folder a checkpoint.
pub const MANIFEST: &str = "manifest";
/// The manifest while it is written.
pub const MANIFEST_NEW: &str = "manifest.new";
/// Suffix of the name of a part while the part is written.
pub const NEW: &str = ".new";

/// The folder of the images of an application's suspended tasks.
pub const SUSPENDED: &str = "suspended";

/// Suffix of the index of an image; it replaces [`IMAGE`].
const INDEX: &str = ".index";
const IMAGE: &str = ".image";

/// The folder of an application, named by its master: `a1b2c3-t3.1`.
pub fn app(app: Tid) -> String {
    format!("{}-{app}", app.machine())
}

/// The application whose folder has this name.
pub fn parse_app(text: &str) -> Option<Tid> {
    let (machine, tid) = text.split_once('-')?;
    let machine = MachineId::from_bits(u32::from_str_radix(machine, 16).ok()?);
    let tid = Tid::parse(tid, machine).ok()?;
    (is_task(tid) && app(tid) == text).then_some(tid)
}

/// The file name of the image of a task of `app`: `t3.17.image`, or `00beef-t3.17.image` if the
/// task was spawned in another machine than the master of `app`.
pub fn image(app: Tid, tid: Tid) -> String {
    if tid.machine() == app.machine() {
        format!("{tid}{IMAGE}")
    } else {
        format!("{}-{tid}{IMAGE}", tid.machine())
    }
}

/// Whether this is the name of a part.
pub fn is_part(text: &str) -> bool {
    let Some(tid) = text.strip_suffix(IMAGE) else {
        return false;
    };
    let here = MachineId::from_bits(0);
    parse_app(tid).is_some()
        || Tid::parse(tid, here).is_ok_and(|tid| is_task(tid) && image(tid, tid) == text)
}

/// The generation of the application, if `text` names the image of a suspended task
/// ([`vm_wire::checkpoint::suspended_image`]).
pub fn parse_suspended(text: &str) -> Option<u32> {
    let (rest, number) = text.strip_suffix(IMAGE)?.rsplit_once("-n")?;
    let (rest, incarnation) = rest.rsplit_once("-i")?;
    let (task, generation) = rest.rsplit_once("-g")?;
    let (number, incarnation): (u64, u32) = (number.parse().ok()?, incarnation.parse().ok()?);
    let generation: u32 = generation.parse().ok()?;
    let again = format!("{task}-g{generation}-i{incarnation}-n{number}{IMAGE}");
    (is_part(&format!("{task}{IMAGE}")) && again == text).then_some(generation)
}

/// The index of the image of this name: `t3.17.index`.
pub(crate) fn index(image: &str) -> Option<String> {
    let task = image.strip_suffix(IMAGE)?;
    Some(format!("{task}{INDEX}"))
}

/// Whether the folder of a checkpoint may hold a file of this name, finished or not.
pub(crate) fn is_ours(text: &str) -> bool {
    let done = text.strip_suffix(NEW).unwrap_or(text);
    let index_of = |task: &str| is_part(&format!("{task}{IMAGE}"));
    text == MANIFEST
        || text == MANIFEST_NEW
        || is_part(done)
        || done.strip_suffix(INDEX).is_some_and(index_of)
}

/// Whether `tid` can be a task: a tid without a host names no task, and sequence 0 is a daemon.
pub(crate) fn is_task(tid: Tid) -> bool {
    tid.host() != HostId::NONE && tid.sequence() != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_wire::CheckpointId;

    const HERE: MachineId = MachineId::from_bits(0xa1b2c3);

    #[test]
    fn what_is_shown_is_read_back() {
        let master = Tid::new(HERE, HostId(3), 1);
        assert_eq!(app(master), "a1b2c3-t3.1");
        assert_eq!(parse_app("a1b2c3-t3.1"), Some(master));
        let id = CheckpointId::new(1, 5);
        assert_eq!(id.to_string(), "g1-e5");
        assert_eq!(CheckpointId::parse("g1-e5"), Some(id));
        let last = CheckpointId::new(u32::MAX, u32::MAX);
        assert_eq!(CheckpointId::parse(&last.to_string()), Some(last));
    }

    #[test]
    fn checkpoints_are_ordered_by_generation_then_epoch() {
        let id = CheckpointId::new;
        assert!(id(1, 9) < id(2, 1) && id(2, 9) < id(2, 10));
    }

    #[test]
    fn parts_are_named_by_task() {
        let master = Tid::new(HERE, HostId(3), 1);
        let other = Tid::new(MachineId::from_bits(0xbeef), HostId(3), 17);
        let names = [
            image(master, Tid::new(HERE, HostId(3), 17)),
            image(master, other),
        ];
        assert_eq!(names, ["t3.17.image", "00beef-t3.17.image"]);
        assert!(names.iter().all(|name| is_part(name) && is_ours(name)));
        assert!(is_ours("t3.17.image.new") && is_ours("manifest.new"));
        let indexes = names.map(|name| index(&name));
        let expected = [Some("t3.17.index"), Some("00beef-t3.17.index")];
        assert_eq!(indexes.each_ref().map(Option::as_deref), expected);
        let indexes = indexes.into_iter().flatten();
        assert!(indexes.into_iter().all(|it| is_ours(&it) && !is_part(&it)));
        assert!(is_ours("t3.17.index.new"));
    }

    #[test]
    fn images_of_suspended_tasks_are_named_by_task_and_suspension() {
        let master = Tid::new(HERE, HostId(3), 1);
        let other = Tid::new(MachineId::from_bits(0xbeef), HostId(3), 17);
        for tid in [master, other] {
            let name = vm_wire::checkpoint::suspended_image(master, tid, 2, 4, 12);
            assert_eq!(parse_suspended(&name), Some(2), "{name}");
            assert!(!is_part(&name) && !is_ours(&name), "{name}");
        }
        for text in [
            "t3.17.image",
            "t3.17-g0-i4-n12",
            "t3.17-g0-i4.image",
            "t3.17-g00-i4-n12.image",
            "t3.17-g0-i+4-n12.image",
            "../t3.17-g0-i4-n12.image",
            "t3.17-g0-i4-n12.image.new",
            "-g0-i4-n12.image",
        ] {
            assert_eq!(parse_suspended(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_name_of_the_store_is_refused() {
        for text in [
            "",
            ".",
            "..",
            "/",
            "../t3.1",
            "a1b2c3",
            "a1b2c3-",
            "a1b2c3-t3",
            "A1b2c3-t3.1",
            "a1b2c3-t3.01",
            "a1b2c3-t+3.1",
            "1a1b2c3-t3.1",
            "a1b2c3-t3.1@000001",
            "a1b2c3-t3.0",
            "a1b2c3-t0.1",
            "a1b2c3-t3.1/",
            "+1b2c3-t3.1",
            "a1b2c3-t3.1\0",
        ] {
            assert_eq!(parse_app(text), None, "{text:?}");
            assert!(!is_ours(&format!("{text}.image")), "{text:?}");
        }
        for text in [
            "",
            "g1",
            "g1-e",
            "g01-e5",
            "g+1-e5",
            "g1-e5 ",
            "g1-e5/..",
            "g1-e4294967296",
        ] {
            assert_eq!(CheckpointId::parse(text), None, "{text:?}");
        }
        for text in [
            "",
            ".image",
            "t3.17",
            "t3.17.image/",
            "../t3.17.image",
            "t3.017.image",
            "t3.0.image",
            "t3.17@00beef.image",
            "t3.17.image.new.new",
            ".index",
            "h2.index",
            "t3.017.index",
            "t3.17.image.index",
            "manifest.new.new",
            "notes",
        ] {
            assert!(!is_ours(text), "{text:?}");
        }
        assert!(!is_part("t3.17.image.new") && !is_part("manifest"));
    }
}
