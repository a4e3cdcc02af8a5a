//! The network that a server is given: connections to other tasks, and those that come in.
//!
//! A server uses [`Tcp`]. Anything else that carries bytes both ways in order will do, such as a network in memory that loses
//! connections as a test wants it.

mod connection;
mod tcp;

pub use connection::{Connection, Peer};
pub use tcp::Tcp;

use graphmill_tensor::Result;
use std::io;
use std::pin::Pin;
use tokio_stream::Stream;

/// A connection that is being made.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Connection>> + Send + 'a>>;

/// Connections that come in. An error concerns one of them; the end means that no more will come.
pub type Incoming = Pin<Box<dyn Stream<Item = io::Result<Connection>> + Send>>;

/// What connects tasks with each other.
pub trait Network: Send + Sync + 'static {
    /// Connects to a host and port, such as `localhost:2222`. The caller sets a limit to the time by dropping the future.
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a>;

    /// Listens on `port` of these hosts, of which the first has to work; 0 for a free one. Returns the port as well. Runs within a tokio
    /// runtime.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a host that does not exist, `UNAVAILABLE` for a port that is taken or not permitted.
    fn listen(&self, hosts: &[String], port: u16) -> Result<(Incoming, u16)>;
}
