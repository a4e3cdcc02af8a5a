//! Which service a call is for.

use crate::control::{Control, ControlMethod};
use crate::grpc::{Frames, Handler};
use crate::master::Master;
use crate::task::Task;
use crate::worker::Worker;
use bytes::Bytes;
use graphmill_tensor::Result;
use graphmill_wire::service::{MasterMethod, WorkerMethod};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// The services of one server.
pub(crate) struct Services {
    pub master: Master,
    pub worker: Arc<Worker>,
    pub control: Control,
    /// What they share.
    pub task: Arc<Task>,
}

#[derive(Clone, Copy)]
pub(crate) enum Method {
    Master(MasterMethod),
    Worker(WorkerMethod),
    Control(ControlMethod),
}

impl Handler for Services {
    type Method = Method;

    fn method(&self, path: &str) -> Option<Method> {
        let master = || MasterMethod::from_path(path).map(Method::Master);
        let worker = || WorkerMethod::from_path(path).map(Method::Worker);
        master().or_else(worker).or_else(|| ControlMethod::from_path(path).map(Method::Control))
    }

    fn permit(&self, method: Method, peer: Option<SocketAddr>) -> Result<()> {
        match method {
            Method::Master(_) | Method::Worker(_) => Ok(()),
            Method::Control(method) => self.control.permit(method, peer),
        }
    }

    async fn call(&self, method: Method, message: Bytes, deadline: Option<Instant>) -> Result<Frames> {
        match method {
            Method::Master(method) => self.master.call(method, message.into(), deadline).await,
            Method::Worker(method) => self.worker.call(method, message).await,
            Method::Control(method) => self.control.call(method, message, &self.master, &self.worker),
        }
    }
}
