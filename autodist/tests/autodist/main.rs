//! Strategies end to end: graphs that TensorFlow made, resource files, strategy files.

// The helpers run inside tests alone, where a panic is a failed test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod builders;
mod compiled;
mod graph_items;
mod split_graphs;
mod strategy_files;
mod support;
mod transformed_graphs;
