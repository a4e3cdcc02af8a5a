//! The distributed side of graphmill: the master and worker services, and the server that carries them.
//!
//! A [`Server`] is one task of a cluster. Clients reach its master over gRPC; [`grpc`] is the seam to the gRPC library.

mod accept;
mod aggregate;
mod cluster_spec;
mod collective;
mod config;
pub mod encoded;
mod exchange;
pub mod grpc;
mod heavy;
mod late_reads;
mod local;
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
mod worker;

pub use cluster_spec::ClusterSpec;
pub use config::ServerConfig;
pub use graphmill_runtime::DeviceSpec;
pub use local::Local;
pub use random::Random;
pub use server::Server;
