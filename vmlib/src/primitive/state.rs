//! The state of a task's library: what another process continues from.

use super::{Core, Shared};
use crate::{
    clock::now, link::Sockets, portable_state::LibraryState, requests::Requests, ring,
    started::StartedSends,
};
use std::sync::PoisonError;
use vm_endpoint::{Endpoint, EndpointConfig, Received};
use vm_wire::{Tid, task::Welcome};

impl Shared {
    /// The state from which another process continues in place of this one, unless another thread is
    /// within a call. `asks`: a request of this thread is under way, and will be repeated.
    pub(crate) fn state(&self, core: &Core, asks: bool) -> Option<LibraryState> {
        let is_started = |to: &Tid| core.started.is_half_sent(*to);
        let quiet = core.busy.iter().all(is_started) && (asks || !core.requests.is_open());
        quiet.then(|| LibraryState {
            welcome: Welcome {
                generation: core.endpoint.generation(),
                ..self.welcome.clone()
            },
            endpoint: core.endpoint.state(),
            request: core.requests.last(),
            strays: core.strays.iter().map(Received::state).collect(),
            started: core.started.state(),
        })
    }

    /// The task whose process was made of that.
    pub(crate) fn of(state: LibraryState, sockets: Sockets) -> Self {
        let config = EndpointConfig {
            me: state.welcome.tid,
            window_bytes: state.welcome.window_bytes,
            inbox_bytes: state.welcome.inbox_bytes,
            epoch: state.welcome.epoch,
            generation: state.welcome.generation,
            ring_after: Some(ring::ASK_AFTER),
        };
        let shared = Shared::new(state.welcome, sockets);
        let mut core = shared.core.lock().unwrap_or_else(PoisonError::into_inner);
        core.endpoint = Endpoint::of(now(), state.endpoint, config);
        core.requests = Requests::after(state.request);
        core.strays = state.strays.into_iter().map(Into::into).collect();
        core.started = StartedSends::of(state.started);
        drop(core);
        shared
    }
}
