//! Routing of frames: between tasks of this host, and over the links to other hosts.
//!
//! | file | concern |
//! |---|---|
//! | `traffic` | the route of each frame: the hot path, and frames that cannot be routed at once |
//! | `link`, `links` | a link to another host, and the steps when it is made or broken |

mod link;
mod links;
mod traffic;

use super::absent::Absent;
use crate::route::Held;
use link::Link;
use std::collections::BTreeMap;
use vm_wire::HostId;

/// The links of this host, and the frames that wait for a route.
#[derive(Debug, Default)]
pub(super) struct Routing {
    /// Frames whose receiver the local log does not know yet.
    pub held: Held,
    /// The links to other hosts, by host.
    pub links: BTreeMap<HostId, Link>,
    /// Frames that wait for links, by host.
    pub absent_links: BTreeMap<HostId, Absent>,
    /// Bytes of the frames that wait for links, or for local tasks that have not enrolled
    /// or are frozen.
    pub absent_bytes: usize,
    /// Whether the endpoint may have received a message.
    pub mail: bool,
}
