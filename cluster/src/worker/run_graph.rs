//! `RunGraph`: runs a registered graph as a part of a step.

use super::Worker;
use super::session::{RegisteredGraph, WorkerSession};
use crate::cost_graph::cost_graph;
use crate::encoded::EncodedNamed;
use crate::exchange::step_with_exchange;
use crate::grpc::{Frames, FramesBuilder, decode};
use crate::records::{partition_graphs, step_stats};
use bytes::Bytes;
use graphmill_runtime::{PartialRun, Port, Rendezvous, Step};
use graphmill_tensor::{Result, Status, Tensor, cancelled, internal, invalid_argument};
use graphmill_wire::tensorflow::{
    CostGraphDef, ExecutorOpts, NamedTensorProto, RunGraphRequest, RunGraphResponse, error,
};
use parking_lot::Mutex;
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Number of the field of `RunGraphResponse` that is written by hand.
const RESPONSE_RECV: u32 = 1;

impl Worker {
    /// Where the request wants it, an error is part of an answer that succeeds; one that is only the consequence of another keeps
    /// its mark, for which such an answer has no place, and stays a status.
    ///
    /// # Errors
    /// The status of the run where it is not in the answer.
    pub(super) async fn run_graph(&self, message: Bytes) -> Result<Frames> {
        let request: RunGraphRequest = decode(message)?;
        let errors_in_body = request.store_errors_in_response_body;
        match self.run(request).await {
            Err(status) if errors_in_body && !status.is_derived() => failure(&status),
            result => result,
        }
    }

    async fn run(&self, request: RunGraphRequest) -> Result<Frames> {
        let describe = || {
            let RunGraphRequest { graph_handle, step_id, request_id, .. } = &request;
            format!("graph_handle: \"{graph_handle}\" step_id: {step_id} request_id: {request_id}")
        };
        let method = if request.is_partial { "PartialRunGraph (Worker)" } else { "RunGraph (Worker)" };
        self.request_ids.lock().note(request.request_id, method, describe)?;
        let session = self.session(&request.session_handle, request.create_worker_session_called)?;
        let graph = session.graph(&request.graph_handle)?;
        let feeds = self.feeds(&session, &request.send)?;
        let part = if request.is_partial {
            let begin = || self.begin(&session, &graph, &request);
            self.partial_runs.get_or_begin(request.step_id, begin)?
        } else {
            self.begin(&session, &graph, &request)?
        };
        let mut cancel = CancelOnDrop(Some(part.step.clone()));
        let outcome = self.advance(&part, feeds, &request).await;
        cancel.0 = None;
        if let Err(error) = &outcome {
            part.step.cancellation().cancel(error.clone());
        }
        if request.is_partial && (request.is_last_partial_run || outcome.is_err()) {
            self.partial_runs.remove(request.step_id);
        }
        let tensors = outcome?;
        success(&request, tensors, &part)
    }

    /// The tensors that a request brings, by their keys.
    fn feeds(&self, session: &WorkerSession, sent: &[NamedTensorProto]) -> Result<Vec<(Arc<str>, Tensor)>> {
        let decoded = sent.iter().map(|NamedTensorProto { name, tensor }| {
            let device = name.split(';').next().unwrap_or_default();
            if session.devices.find(device).is_none() {
                return Err(invalid_argument!("Invalid rendezvous key (src): {name} @ {}", session.peers.own()));
            }
            match tensor.as_ref().map(Tensor::from_proto) {
                Some(Ok(tensor)) => Ok((Arc::from(name.as_str()), tensor)),
                _ => Err(invalid_argument!("The tensor of {name} cannot be read")),
            }
        });
        decoded.collect()
    }

    /// Starts the run. Feeds come afterwards.
    fn begin(
        &self,
        session: &WorkerSession,
        graph: &Arc<RegisteredGraph>,
        request: &RunGraphRequest,
    ) -> Result<Arc<Part>> {
        let task = &self.task;
        let step_id = request.step_id;
        let (step, exchange) = step_with_exchange(task, &session.peers, step_id, graph.leader.as_deref());
        if request.exec_opts.is_some_and(|options| options.record_timeline || options.record_costs) {
            step.start_trace();
        }
        let running = session.running.begin(&step)?;
        let progress = Arc::new(watch::Sender::new(Progress {
            tensors: vec![None; graph.program.fetches().len()],
            outcome: None,
        }));
        let (on_fetch, on_end) = (progress.clone(), progress.clone());
        let run = task.executor.run_partially(
            &graph.program,
            step.clone(),
            move |number, tensor| {
                on_fetch.send_modify(|progress| {
                    if let Some(place) = progress.tensors.get_mut(number) {
                        *place = Some(tensor);
                    }
                });
            },
            move |outcome| {
                drop(running);
                on_end.send_modify(|progress| progress.outcome = Some(outcome));
            },
        );
        Ok(Arc::new(Part { graph: graph.clone(), step, exchange, run, progress }))
    }

