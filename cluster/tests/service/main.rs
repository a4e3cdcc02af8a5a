//! The services over real sockets.

mod arguments;
mod framing;
mod harness;
mod kernels;
mod sessions;
mod steps;
