//! `RunStep`: runs the part of a session's graph that some fetches and targets need.

use super::create_session::milliseconds;
use super::prepared::Prepared;
use super::session::Session;
use super::workers::HEAD_START;
use super::{Master, remote_parts, step_reply};
use crate::aggregate::from_task;
use crate::cost_graph::cost_graph;
use crate::exchange::{step_alone, step_with_exchange};
use crate::grpc::{Frames, MessageBytes, decode};
use crate::records::{partition_graphs, step_stats};
use graphmill_runtime::Step;
use graphmill_tensor::{Result, Status, Tensor, cancelled, deadline_exceeded, internal, invalid_argument};
use graphmill_wire::tensorflow::run_options::TraceLevel;
use graphmill_wire::tensorflow::{ExecutorOpts, RunGraphResponse, RunMetadata, RunOptions, RunStepRequest};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Step ids of one run have this many random bits; the top ones are zero.
const STEP_ID_BITS: u32 = 57;

impl Master {
    /// Where the request wants it, an error is part of an answer that succeeds: such an error has no limit of length, and the
    /// client's library does not try again behind its back.
    ///
    /// # Errors
    /// The status of the step where the request does not want it in the answer.
    pub(super) async fn run_step(&self, message: MessageBytes, deadline: Option<Instant>) -> Result<Frames> {
        let request: RunStepRequest = decode(message)?;
        let errors_in_body = request.store_errors_in_response_body;
        match self.step(request, deadline).await {
            Err(status) if errors_in_body => step_reply::failure(&status),
            result => result,
        }
    }

    async fn step(&self, request: RunStepRequest, deadline: Option<Instant>) -> Result<Frames> {
        self.request_ids.lock().note(request.request_id, "RunStep (Master)", || describe(&request))?;
        let session = self.session(&request.session_handle)?;
        let options = request.options.as_ref();
        check_options(options, &session)?;
        let deadline = earlier(deadline, own_deadline(options, &session));
        if !request.partial_run_handle.is_empty() {
            return self.partial_step(&session, &request, deadline).await;
        }
        let prepared = session.prepare(&self.task, &request).await?;
        let feeds = prepared.order.feeds(request.feed.iter().map(|feed| feed.tensor.as_ref()))?;
        let wanted = records_wanted(options, &session, &prepared.run);
        let step = self.new_step(&session, &prepared.run, wanted, deadline).await?;
        let (outputs, remote) = self.execute(&session, &prepared.run, &step, feeds, wanted, deadline).await?;
        let named = |&at: &usize| Ok((name_of(&request.fetch, at), prepared.order.fetch(at, &outputs)?));
        let tensors = prepared.distinct_fetches.iter().map(named).collect::<Result<Vec<_>>>()?;
        step_reply::named_tensors(tensors, &metadata(wanted, &prepared.run, &step, remote))
    }

    /// Runs a prepared step once, on all tasks. It is cancelled when `deadline` passes, and when this future is dropped. Yields what the
    /// own part has fetched, and what the other tasks report.
    pub(super) async fn execute(
        &self,
        session: &Session,
        run: &Prepared,
        step: &Arc<Step>,
        feeds: Vec<Tensor>,
        wanted: ExecutorOpts,
        deadline: Option<Instant>,
    ) -> Result<(Vec<Tensor>, Vec<RunGraphResponse>)> {
        // Held by the own part, which may go on when this future is dropped, and by the step as a whole, whose other parts may last longer.
        let running = Arc::new(session.running.begin(step)?);
        let own = running.clone();
        let mut cancel = CancelOnDrop::new(step);
        let (sender, receiver) = oneshot::channel();
        self.task.executor.run(&run.program, step.clone(), feeds, move |outcome| {
            drop(own);
            // Nobody waits any more if the deadline has passed or the client is gone.
            let _ = sender.send(outcome);
        });
        let all = async {
            if run.remote.is_empty() {
                let outcome = receiver.await.unwrap_or_else(|_| Err(internal!("The step ended without an outcome")));
                return outcome.map(|outputs| (outputs, Vec::new()));
            }
            remote_parts::run(&self.task, session.workers.peers.own(), &run.remote, step, wanted, receiver).await
        };
        let collectives = &self.task.collectives;
        let key = run.collective_graph_key;
        let deadline = deadline.map(|deadline| if key == 0 { deadline } else { ahead_of(deadline) });
        let outcome = match deadline {
            None => all.await,
            Some(deadline) => match timeout_at(deadline, all).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let error = match collectives.missing(step.id()) {
                        Some(missing) => deadline_exceeded!("Deadline Exceeded: the step still waits for {missing}"),
                        None => deadline_exceeded!("Deadline Exceeded"),
                    };
                    collectives.retire_step(key, step.id(), false);
                    if let Some(step) = cancel.step.take() {
                        step.cancellation().cancel(error.clone());
                    }
                    return Err(error);
                }
            },
        };
        cancel.disarm();
        drop(running);
        if key != 0 {
            collectives.retire_step(key, step.id(), outcome.is_ok());
        }
        session.touch();
        match outcome {
            Ok(outputs) => Ok(outputs),
            Err(error) => Err(self.step_error(session, session.workers.explain(error).await)),
        }
    }

    /// A step that begins. Those with collective operations are numbered by the leader of the groups.
    ///
    /// # Errors
    /// What the leader answers.
    pub(super) async fn new_step(
        &self,
        session: &Session,
        run: &Prepared,
        wanted: ExecutorOpts,
        deadline: Option<Instant>,
    ) -> Result<Arc<Step>> {
        let (task, peers) = (&self.task, &session.workers.peers);
        let leader = (run.collective_graph_key != 0).then_some(session.options.leader.as_str());
        let id = match leader {
            None => (task.random.next() >> (u64::BITS - STEP_ID_BITS)).cast_signed(),
            Some(leader) => task.collectives.next_step(peers, leader, run.collective_graph_key, deadline).await?,
        };
        let step = match run.remote.is_empty() {
            true => step_alone(task, peers, id, leader),
            false => step_with_exchange(task, peers, id, leader).0,
        };
        if wanted.record_timeline || wanted.record_costs {
            step.start_trace();
        }
        Ok(step)
    }

    /// What the client is told of a step that failed.
    pub(super) fn step_error(&self, session: &Session, error: Status) -> Status {
        match session.running.outcome(&error) {
            Some(reason) => reason,
            None => from_task(error, session.workers.peers.own()),
        }
    }
}

