//! Tests of the store as a whole: on a simulated disk whose power is cut, and on the disk of this
//! host.

mod compressed;
mod copies;
mod cuts;
mod damage;
mod disk;
mod folder;
pub mod image;
mod increments;
mod old;
mod race;

use crate::{
    CheckpointId, CheckpointWriter, Disk, KeptChunks, Manifest, Part, Policy, SavedGroup,
    SavedTask, Store, StoreError, name,
};
use vm_wire::{Body, HostId, MachineId, Tid, peer::KeepOrder};

pub const MACHINE: MachineId = MachineId::from_bits(0xa1b2c3);
pub const APP: Tid = Tid::new(MACHINE, HostId(3), 1);
/// A task of the application.
pub const THIRD: Tid = Tid::new(MACHINE, HostId(2), 9);
/// The tasks of [`save`]. The second task is of another machine.
pub const TASKS: [Tid; 3] = [
    APP,
    Tid::new(MachineId::from_bits(0xbeef), HostId(1), 7),
    THIRD,
];

pub fn id(epoch: u32) -> CheckpointId {
    CheckpointId::new(1, epoch)
}

/// The content of a part of a checkpoint, different for each part.
pub fn content(id: CheckpointId, name: &str) -> Vec<u8> {
    let text = format!("{name} of {id}, ");
    text.repeat(40).into_bytes()
}

pub fn write<D: Disk>(
    writer: &CheckpointWriter<D>,
    id: CheckpointId,
    name: &str,
) -> Result<Part, StoreError> {
    let mut part = writer.part(name, "alpha", None)?;
    part.copy(&mut content(id, name).as_slice())?;
    part.finish()
}

/// Writes all parts of a checkpoint. Returns its manifest.
pub fn parts<D: Disk>(
    writer: &CheckpointWriter<D>,
    id: CheckpointId,
) -> Result<Manifest, StoreError> {
    let mut tasks = Vec::new();
    for tid in TASKS {
        tasks.push(SavedTask {
            tid,
            host: "alpha".to_owned(),
            arch: "x86_64".to_owned(),
            incarnation: 2,
            requester: Tid::daemon(MACHINE, HostId(1)),
            request: 5,
            index: 0,
            program: "hello".to_owned(),
            image: write(writer, id, &name::image(APP, tid))?,
            freeze_us: 30_000,
            unacknowledged: 2,
            belongings: Body::from(vec![1, 2, 3]),
        });
    }
    Ok(Manifest {
        machine: MACHINE,
        app: APP,
        program: "hello".to_owned(),
        generation: id.generation,
        epoch: id.epoch,
        index: 7,
        taken_ms: 1_700_000_000_000 + u64::from(id.epoch),
        took_us: 1_500_000,
        policy: Policy::default(),
        tasks,
        groups: vec![SavedGroup {
            name: "all/of them".to_owned(),
            version: 3,
            members: vec![(0, APP)],
        }],
        kept: vec![KeptChunks {
            host: HostId(2),
            order: KeepOrder {
                from: Tid::new(MACHINE, HostId(2), 4),
                to: APP,
                last: 7,
            },
            chunks: vec![Body::from(vec![4, 5, 6])],
        }],
        context: 0,
    })
}

/// Writes and commits a whole checkpoint.
pub fn save<D: Disk>(store: &Store<D>, id: CheckpointId) -> Result<Manifest, StoreError> {
    let writer = store.begin(APP, id)?;
    let manifest = parts(&writer, id)?;
    writer.commit(&manifest)?;
    Ok(manifest)
}
