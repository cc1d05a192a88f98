//! Delivery across real hosts whose cables are cut and whose connections are destroyed.
//!
//! With `VM_RING_SECONDS=60 cargo test --test delivery` the ring runs for a full minute.

use std::time::{Duration, Instant};
use vm_integration::cluster::{Cluster, wait_for};
use vm_wire::agreed::ExitStatus;

const RING_SECONDS: u64 = 12;
const LARGEST: &str = "16777216";

#[test]
fn a_ring_of_eight_loses_and_doubles_nothing_while_cables_are_cut_and_connections_destroyed() {
    let Some(cluster) = Cluster::in_namespaces(3) else {
        return;
    };
    let seconds = std::env::var("VM_RING_SECONDS")
        .ok()
        .map_or(RING_SECONDS, |text| {
            text.parse().expect("VM_RING_SECONDS is a number")
        });
    let network = cluster.network.as_ref().expect("a cluster in namespaces");
    let mut client = cluster.nodes[0].client();
    client.run("vmtest", &["ring", &seconds.to_string(), LARGEST]);
    let start = Instant::now();
    let mut cuts = 0;
    while start.elapsed() < Duration::from_secs(seconds) {
        let victim = cuts % 3;
        if cuts % 2 == 0 {
            // Longer than TCP's first retransmission time, shorter than a lease.
            network.set_cable(victim, false);
            pause(Duration::from_millis(400));
            network.set_cable(victim, true);
            pause(Duration::from_millis(600));
        } else {
            network.destroy_connections(victim);
            pause(Duration::from_secs(1));
        }
        cuts += 1;
    }
    let finished = client.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
    println!("{cuts} cuts; {}", finished.stdout);
    assert!(
        finished
            .stdout
            .contains("none lost, doubled or out of order")
    );
    assert!(cuts as u64 >= seconds / 2);
}

/// The interval between faults. No event is awaited here.
fn pause(length: Duration) {
    let start = Instant::now();
    wait_for("the next fault", Duration::from_secs(60), || {
        (start.elapsed() >= length).then_some(())
    });
}
