//! graphmill's own service, on the port of the others: what a server is doing, and its end on request.

mod messages;
mod status;

pub use messages::{
    Counters, CreationStatus, MissingTask, QueueStatus, RendezvousStatus, ResourceStatus, SessionStatus, StatusRequest,
    StatusResponse, StepStatus, StopRequest, StopResponse,
};

use crate::grpc::{Frames, decode};
use crate::master::Master;
use crate::task::Task;
use crate::worker::Worker;
use bytes::Bytes;
use graphmill_tensor::{Code, Result, Status};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// The methods of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlMethod {
    /// Has the server end.
    Stop,
    /// Says what the server is doing.
    Status,
}

impl ControlMethod {
    /// Where the method is on the wire.
    pub const fn path(self) -> &'static str {
        match self {
            ControlMethod::Stop => "/graphmill.Control/Stop",
            ControlMethod::Status => "/graphmill.Control/Status",
        }
    }

    /// The method at a path.
    pub fn from_path(path: &str) -> Option<ControlMethod> {
        [ControlMethod::Stop, ControlMethod::Status].into_iter().find(|method| method.path() == path)
    }
}

/// Answers the calls of `graphmill stop` and `graphmill status`.
pub(crate) struct Control {
    task: Arc<Task>,
    cluster: String,
    grace: Duration,
    allow_remote_stop: bool,
    since: SystemTime,
    begun: Instant,
    end: watch::Sender<Option<EndRequest>>,
}

/// Why a server should end.
#[derive(Clone, Debug, PartialEq)]
pub struct EndRequest {
    /// The reason in words.
    pub reason: String,
    /// How long running steps are worth waiting for, if there is a limit to that.
    pub longest_grace: Option<Duration>,
}

impl Control {
    /// For a task of a cluster, written as text. `grace` is told to those who stop the server.
    pub fn new(task: Arc<Task>, cluster: String, grace: Duration, allow_remote_stop: bool) -> Control {
        Control {
            task,
            cluster,
            grace,
            allow_remote_stop,
            since: SystemTime::now(),
            begun: Instant::now(),
            end: watch::Sender::new(None),
        }
    }

    /// Whether a peer may call a method.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` for a stop from another machine.
    pub fn permit(&self, method: ControlMethod, peer: Option<SocketAddr>) -> Result<()> {
        let near = peer.is_some_and(|peer| is_loopback(peer.ip()));
        if method == ControlMethod::Status || near || self.allow_remote_stop {
            return Ok(());
        }
        Err(Status::new(
            Code::PermissionDenied,
            "This server is stopped from its own machine only. Run graphmill stop there, or start the server with --allow-remote-stop",
        ))
    }

    /// Answers one call.
    ///
    /// # Errors
    /// None but for a message that cannot be read.
    pub fn call(&self, method: ControlMethod, message: Bytes, master: &Master, worker: &Worker) -> Result<Frames> {
        match method {
            ControlMethod::Stop => {
                decode::<StopRequest>(message)?;
                self.ask_for_end(EndRequest { reason: "graphmill stop".to_owned(), longest_grace: None });
                Frames::message(&StopResponse { task: self.task.name.clone(), grace: self.grace.as_secs_f64() })
            }
            ControlMethod::Status => {
                decode::<StatusRequest>(message)?;
                Frames::message(&self.status(master, worker))
            }
        }
    }

    /// Asks the program around the server to end it. The first request stays.
    pub fn ask_for_end(&self, request: EndRequest) {
        self.end.send_if_modified(|end| {
            let first = end.is_none();
            end.get_or_insert(request);
            first
        });
    }

    /// Where requests for the end arrive.
    pub fn end_requests(&self) -> watch::Receiver<Option<EndRequest>> {
        self.end.subscribe()
    }
}

/// Whether an address is one of this machine's own to itself, IPv4 within IPv6 too.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_have_paths_of_their_own() {
        assert_eq!(ControlMethod::from_path("/graphmill.Control/Stop"), Some(ControlMethod::Stop));
        assert_eq!(ControlMethod::from_path("/graphmill.Control/Status"), Some(ControlMethod::Status));
        assert_eq!(ControlMethod::from_path("/tensorflow.MasterService/Reset"), None);
    }

    #[test]
    fn own_addresses() {
        for (address, own) in [("127.0.0.1", true), ("::1", true), ("::ffff:127.0.0.1", true), ("10.0.0.1", false)] {
            assert_eq!(is_loopback(address.parse().unwrap()), own, "{address}");
        }
    }
}
