//! Rewrites of graphs.

mod nodes;
mod partition;
mod rows;

pub use partition::partition_variables;
