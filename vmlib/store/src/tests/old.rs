//! Which checkpoints a prune removes, and which stay.

use super::{APP, THIRD, folder::store, id, save, write};
use crate::{CheckpointId, Depth, Pruned, State, Store, name};
use std::fs;
use vm_wire::Tid;

fn ids(store: &Store) -> Vec<CheckpointId> {
    store.ids(APP).expect("a store")
}

fn prune(store: &Store, keep: usize, depth: Depth) -> Vec<CheckpointId> {
    let Pruned { removed, failed } = store.prune(APP, keep, depth).expect("a store");
    assert!(failed.is_empty(), "{failed:?}");
    removed
}

#[test]
fn the_newest_stay_and_at_least_one() {
    let (_folder, store) = store();
    for epoch in 1..=5 {
        save(&store, id(epoch)).expect("a checkpoint");
    }
    save(&store, CheckpointId::new(2, 1)).expect("of a later generation");
    assert_eq!(prune(&store, 9, Depth::Hashes), []);
    assert_eq!(prune(&store, 3, Depth::Hashes), [id(3), id(2), id(1)]);
    assert_eq!(prune(&store, 3, Depth::Hashes), []);
    assert_eq!(prune(&store, 0, Depth::Lengths), [id(5), id(4)]);
    assert_eq!(ids(&store), [CheckpointId::new(2, 1)]);
    store.verify(APP, CheckpointId::new(2, 1)).expect("whole");
}

#[test]
fn what_was_given_up_goes_and_what_is_being_written_stays() {
    let (_folder, store) = store();
    let name = name::image(APP, APP);
    for epoch in [1, 3, 5] {
        let writer = store.begin(APP, id(epoch)).expect("a checkpoint");
        write(&writer, id(epoch), &name).expect("a part");
        std::mem::forget(writer.part(&name::image(APP, THIRD), "alpha", None));
    }
    assert_eq!(prune(&store, 1, Depth::Hashes), [], "nothing is committed");
    save(&store, id(2)).expect("a checkpoint");
    save(&store, id(4)).expect("a checkpoint");
    assert_eq!(prune(&store, 2, Depth::Hashes), [id(3), id(1)]);
    assert_eq!(ids(&store), [id(2), id(4), id(5)]);
}

#[test]
fn a_damaged_one_does_not_count_among_those_that_stay() {
    let (_folder, store) = store();
    for epoch in 1..=4 {
        save(&store, id(epoch)).expect("a checkpoint");
    }
    for epoch in [3, 4] {
        let part = store.folder(APP, id(epoch)).join(name::image(APP, THIRD));
        let mut bytes = fs::read(&part).expect("a part");
        bytes[0] ^= 1;
        fs::write(&part, bytes).expect("a part");
    }
    assert_eq!(prune(&store, 2, Depth::Hashes), [], "two are good");
    assert_eq!(prune(&store, 1, Depth::Hashes), [id(1)]);
    let good = store.last_good(APP, Depth::Hashes).expect("a store").good;
    assert_eq!(good.map(|(good, _)| good), Some(id(2)));
    assert_eq!(ids(&store), [id(2), id(3), id(4)]);
}

#[test]
fn what_is_not_of_the_store_stays_and_is_reported() {
    let (_folder, store) = store();
    for epoch in 1..=3 {
        save(&store, id(epoch)).expect("a checkpoint");
    }
    let notes = store.folder(APP, id(1)).join("notes");
    fs::write(&notes, "of the user").expect("a file");
    let Pruned { removed, failed } = store.prune(APP, 1, Depth::Hashes).expect("a store");
    assert_eq!(removed, [id(2)]);
    let [(left, why)] = &failed[..] else {
        panic!("{failed:?}");
    };
    assert_eq!(*left, id(1));
    assert!(why.to_string().contains("not of the store"), "{why}");
    assert!(notes.exists());
    let state = &store.list().expect("a store")[0].state;
    assert!(matches!(state, State::Unfinished { files: 0 }), "{state:?}");
}

#[test]
fn an_application_that_is_forgotten_leaves_nothing_and_can_be_saved_again() {
    let (_folder, store) = store();
    for epoch in [1, 2] {
        save(&store, id(epoch)).expect("it is saved");
    }
    store.begin(APP, id(3)).expect("one that is not finished");
    store.forget(Tid(APP.0 + 1)).expect("there is none of it");
    assert_eq!(store.list().expect("a list").len(), 3);
    store.forget(APP).expect("it can be removed");
    assert_eq!(store.list().expect("a list").len(), 0);
    assert_eq!(fs::read_dir(store.root()).expect("the store").count(), 0);
    save(&store, id(4)).expect("it can be saved again");
}
