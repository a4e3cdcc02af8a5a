//! The services over real sockets.
// Helpers of tests fail as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod arguments;
mod callables;
mod framing;
mod harness;
mod kernels;
mod listening;
#[path = "../support/messages.rs"]
mod messages;
mod sessions;
mod steps;
