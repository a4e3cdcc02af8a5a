//! Sessions: a graph on a server, and the steps that run in it.

use crate::client::devices;
use crate::step::{callable_request, tensor};
use crate::transport::Calls;
use crate::{Outputs, Step};
use graphmill_graph::Signature;
use graphmill_tensor::{Result, Tensor, failed_precondition, internal};
use graphmill_wire::service::MasterMethod;
use graphmill_wire::tensorflow::{
    CallableOptions, CloseSessionRequest, CloseSessionResponse, CreateSessionResponse, DeviceAttributes,
    ExtendSessionRequest, ExtendSessionResponse, GraphDef, MakeCallableRequest, MakeCallableResponse,
    PartialRunSetupRequest, PartialRunSetupResponse, ReleaseCallableRequest, ReleaseCallableResponse,
    RunCallableResponse,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// How long a server that is told of a dropped session may take to answer.
const DROP_PATIENCE: Duration = Duration::from_secs(5);

/// A session. Cheap to clone; steps may run at the same time.
///
/// [`Session::close`] it: what is only dropped is closed in the background where a tokio runtime goes on, and else lives on in a server
/// until that ends it.
#[derive(Clone)]
pub struct Session {
    calls: Calls,
    shared: Arc<Shared>,
}

struct Shared {
    /// Calls without a time limit, for the end.
    calls: Calls,
    handle: String,
    version: Mutex<i64>,
    closed: AtomicBool,
}

impl Session {
    pub(crate) fn new(calls: Calls, opened: CreateSessionResponse) -> Session {
        let shared = Shared {
            calls: calls.clone(),
            handle: opened.session_handle,
            version: Mutex::new(opened.graph_version),
            closed: AtomicBool::new(false),
        };
        Session { calls, shared: Arc::new(shared) }
    }

    /// The same session, in which each call may take so long.
    pub fn within(&self, timeout: Duration) -> Session {
        let calls = Calls { timeout: Some(timeout), ..self.calls.clone() };
        Session { calls, shared: self.shared.clone() }
    }

    /// The handle under which the server knows the session.
    pub fn handle(&self) -> &str {
        &self.shared.handle
    }

    /// The devices that the session may use.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the server does not know the session any more.
    pub async fn devices(&self) -> Result<Vec<DeviceAttributes>> {
        devices(&self.calls, self.shared.handle.clone()).await
    }

    /// Adds nodes to the graph.
    ///
    /// # Errors
    /// What the server finds wrong with the nodes; `ABORTED` if it does not know the session any more.
    pub async fn extend(&self, graph: GraphDef) -> Result<()> {
        // Held over the call: the next extension has to name the version that this one makes.
        let mut version = self.shared.version.lock().await;
        let request = ExtendSessionRequest {
            session_handle: self.shared.handle.clone(),
            graph_def: Some(graph),
            current_graph_version: *version,
        };
        let answer: ExtendSessionResponse = self.calls.call(MasterMethod::ExtendSession, &request).await?;
        *version = answer.new_graph_version;
        Ok(())
    }

    /// Runs a step.
    ///
    /// # Errors
    /// What the step fails with; `ABORTED` if the server does not know the session any more.
    pub async fn run(&self, step: &Step) -> Result<Outputs> {
        self.run_part(step, "").await
    }

    async fn run_part(&self, step: &Step, partial_run_handle: &str) -> Result<Outputs> {
        let message = step.request(&self.shared.handle, partial_run_handle)?;
        Outputs::of(&step.fetches, self.calls.send(MasterMethod::RunStep, message).await?)
    }

    /// Announces a step that is fed and fetched in parts. Each name can be used once.
    ///
    /// # Errors
    /// As for a step with these names.
    pub async fn partial_run(&self, feeds: &[&str], fetches: &[&str], targets: &[&str]) -> Result<PartialRun> {
        let tensors = |names: &[&str]| names.iter().map(|name| Signature::tensor_name(name)).collect();
        let request = PartialRunSetupRequest {
            session_handle: self.shared.handle.clone(),
            feed: tensors(feeds),
            fetch: tensors(fetches),
            target: targets.iter().map(|&node| node.to_owned()).collect(),
            ..Default::default()
        };
        let answer: PartialRunSetupResponse = self.calls.call(MasterMethod::PartialRunSetup, &request).await?;
        Ok(PartialRun { session: self.clone(), handle: answer.partial_run_handle })
    }

    /// Prepares a step that then runs by its handle, with feeds and fetches in the order of the options.
    ///
    /// # Errors
    /// As for a step with these names.
    pub async fn callable(&self, mut options: CallableOptions) -> Result<Callable> {
        for name in options.feed.iter_mut().chain(&mut options.fetch) {
            *name = Signature::tensor_name(name);
        }
        let fetches = options.fetch.len();
        let request = MakeCallableRequest {
            session_handle: self.shared.handle.clone(),
            options: Some(options),
            ..Default::default()
        };
        let answer: MakeCallableResponse = self.calls.call(MasterMethod::MakeCallable, &request).await?;
        Ok(Callable { session: self.clone(), handle: answer.handle, fetches })
    }

    /// Ends the session: its running steps fail with `CANCELLED`.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if it is closed already, `ABORTED` if the server does not know it any more.
    pub async fn close(&self) -> Result<()> {
        if self.shared.closed.swap(true, Ordering::Relaxed) {
            return Err(failed_precondition!("Session {} is closed already", self.shared.handle));
        }
        close(&self.calls, self.shared.handle.clone()).await
    }
}

async fn close(calls: &Calls, session_handle: String) -> Result<()> {
    calls.call::<CloseSessionResponse>(MasterMethod::CloseSession, &CloseSessionRequest { session_handle }).await?;
    Ok(())
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let calls = Calls { timeout: Some(DROP_PATIENCE), ..self.calls.clone() };
        let handle = std::mem::take(&mut self.handle);
        runtime.spawn(async move {
            // Nobody is left to hear of a failure; servers end sessions of clients that are gone by themselves.
            let _ = close(&calls, handle).await;
        });
    }
}

