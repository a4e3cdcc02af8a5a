//! Import, functions, pruning and frames, with good graphs and with bad ones.

mod build;
mod frames;
mod functions;
mod import;
mod mutation;
mod prune;
