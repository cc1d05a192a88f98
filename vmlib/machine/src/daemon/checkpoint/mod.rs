//! Checkpoints of applications, as the daemons of their tasks and of their coordinators make them.
//!
//! Each table has a file of its own, which does not import `Daemon`; the struct in that file alone
//! changes the table:
//!
//! | file | table |
//! |---|---|
//! | `requests` | requests for checkpoints that were made on this host |
//! | `policies` | checkpoints that this daemon makes without a request |
//! | `preparations` | cuts that hosts prepare, at the daemon of the coordinator |
//! | `holdings` | tasks that are frozen at their safe points before a cut |
//! | `cuts` | cuts that are under way |
//! | `part` | the part of one task in a cut |
//! | `commits` | the commit of a checkpoint on all hosts |
//! | `copies` | parts that are sent between the stores of hosts |
//! | `finished` | checkpoints that are removed, since their application has ended well |
//!
//! In the steps, other subsystems have a part. No file imports from a file of steps:
//!
//! | file | steps |
//! |---|---|
//! | `request_steps` | requests and policies |
//! | `prepare_steps` | portable tasks come to their safe points before a cut |
//! | `cut_steps` | a cut of an application, from its log entry to its end |
//! | `part_steps` | the image of one task of a cut |
//! | `coordinator_steps` | what the coordinator requests, and what it is told |
//! | `store_steps` | commits in the stores of hosts, and parts that are sent between them |

mod commits;
mod coordinator_steps;
mod copies;
mod cut_steps;
mod cuts;
mod finished;
mod holdings;
mod part;
mod part_steps;
mod policies;
mod preparations;
mod prepare_steps;
mod request_steps;
mod requests;
mod store_steps;

/// The tables of checkpoints. Each table is private to the struct that owns it.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    pub requests: requests::CheckpointRequests,
    pub policies: policies::Policies,
    pub finished: finished::Finished,
    pub preparations: preparations::Preparations,
    pub holdings: holdings::Holdings,
    pub cuts: cuts::Cuts,
    pub copies: copies::Copies,
}
