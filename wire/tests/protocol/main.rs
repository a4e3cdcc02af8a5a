//! The messages against recorded calls of real peers, against damaged input, and against the
//! recorded schema.

mod fixtures;
mod recorded_calls;
mod robustness;
mod schema;
