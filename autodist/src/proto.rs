//! The messages of strategy files and graph items, as they are on the wire.

mod generated {
    #![allow(missing_docs, unused_qualifications, clippy::all)]

    include!(concat!(env!("OUT_DIR"), "/autodist.rs"));
}

pub use generated::autodist::proto::*;
