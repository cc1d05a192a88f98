//! Checkpoints of applications, as the daemons of their tasks and of their coordinators make them.
//!
//! | file | concern |
//! |---|---|
//! | `requests` | requests for checkpoints that were made on this host |
//! | `prepare` | portable tasks come to their safe points before a cut |
//! | `cut` | a cut of an application, from its log entry to its end |
//! | `part` | the image of one task of a cut |
//! | `copies` | parts that are sent between the stores of hosts, and commits on all of them |

pub(super) mod copies;
pub(super) mod cut;
pub(super) mod part;
pub(super) mod prepare;
pub(super) mod requests;
