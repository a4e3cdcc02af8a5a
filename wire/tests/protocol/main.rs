//! The messages against recorded calls of real peers, against damaged input, and against the
//! recorded schema.

#![allow(clippy::expect_used, reason = "a helper of a test fails it by a panic")]

mod fixtures;
mod recorded_calls;
mod robustness;
mod schema;
