//! The distributed TensorFlow protocol: its protobuf messages and the paths of its methods.
//!
//! Types carry the names of the schema, one module a package and one module for the types nested
//! in a message: [`tensorflow::GraphDef`], [`tensorflow::attr_value::Value`],
//! [`tensorflow::error::Code`]. Maps are `BTreeMap`s, so that encoding a message twice gives the
//! same bytes, and `bytes` fields are [`prost::bytes::Bytes`], which share the received buffer.
//!
//! Decoding is safe on any input: it ends in an error or a message, allocates in proportion to the
//! input, and refuses messages nested deeper than 100 levels. Fields that the
//! schema does not know are skipped.

mod generated {
    #![allow(missing_docs, unused_qualifications, clippy::all)]

    include!(concat!(env!("OUT_DIR"), "/all.rs"));
}
pub mod service;

pub use generated::tensorflow;
pub use prost_types::Any;

/// The schema: a `FileDescriptorSet` of all messages, for whoever reads or writes their text form.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
