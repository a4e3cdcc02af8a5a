//! Which service a call is for.

use crate::grpc::{Frames, Handler};
use crate::master::Master;
use crate::task::Task;
use crate::worker::Worker;
use bytes::Bytes;
use graphmill_tensor::Result;
use graphmill_wire::service::{MasterMethod, WorkerMethod};
use std::sync::Arc;
use tokio::time::Instant;

/// The services of one server.
pub(crate) struct Services {
    pub master: Master,
    pub worker: Worker,
    /// What both share.
    pub task: Arc<Task>,
}

#[derive(Clone, Copy)]
pub(crate) enum Method {
    Master(MasterMethod),
    Worker(WorkerMethod),
}

impl Handler for Services {
    type Method = Method;

    fn method(&self, path: &str) -> Option<Method> {
        MasterMethod::from_path(path).map(Method::Master).or_else(|| WorkerMethod::from_path(path).map(Method::Worker))
    }

    async fn call(&self, method: Method, message: Bytes, deadline: Option<Instant>) -> Result<Frames> {
        match method {
            Method::Master(method) => self.master.call(method, message.into(), deadline).await,
            Method::Worker(method) => self.worker.call(method, message).await,
        }
    }
}