/// Cancels a step whose client has gone away, which drops the future that waits for the step.
pub(super) struct CancelOnDrop {
    step: Option<Arc<Step>>,
}

impl CancelOnDrop {
    pub fn new(step: &Arc<Step>) -> CancelOnDrop {
        CancelOnDrop { step: Some(step.clone()) }
    }

    /// The step has ended, or goes on without this client's call.
    pub fn disarm(&mut self) {
        self.step = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(step) = self.step.take() {
            tracing::debug!(
                step = step.id(),
                "Client requested cancellation for RunStep, cancelling worker operations."
            );
            step.cancellation().cancel(cancelled!("RunStep was cancelled by its client"));
        }
    }
}

/// When a step ends by what it, or its session, says.
pub(super) fn own_deadline(options: Option<&RunOptions>, session: &Session) -> Option<Instant> {
    let timeout = options.and_then(|options| milliseconds(options.timeout_in_ms)).or(session.options.timeout)?;
    Instant::now().checked_add(timeout)
}

/// Somewhat before a deadline, so that a client gets an answer that says more than that it is late.
fn ahead_of(deadline: Instant) -> Instant {
    let left = deadline.saturating_duration_since(Instant::now());
    deadline.checked_sub(HEAD_START.min(left / 4)).unwrap_or(deadline)
}

/// The first of two deadlines.
pub(super) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn name_of(names: &[String], at: usize) -> &str {
    names.get(at).map_or("", String::as_str)
}

/// Checks what a step wants beside its tensors.
///
/// # Errors
/// `INVALID_ARGUMENT` for what the session does not permit.
pub(super) fn check_options(options: Option<&RunOptions>, session: &Session) -> Result<()> {
    if session.options.no_partition_graphs && options.is_some_and(|options| options.output_partition_graphs) {
        return Err(invalid_argument!(
            "RunOptions.output_partition_graphs() is not supported when disable_output_partition_graphs is true."
        ));
    }
    Ok(())
}

/// What the tasks record of a step: what its options want, and costs where the session's cost model is due.
pub(super) fn records_wanted(options: Option<&RunOptions>, session: &Session, run: &Prepared) -> ExecutorOpts {
    let record_costs = session.options.cost_model.is_some_and(|model| model.is_due(run.runs.fetch_add(1, Relaxed)));
    ExecutorOpts { record_costs, ..executor_options(options) }
}

/// What other tasks are told of a step's options.
pub(super) fn executor_options(options: Option<&RunOptions>) -> ExecutorOpts {
    ExecutorOpts {
        record_timeline: is_traced(options),
        record_partition_graphs: options.is_some_and(|options| options.output_partition_graphs),
        report_tensor_allocations_upon_oom: options.is_some_and(|options| options.report_tensor_allocations_upon_oom),
        ..Default::default()
    }
}

/// Whether a step records its nodes.
pub(super) fn is_traced(options: Option<&RunOptions>) -> bool {
    options.is_some_and(|options| options.trace_level() == TraceLevel::FullTrace)
}

/// What a step says beside its tensors.
pub(super) fn metadata(
    wanted: ExecutorOpts,
    run: &Prepared,
    step: &Step,
    remote: Vec<RunGraphResponse>,
) -> RunMetadata {
    let mut metadata = RunMetadata::default();
    if let Some(trace) = step.trace() {
        metadata.step_stats = wanted.record_timeline.then(|| step_stats(trace, &run.graph));
        metadata.cost_graph = wanted.record_costs.then(|| cost_graph(trace, &run.graph));
    }
    if wanted.record_partition_graphs {
        metadata.partition_graphs.extend(partition_graphs(&run.graph, run.program.devices()));
    }
    for response in remote {
        if let (Some(own), Some(costs)) = (&mut metadata.cost_graph, response.cost_graph) {
            own.node.extend(costs.node);
        }
        if let (Some(own), Some(stats)) = (&mut metadata.step_stats, response.step_stats) {
            own.dev_stats.extend(stats.dev_stats);
        }
        metadata.partition_graphs.extend(response.partition_graph);
    }
    metadata
}

/// A request in words, without its tensors.
fn describe(request: &RunStepRequest) -> String {
    let mut text = format!("session_handle: \"{}\"", request.session_handle);
    let feeds = request.feed.iter().map(|feed| ("feed", &feed.name));
    let fetches = request.fetch.iter().map(|name| ("fetch", name));
    let targets = request.target.iter().map(|name| ("target", name));
    for (kind, name) in feeds.chain(fetches).chain(targets) {
        // Writing to a string cannot fail.
        let _ = write!(text, " {kind}: \"{name}\"");
    }
    let _ = write!(text, " request_id: {}", request.request_id);
    text
}
