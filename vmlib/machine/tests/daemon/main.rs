//! Several daemons as one machine: what tasks and consoles see of spawns, messages, exits, notify,
//! signals, groups, hosts that come and go, moves, checkpoints, suspensions, and of requests that make no sense.

mod answers;
mod bad_input;
mod belongings;
mod checkpoint_requests;
mod checkpoints;
mod consoles;
mod coordinators;
mod drain;
mod ends;
mod groups;
mod hosts;
mod in_calls;
mod lives;
mod moves;
mod portable;
mod recovery;
mod released;
mod restart;
mod spawns;
mod stores;
mod suspend;
mod suspended;
mod waits;
mod world;
