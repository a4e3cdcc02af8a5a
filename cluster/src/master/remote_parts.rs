//! The parts of a step that run on other tasks.

use super::workers::{FAREWELL, decode_answer, tell};
use crate::aggregate::Failures;
use crate::grpc::{Channel, Frames};
use crate::task::Task;
use graphmill_graph::Graph;
use graphmill_runtime::Step;
use graphmill_tensor::{Code, Result, Status, aborted, cancelled, internal};
use graphmill_wire::service::WorkerMethod;
use graphmill_wire::tensorflow::{
    CleanupGraphRequest, ConfigProto, DeregisterGraphRequest, ExecutorOpts, GraphOptions, RegisterGraphRequest,
    RegisterGraphResponse, RunGraphRequest, RunGraphResponse,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How long after a failure that is only the consequence of another the other one is waited for.
const ROOT_CAUSE_PATIENCE: Duration = Duration::from_secs(5);
/// After this time a step whose end was asked for says who has not ended.
const REPORT_AFTER: Duration = Duration::from_secs(60);

/// A part of a graph that is registered on another task.
pub(crate) struct RemotePart {
    pub channel: Arc<Channel>,
    session_handle: String,
    graph_handle: String,
    runtime: Handle,
}

impl RemotePart {
    /// Registers a part of a session's graph, in the session of this handle; without one in that of masters which make none.
    ///
    /// # Errors
    /// What the task answers.
    pub async fn register(
        runtime: &Handle,
        channel: Arc<Channel>,
        session_handle: String,
        graph: &Graph,
        (options, config): (Option<GraphOptions>, Option<ConfigProto>),
        collective_graph_key: i64,
    ) -> Result<RemotePart> {
        let request = RegisterGraphRequest {
            session_handle: session_handle.clone(),
            create_worker_session_called: !session_handle.is_empty(),
            graph_def: Some(graph.to_stripped_def()),
            graph_options: options,
            config_proto: config,
            collective_graph_key,
            ..Default::default()
        };
        let message = Frames::message(&request)?;
        let answer = channel.call(WorkerMethod::RegisterGraph.path(), message, None).await;
        let answer = answer.map_err(|error| error.from_task(channel.task()))?;
        let graph_handle = decode_answer::<RegisterGraphResponse>(answer, "RegisterGraph")?.graph_handle;
        Ok(RemotePart { channel, session_handle, graph_handle, runtime: runtime.clone() })
    }

    /// What a request to run the part begins with.
    pub fn run_graph_request(&self) -> RunGraphRequest {
        RunGraphRequest {
            session_handle: self.session_handle.clone(),
            create_worker_session_called: !self.session_handle.is_empty(),
            graph_handle: self.graph_handle.clone(),
            ..Default::default()
        }
    }
}

impl Drop for RemotePart {
    fn drop(&mut self) {
        let request = DeregisterGraphRequest {
            create_worker_session_called: !self.session_handle.is_empty(),
            session_handle: std::mem::take(&mut self.session_handle),
            graph_handle: std::mem::take(&mut self.graph_handle),
        };
        let channels = [self.channel.clone()];
        self.runtime.spawn(async move {
            tell(&channels, WorkerMethod::DeregisterGraph, || Frames::message(&request)).await;
        });
    }
}

/// Runs the remote parts of a step beside the local one. When one part fails the others are cancelled. Yields what the local part
/// gives, and what the others report, in the order of `parts`.
///
/// # Errors
/// What the parts failed with, each with the name of its task, consequences of other failures left out.
pub(super) async fn run<T>(
    task: &Arc<Task>,
    own_name: &str,
    parts: &[RemotePart],
    step: &Arc<Step>,
    options: ExecutorOpts,
    mut local: oneshot::Receiver<Result<T>>,
) -> Result<(T, Vec<RunGraphResponse>)> {
    let _cleanup = CleanUp::new(task, parts, step);
    let mut calls = JoinSet::new();
    for (number, part) in parts.iter().enumerate() {
        let (channel, message) = (part.channel.clone(), request(task, part, step, options)?);
        calls.spawn(async move { (number, run_graph(&channel, message).await) });
    }
    let mut responses = vec![RunGraphResponse::default(); parts.len()];
    let mut running: Vec<bool> = vec![true; parts.len()];
    let mut result = None;
    let mut local_runs = true;
    let mut cancelled = on_cancellation(step);
    let mut stopped = false;
    let mut failures = Failures::default();
    // When to stop waiting for the failure that others are the consequence of, then when to say who has not ended.
    let mut patience: Option<Instant> = None;
    let mut waited_for_root = false;
    while local_runs || !calls.is_empty() {
        let waited = async {
            match patience {
                Some(end) => sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        let failed = tokio::select! {
            outcome = &mut local, if local_runs => {
                local_runs = false;
                let outcome = outcome.unwrap_or_else(|_| Err(internal!("The step ended without an outcome")));
                outcome.map(|value| result = Some(value)).map_err(|error| failures.add(error, own_name)).is_err()
            }
            Some(answer) = calls.join_next() => match answer {
                Ok((number, answer)) => {
                    if let Some(running) = running.get_mut(number) {
                        *running = false;
                    }
                    let name = parts.get(number).map(|part| part.channel.task()).unwrap_or_default();
                    match (answer, responses.get_mut(number)) {
                        (Ok(answer), Some(response)) => {
                            *response = answer;
                            false
                        }
                        (Err(error), _) => {
                            failures.add(error, name);
                            true
                        }
                        _ => false,
                    }
                }
                // Calls that were cut off.
                Err(_) => false,
            },
            // An own part that runs ends by itself, and one that has failed has cancelled the step.
            _ = &mut cancelled, if result.is_some() && !stopped => {
                let reason = step.cancellation().reason();
                failures.add(reason.unwrap_or_else(|| cancelled!("The step was cancelled")), own_name);
                true
            }
            () = waited => {
                waited_for_root = true;
                let silent: Vec<&str> = parts.iter().zip(&running).filter(|(_, running)| **running)
                    .map(|(part, _)| part.channel.task()).collect();
                if failures.has_root() || calls.is_empty() {
                    tracing::warn!(step = step.id(), "still waiting for the step to end on {own_name} {}", silent.join(" "));
                }
                true
            }
        };
        if failed {
            if failures.has_root() || waited_for_root {
                stopped = true;
                step.cancellation().cancel(cancelled!("Another part of the step has failed").derived());
                calls.abort_all();
                patience = Some(Instant::now() + REPORT_AFTER);
            } else {
                patience.get_or_insert_with(|| Instant::now() + ROOT_CAUSE_PATIENCE);
            }
        }
    }
    match (failures.into_status(), result) {
        (Some(error), _) => Err(error),
        (None, Some(value)) => Ok((value, responses)),
        (None, None) => Err(internal!("The step ended without an outcome")),
    }
}

/// Comes when a step is cancelled.
fn on_cancellation(step: &Step) -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    // A step that is cancelled already drops the sender, which the receiver is told as well.
    step.cancellation().register(move || drop(sender));
    receiver
}

fn request(task: &Task, part: &RemotePart, step: &Step, options: ExecutorOpts) -> Result<Frames> {
    Frames::message(&RunGraphRequest {
        step_id: step.id(),
        exec_opts: Some(options),
        store_errors_in_response_body: true,
        request_id: task.random.next_non_zero().cast_signed(),
        ..part.run_graph_request()
    })
}

async fn run_graph(channel: &Channel, message: Frames) -> Result<RunGraphResponse> {
    let answer = channel.call(WorkerMethod::RunGraph.path(), message, None).await?;
    let response = decode_answer::<RunGraphResponse>(answer, "RunGraph")?;
    match Code::from_number(response.status_code) {
        Code::Ok => Ok(response),
        code => Err(Status::new(code, response.status_error_message)),
    }
}

/// Has all tasks forget what a step has left, when it has ended or its client has gone.
struct CleanUp {
    task: Arc<Task>,
    channels: Vec<Arc<Channel>>,
    step: i64,
}

impl CleanUp {
    fn new(task: &Arc<Task>, parts: &[RemotePart], step: &Step) -> CleanUp {
        let channels = parts.iter().map(|part| part.channel.clone()).collect();
        CleanUp { task: task.clone(), channels, step: step.id() }
    }
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        self.task.collectives.clean_up(self.step);
        self.task.exchanges.end(self.step, aborted!("Cleanup {}", self.step).derived());
        let request = CleanupGraphRequest { step_id: self.step };
        let channels = std::mem::take(&mut self.channels);
        self.task.runtime.spawn(async move {
            let message = || Frames::message(&request);
            let all = tell(&channels, WorkerMethod::CleanupGraph, message);
            if tokio::time::timeout_at(Instant::now() + FAREWELL, all).await.is_err() {
                tracing::debug!(step = request.step_id, "tasks were not told that the step has ended");
            }
        });
    }
}
