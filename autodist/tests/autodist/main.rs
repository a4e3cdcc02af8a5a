//! Strategies end to end: graphs that TensorFlow made, resource files, strategy files.

mod builders;
mod compiled;
mod graph_items;
mod split_graphs;
mod strategy_files;
mod support;
