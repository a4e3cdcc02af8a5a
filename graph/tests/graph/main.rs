//! Import, functions, pruning and frames, with good graphs and with bad ones.

// The helpers run inside tests alone, where a panic is a failed test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod build;
mod frames;
mod functions;
mod import;
mod lower;
mod mutation;
mod partition;
mod partition_recorded;
mod placement;
mod prune;
mod recorded;
