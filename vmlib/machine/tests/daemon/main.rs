//! Several daemons as one machine: spawns, messages, exits, notifications, signals, groups, joining
//! and leaving hosts, moves, checkpoints and suspensions as tasks and consoles see them, and
//! malformed requests.

mod answers;
mod bad_input;
mod belongings;
mod checkpoint_requests;
mod checkpoints;
mod consoles;
mod contexts;
mod coordinators;
mod directs;
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
mod rings;
mod spawns;
mod stores;
mod suspend;
mod suspended;
mod waits;
mod world;
