//! A master in the caller's own process, without sockets.

use crate::ServerConfig;
use crate::config::Identity;
use crate::grpc::{Frames, MessageBytes};
use crate::network::Tcp;
use crate::server::{self, DROP_PATIENCE};
use crate::services::Services;
use graphmill_runtime::Registry;
use graphmill_tensor::{Result, deadline_exceeded, internal};
use graphmill_wire::service::MasterMethod;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// One task that only this process reaches. Dropping it ends its sessions and their steps.
pub struct Local {
    services: Arc<Services>,
    /// Taken at the end.
    runtime: Option<Runtime>,
}

impl Local {
    /// Starts a task with these kernels. Addresses in the settings are not listened to; the tasks of the cluster can be asked, but
    /// cannot ask back.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for settings that do not fit together.
    pub fn start(config: ServerConfig, registry: Registry) -> Result<Local> {
        let Identity { job, task, leader, .. } = config.identity()?;
        let runtime = server::runtime()?;
        let services = server::services(config, (&job, task), leader, registry, Arc::new(Tcp), &runtime);
        Ok(Local { services, runtime: Some(runtime) })
    }

    /// Answers one call, whichever thread asks. Dropping the future cancels what the call does.
    ///
    /// # Errors
    /// The status of the call; `DEADLINE_EXCEEDED` if it has not ended by its deadline.
    pub async fn call(&self, method: MasterMethod, message: Frames, deadline: Option<Instant>) -> Result<MessageBytes> {
        let Some(runtime) = &self.runtime else { return Err(internal!("The task has ended")) };
        let services = self.services.clone();
        let call = async move {
            let answer = services.master.call(method, message.into_message(), deadline);
            match deadline {
                None => answer.await,
                Some(deadline) => timeout_at(deadline, answer)
                    .await
                    .unwrap_or_else(|_| Err(deadline_exceeded!("{} did not end in time", method.name()))),
            }
        };
        let mut call = CancelOnDrop(runtime.spawn(call));
        match (&mut call.0).await {
            Ok(answer) => answer.map(Frames::into_message),
            Err(error) => Err(internal!("{} ended without an answer: {error}", method.name())),
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            server::end(runtime, &self.services, std::future::ready(()), DROP_PATIENCE);
        }
    }
}

/// A call whose caller may go away.
struct CancelOnDrop(JoinHandle<Result<Frames>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
