//! `RunStep`: runs the part of a session's graph that some fetches and targets need.

use super::create_session::milliseconds;
use super::prepared::PreparedRequest;
use super::session::Session;
use super::{Master, step_reply};
use crate::grpc::{Reply, decode};
use bytes::Bytes;
use graphmill_runtime::Step;
use graphmill_tensor::{Result, Tensor, cancelled, deadline_exceeded, internal, invalid_argument};
use graphmill_wire::tensorflow::run_options::TraceLevel;
use graphmill_wire::tensorflow::{NamedTensorProto, RunMetadata, RunOptions, RunStepRequest, StepStats};
use std::fmt::Write;
use std::sync::Arc;
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
    pub(super) async fn run_step(&self, message: Bytes, deadline: Option<Instant>) -> Result<Reply> {
        let request: RunStepRequest = decode(message)?;
        let errors_in_body = request.store_errors_in_response_body;
        match self.step(request, deadline).await {
            Err(status) if errors_in_body => step_reply::failure(&status),
            result => result,
        }
    }

    async fn step(&self, request: RunStepRequest, deadline: Option<Instant>) -> Result<Reply> {
        self.request_ids.lock().note(request.request_id, "RunStep (Master)", || describe(&request))?;
        let session = self.session(&request.session_handle)?;
        if !request.partial_run_handle.is_empty() {
            return Err(invalid_argument!("Must run PartialRunSetup before performing partial runs"));
        }
        let options = request.options.as_ref();
        let traced = options.is_some_and(|options| options.trace_level() == TraceLevel::FullTrace);
        let wants_graphs = options.is_some_and(|options| options.output_partition_graphs);
        if wants_graphs && session.options.no_partition_graphs {
            return Err(invalid_argument!(
                "RunOptions.output_partition_graphs() is not supported when disable_output_partition_graphs is true."
            ));
        }
        let deadline = earlier(deadline, own_deadline(options, &session));
        let prepared = session.prepare(&self.task, &request).await?;
        let feeds = decode_feeds(&prepared, &request.feed)?;
        let outputs = self.execute(&session, &prepared, feeds, deadline).await?;

        let mut metadata = RunMetadata::default();
        if traced {
            metadata.step_stats = Some(StepStats::default());
        }
        if wants_graphs {
            metadata.partition_graphs.push(prepared.run.graph.to_def());
        }
        let outputs = prepared.fetch_order.iter().map(|&(name, port)| {
            let tensor: Option<&Tensor> = outputs.get(port);
            Some((request.fetch.get(name)?.as_str(), tensor?.clone()))
        });
        let outputs: Option<Vec<(&str, Tensor)>> = outputs.collect();
        let outputs = outputs.ok_or_else(|| internal!("The step has given too few tensors"))?;
        step_reply::success(outputs.into_iter(), &metadata)
    }

    /// Runs a program once. The step is cancelled when `deadline` passes, and when this future is dropped.
    async fn execute(
        &self,
        session: &Session,
        prepared: &PreparedRequest,
        feeds: Vec<Tensor>,
        deadline: Option<Instant>,
    ) -> Result<Vec<Tensor>> {
        let id = self.task.random.next() >> (u64::BITS - STEP_ID_BITS);
        let step = Arc::new(Step::new(id.cast_signed()));
        let running = session.running.begin(&step)?;
        let mut cancel = CancelOnDrop { step: Some(step.clone()) };
        let (sender, receiver) = oneshot::channel();
        self.task.executor.run(&prepared.run.program, step, feeds, move |outcome| {
            drop(running);
            // Nobody waits any more if the deadline has passed or the client is gone.
            let _ = sender.send(outcome);
        });
        let outcome = match deadline {
            None => receiver.await,
            Some(deadline) => match timeout_at(deadline, receiver).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let error = deadline_exceeded!("Deadline Exceeded");
                    if let Some(step) = cancel.step.take() {
                        step.cancellation().cancel(error.clone());
                    }
                    return Err(error);
                }
            },
        };
        cancel.step = None;
        let outcome = outcome.unwrap_or_else(|_| Err(internal!("The step ended without an outcome")));
        outcome.map_err(|error| match session.running.outcome(&error) {
            Some(reason) => reason,
            None => error.from_task(&self.task.name),
        })
    }
}

/// Cancels a step whose client has gone away, which drops the future that waits for the step.
struct CancelOnDrop {
    step: Option<Arc<Step>>,
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

fn own_deadline(options: Option<&RunOptions>, session: &Session) -> Option<Instant> {
    let timeout = options.and_then(|options| milliseconds(options.timeout_in_ms)).or(session.options.timeout)?;
    Instant::now().checked_add(timeout)
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The feeds of a request in the order of the program. Those that the program does not need have to be well formed too.
fn decode_feeds(prepared: &PreparedRequest, feeds: &[NamedTensorProto]) -> Result<Vec<Tensor>> {
    let mut tensors = feeds
        .iter()
        .enumerate()
        .map(|(at, feed)| match feed.tensor.as_ref().map(Tensor::from_proto) {
            Some(Ok(tensor)) => Ok(Some(tensor)),
            _ => Err(invalid_argument!("Invalid TensorProto for feed value {at}")),
        })
        .collect::<Result<Vec<_>>>()?;
    let take = |&at: &usize| tensors.get_mut(at).and_then(Option::take);
    let ordered = prepared.feed_order.iter().map(take).collect::<Option<Vec<Tensor>>>();
    ordered.ok_or_else(|| internal!("The program takes a feed twice"))
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
