//! Checkpoints of applications, as the daemons of their tasks and of their coordinators make them.
//!
//! | file | concern |
//! |---|---|
//! | `requests` | requests for checkpoints that were made on this host |
//! | `policies` | checkpoints that this daemon makes without a request |
//! | `finished` | checkpoints that are removed, since their application has ended well |
//! | `preparations` | cuts that hosts prepare, at the daemon of the coordinator |
//! | `holdings` | tasks that are frozen at their safe points before a cut |
//! | `copies` | parts that are sent between the stores of hosts |
//! | `commits` | the commit of a checkpoint on all hosts |
//! | `request_steps` | the steps of requests and policies in which other subsystems have a part |
//! | `prepare_steps` | portable tasks come to their safe points before a cut |
//! | `cut_steps` | a cut of an application, from its log entry to its end |
//! | `part_steps` | the image of one task of a cut |

mod commits;
mod copies;
pub(super) mod cut_steps;
mod finished;
mod holdings;
pub(super) mod part_steps;
mod policies;
mod preparations;
mod prepare_steps;
mod request_steps;
mod requests;

/// What this daemon knows of checkpoints. Each table is private to the struct that owns it.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    pub requests: requests::CheckpointRequests,
    pub policies: policies::Policies,
    pub finished: finished::Finished,
    pub preparations: preparations::Preparations,
    pub holdings: holdings::Holdings,
    pub copies: copies::Copies,
}
