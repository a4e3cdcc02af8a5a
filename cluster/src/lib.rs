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
mod defaults;
mod encoded;
mod exchange;
pub mod grpc;
mod heavy;
mod late_reads;
mod long_steps;
mod master;
mod peers;
mod random;
mod request_ids;
mod running;
mod server;
mod services;
mod shared_memory;
mod step_stats;
mod stream;
mod task;
mod waits;
mod worker;

pub use cluster_spec::ClusterSpec;
pub use config::ServerConfig;
pub use graphmill_runtime::DeviceSpec;
pub use random::Random;
pub use server::Server;