    /// Gives the run its feeds, and waits for what the request wants and, but for a partial run that goes on, for the end.
    async fn advance(
        &self,
        part: &Part,
        feeds: Vec<(Arc<str>, Tensor)>,
        request: &RunGraphRequest,
    ) -> Result<Vec<Option<Tensor>>> {
        let program = &part.graph.program;
        for (key, tensor) in feeds {
            match port(program.feeds(), &key) {
                Some(port) => part.run.feed(port, tensor)?,
                None => part.exchange.send(&key, Some(tensor))?,
            }
        }
        let to_the_end = !request.is_partial || request.is_last_partial_run;
        let ports: Vec<Option<usize>> = request.recv_key.iter().map(|key| port(program.fetches(), key)).collect();
        let mut news = part.progress.subscribe();
        {
            let ready = news.wait_for(|progress| match &progress.outcome {
                Some(_) => true,
                None if to_the_end => false,
                None => ports.iter().flatten().all(|&port| matches!(progress.tensors.get(port), Some(Some(_)))),
            });
            let progress = ready.await.map_err(|_| internal!("The run ended without an outcome"))?;
            if let Some(Err(error)) = &progress.outcome {
                return Err(error.clone());
            }
        }
        let mut tensors = Vec::with_capacity(ports.len());
        for (key, port) in request.recv_key.iter().zip(ports) {
            tensors.push(match port {
                Some(port) => part.progress.borrow().tensors.get(port).cloned().flatten(),
                // What is not fetched but sent.
                None => self.take(request.step_id, key).await?,
            });
        }
        Ok(tensors)
    }
}

/// A part of a step that runs here.
pub(super) struct Part {
    graph: Arc<RegisteredGraph>,
    step: Arc<Step>,
    exchange: Arc<dyn Rendezvous>,
    run: PartialRun,
    progress: Arc<watch::Sender<Progress>>,
}

struct Progress {
    /// What has been fetched, in the order of the program.
    tensors: Vec<Option<Tensor>>,
    outcome: Option<Result<()>>,
}

/// Runs that get their feeds one request after another, by step.
#[derive(Default)]
pub(super) struct PartialRuns(Mutex<HashMap<i64, Arc<Part>>>);

impl PartialRuns {
    fn get_or_begin(&self, step: i64, begin: impl FnOnce() -> Result<Arc<Part>>) -> Result<Arc<Part>> {
        let mut runs = self.0.lock();
        if let Some(part) = runs.get(&step) {
            return Ok(part.clone());
        }
        let part = begin()?;
        runs.insert(step, part.clone());
        Ok(part)
    }

    pub fn remove(&self, step: i64) {
        let removed = self.0.lock().remove(&step);
        // A run that has not ended ends with its step.
        if let Some(part) = removed
            && part.progress.borrow().outcome.is_none()
        {
            part.step.cancellation().cancel(cancelled!("The step was cleaned up").derived());
        }
    }
}

/// Cancels a step whose master has gone away, which drops the future that waits for it.
struct CancelOnDrop(Option<Arc<Step>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(step) = self.0.take() {
            step.cancellation().cancel(cancelled!("RunGraph was cancelled by its master").derived());
        }
    }
}

/// The number of the port for a key, whose fourth part is the name of the tensor.
fn port(ports: &[Port], key: &str) -> Option<usize> {
    let name = key.split(';').nth(3)?;
    ports.iter().position(|port| port.name == name)
}

fn success(request: &RunGraphRequest, tensors: Vec<Option<Tensor>>, part: &Part) -> Result<Frames> {
    let options = request.exec_opts.unwrap_or_default();
    let rest = records(&options, part);
    let mut named = Vec::with_capacity(tensors.len());
    for (key, tensor) in request.recv_key.iter().zip(tensors) {
        let tensor = tensor.ok_or_else(|| internal!("The tensor returned for {key} was not valid."))?;
        named.push((key.as_str(), tensor));
    }
    let named = EncodedNamed::new(RESPONSE_RECV, named);
    let mut frames = FramesBuilder::new(named.encoded_len() + rest.encoded_len())?;
    named.write(&mut frames);
    rest.encode_raw(frames.buffer());
    Ok(frames.finish())
}

/// What the master wants to know about the run.
fn records(options: &ExecutorOpts, part: &Part) -> RunGraphResponse {
    let mut records = RunGraphResponse { cost_graph: Some(CostGraphDef::default()), ..Default::default() };
    if let (true, Some(trace)) = (options.record_timeline, part.step.trace()) {
        records.step_stats = Some(step_stats(trace, &part.graph.graph));
    }
    if let (true, Some(trace)) = (options.record_costs, part.step.trace()) {
        records.cost_graph = Some(cost_graph(trace, &part.graph.graph));
    }
    if options.record_partition_graphs {
        records.partition_graph = partition_graphs(&part.graph.graph, part.graph.program.devices());
    }
    records
}

fn failure(status: &Status) -> Result<Frames> {
    let code = error::Code::try_from(status.code() as i32).unwrap_or(error::Code::Unknown);
    Frames::message(&RunGraphResponse {
        status_code: code.into(),
        status_error_message: status.message().to_owned(),
        ..Default::default()
    })
}