/// A step that is fed and fetched in parts.
pub struct PartialRun {
    session: Session,
    handle: String,
}

impl PartialRun {
    /// Gives the feeds of the next part and waits for its fetches. The step ends with the part that uses the last name.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for names that were not announced, come again, or need feeds that are still to come; what the step
    /// fails with.
    pub async fn run(&self, part: &Step) -> Result<Outputs> {
        self.session.run_part(part, &self.handle).await
    }
}

/// A prepared step.
pub struct Callable {
    session: Session,
    handle: i64,
    fetches: usize,
}

impl Callable {
    /// Runs the step with feeds in the order of its options, and yields its fetches in theirs.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for another number of feeds; what the step fails with.
    pub async fn run(&self, feeds: &[Tensor]) -> Result<Vec<Tensor>> {
        let message = callable_request(&self.session.shared.handle, self.handle, feeds)?;
        let answer: RunCallableResponse = self.session.calls.send(MasterMethod::RunCallable, message).await?;
        if answer.fetch.len() != self.fetches {
            return Err(internal!("The step answered {} of {} fetches", answer.fetch.len(), self.fetches));
        }
        answer.fetch.iter().map(|proto| tensor(Some(proto))).collect()
    }

    /// Has the server forget the step.
    ///
    /// # Errors
    /// `ABORTED` if the server does not know the session any more.
    pub async fn release(self) -> Result<()> {
        let request =
            ReleaseCallableRequest { session_handle: self.session.shared.handle.clone(), handle: self.handle };
        self.session.calls.call::<ReleaseCallableResponse>(MasterMethod::ReleaseCallable, &request).await?;
        Ok(())
    }
}
