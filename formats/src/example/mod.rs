//! Taking apart `tf.Example` messages into tensors.
//!
//! Messages are walked where they lie; only the features that are asked for are looked into.

mod batch;
mod column;
mod layout;
mod sequence;
mod wire;

pub use batch::{Parsed, parse_batch, parse_single};
pub use layout::{Dense, Layout, Ragged, Sparse};
pub use sequence::{DenseList, ParsedSequences, SequenceLayout, parse_sequences};
