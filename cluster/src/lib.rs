//! The distributed side of graphmill: the master and worker services, and the server that carries them.
//!
//! A [`Server`] is one task of a cluster. Clients reach its master over gRPC; [`grpc`] is the seam to the gRPC library.

mod accept;
mod aggregate;
mod chief;
mod cluster_spec;
mod collective;
mod config;
pub mod control;
mod cost_graph;
mod defaults;
pub mod encoded;
mod exchange;
pub mod grpc;
mod heavy;
mod late_reads;
mod local;
mod long_steps;
mod master;
pub mod network;
mod peers;
mod random;
mod records;
mod remote_functions;
mod request_ids;
mod running;
mod server;
mod services;
mod shared_memory;
mod stream;
mod task;
mod waits;
mod worker;

pub use cluster_spec::ClusterSpec;
pub use config::{MAX_CPU_DEVICES, ServerConfig};
pub use graphmill_runtime::DeviceSpec;
pub use local::Local;
pub use random::Random;
pub use server::Server;
