//! `PartialRunSetup`, and the `RunStep`s that feed and fetch a part of what was set up.

use super::prepared::Prepared;
use super::session::Session;
use super::{Master, remote_parts, run_step, step_reply};
use crate::grpc::{Frames, MessageBytes, decode};
use crate::running::Running;
use graphmill_graph::{Graph, Signature};
use graphmill_runtime::{PartialRun, Port, Step};
use graphmill_tensor::{Result, Status, Tensor, deadline_exceeded, internal, invalid_argument, not_found};
use graphmill_wire::tensorflow::{
    ExecutorOpts, NamedTensorProto, PartialRunSetupRequest, PartialRunSetupResponse, RunGraphResponse, RunMetadata,
    RunStepRequest,
};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

/// The partial runs of a session that have not ended.
#[derive(Default)]
pub(super) struct PartialRuns(Mutex<Live>);

#[derive(Default)]
struct Live {
    next: u64,
    runs: HashMap<String, Arc<Partial>>,
}

/// One run, from its setup to its last fetch.
struct Partial {
    prepared: Arc<Prepared>,
    /// The session's graph at the time of the setup.
    graph: Arc<Graph>,
    step: Arc<Step>,
    progress: Mutex<Progress>,
    news: Notify,
}

struct Progress {
    /// Declared feeds and fetches, and whether they have been used.
    feeds: HashMap<String, bool>,
    fetches: HashMap<String, bool>,
    /// The run, once a request has begun it.
    run: Option<PartialRun>,
    /// What has been fetched, in the order of the program.
    tensors: Vec<Option<Tensor>>,
    outcome: Option<Result<()>>,
    /// What other tasks say of their parts, in the end.
    reports: Vec<RunGraphResponse>,
}

impl PartialRuns {
    /// Handles count from 0.
    fn add(&self, partial: Partial) -> String {
        let mut live = self.0.lock();
        let handle = live.next.to_string();
        live.next += 1;
        live.runs.insert(handle.clone(), Arc::new(partial));
        handle
    }

    fn get(&self, handle: &str) -> Result<Arc<Partial>> {
        let found = self.0.lock().runs.get(handle).cloned();
        found.ok_or_else(|| invalid_argument!("Must run PartialRunSetup before performing partial runs"))
    }

    fn remove(&self, handle: &str) {
        let removed = self.0.lock().runs.remove(handle);
        // A program is freed outside the lock.
        drop(removed);
    }
}

impl Master {
    /// Declares what the steps of a partial run will feed and fetch.
    ///
    /// # Errors
    /// As for a step with the same names.
    pub(super) async fn partial_run_setup(&self, message: MessageBytes) -> Result<Frames> {
        let request: PartialRunSetupRequest = decode(message)?;
        let PartialRunSetupRequest { session_handle, feed, fetch, target, request_id, .. } = &request;
        let describe = || format!("session_handle: \"{session_handle}\" request_id: {request_id}");
        self.request_ids.lock().note(*request_id, "PartialRunSetup (Master)", describe)?;
        let session = self.session(session_handle)?;
        let graph = session.graph();
        let signature = Signature::new(feed.clone(), fetch.clone(), target.clone());
        let prepared = session.build(&self.task, graph.clone(), signature, 0).await?;
        let unused = |names: &[String]| names.iter().map(|name| (name.clone(), false)).collect();
        let progress = Progress {
            feeds: unused(feed),
            fetches: unused(fetch),
            run: None,
            tensors: vec![None; prepared.program.fetches().len()],
            outcome: None,
            reports: Vec::new(),
        };
        let step = self.new_step(&session, &prepared, ExecutorOpts::default(), None).await?;
        let partial = Partial { prepared, graph, step, progress: Mutex::new(progress), news: Notify::new() };
        Frames::message(&PartialRunSetupResponse { partial_run_handle: session.partial_runs.add(partial) })
    }

    /// Runs the next part: gives feeds and waits for fetches, after the last of them for the end.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for names that were not set up, come again, or need feeds that are still to come, after which the run
    /// goes on; what the step fails with, after which it is over.
    pub(super) async fn partial_step(
        &self,
        session: &Arc<Session>,
        request: &RunStepRequest,
        deadline: Option<Instant>,
    ) -> Result<Frames> {
        let handle = &request.partial_run_handle;
        let partial = session.partial_runs.get(handle)?;
        let last = partial.check(request)?;
        let options = request.options.as_ref();
        if run_step::is_traced(options) {
            partial.step.start_trace();
        }
        let mut cancel = run_step::CancelOnDrop::new(&partial.step);
        let outcome = match self.advance(session, &partial, request) {
            Ok(()) => partial.wait_for(&request.fetch, last, deadline).await,
            Err(error) => Some(Err(error)),
        };
        cancel.disarm();
        if last || !matches!(outcome, Some(Ok(_))) {
            session.partial_runs.remove(handle);
        }
        let tensors = match outcome {
            Some(outcome) => outcome.map_err(|error| {
                partial.step.cancellation().cancel(error.clone());
                self.step_error(session, error)
            })?,
            None => {
                let error = deadline_exceeded!("Deadline Exceeded");
                partial.step.cancellation().cancel(error.clone());
                return Err(error);
            }
        };
        let named = request.fetch.iter().map(String::as_str).zip(tensors).collect();
        let wanted = run_step::executor_options(options);
        let metadata =
            last.then(|| run_step::metadata(wanted, &partial.prepared, &partial.step, partial.take_reports()));
        step_reply::named_tensors(named, &metadata.unwrap_or_else(RunMetadata::default))
    }

    /// Begins the run if this is its first part, and gives it the feeds.
    fn advance(&self, session: &Arc<Session>, partial: &Arc<Partial>, request: &RunStepRequest) -> Result<()> {
        let begun = partial.progress.lock().run.clone();
        let run = match begun {
            Some(run) => run,
            None => {
                let running = session.running.begin(&partial.step)?;
                self.begin(session, partial, running)
            }
        };
        let program = &partial.prepared.program;
        for NamedTensorProto { name, tensor } in &request.feed {
            let tensor = match tensor.as_ref().map(Tensor::from_proto) {
                Some(Ok(tensor)) => tensor,
                _ => return Err(invalid_argument!("Invalid TensorProto for feed value {name}")),
            };
            // A feed that nothing needs is not in the program.
            if let Some(port) = port(program.feeds(), name) {
                run.feed(port, tensor)?;
            }
        }
        Ok(())
    }

    /// Begins the run on all tasks. Parts on other tasks run as in any step, as feeds and fetches are on this one.
    fn begin(&self, session: &Session, partial: &Arc<Partial>, running: Running) -> PartialRun {
        let (on_fetch, on_end) = (Arc::downgrade(partial), Arc::downgrade(partial));
        let (sender, local) = oneshot::channel();
        let (task, own) = (self.task.clone(), session.workers.peers.own().to_owned());
        let (prepared, step) = (partial.prepared.clone(), partial.step.clone());
        self.task.runtime.spawn(async move {
            let options = run_step::executor_options(None);
            let outcome = remote_parts::run(&task, &own, &prepared.remote, &step, options, local).await;
            drop(running);
            let Some(partial) = on_end.upgrade() else { return };
            let mut progress = partial.progress.lock();
            progress.outcome = Some(outcome.map(|((), reports)| progress.reports = reports));
            partial.news.notify_waiters();
        });
        let run = self.task.executor.run_partially(
            &partial.prepared.program,
            partial.step.clone(),
            move |number, tensor| {
                let Some(partial) = on_fetch.upgrade() else { return };
                if let Some(place) = partial.progress.lock().tensors.get_mut(number) {
                    *place = Some(tensor);
                }
                partial.news.notify_waiters();
            },
            move |outcome| {
                let _ = sender.send(outcome);
            },
        );
        partial.progress.lock().run = Some(run.clone());
        run
    }
}

impl Partial {
    fn take_reports(&self) -> Vec<RunGraphResponse> {
        std::mem::take(&mut self.progress.lock().reports)
    }

    /// Checks a request and notes its names as used. Yields whether nothing is left to feed or fetch after it.
    fn check(&self, request: &RunStepRequest) -> Result<bool> {
        let mut progress = self.progress.lock();
        for name in request.feed.iter().map(|feed| &feed.name) {
            match progress.feeds.get(name) {
                None => return Err(invalid_argument!("The feed {name} was not specified in partial_run_setup.")),
                Some(true) => return Err(invalid_argument!("The feed {name} has already been fed.")),
                Some(false) => {}
            }
        }
        for name in &request.fetch {
            match progress.fetches.get(name) {
                None => return Err(invalid_argument!("The fetch {name} was not specified in partial_run_setup.")),
                Some(true) => return Err(invalid_argument!("The fetch {name} has already been fetched.")),
                Some(false) => {}
            }
        }
        self.check_fetches(&progress, request)?;
        let Progress { feeds, fetches, .. } = &mut *progress;
        for name in request.feed.iter().map(|feed| &feed.name) {
            feeds.insert(name.clone(), true);
        }
        for name in &request.fetch {
            fetches.insert(name.clone(), true);
        }
        Ok(feeds.values().chain(fetches.values()).all(|&used| used))
    }

    /// Checks that no fetch needs a feed that is still to come.
    fn check_fetches(&self, progress: &Progress, request: &RunStepRequest) -> Result<()> {
        let now: HashSet<&str> = request.feed.iter().map(|feed| feed.name.as_str()).collect();
        let pending: HashSet<String> = progress
            .feeds
            .iter()
            .filter(|(name, fed)| !**fed && !now.contains(name.as_str()))
            .map(|(name, _)| Signature::tensor_name(name))
            .collect();
        let mut stack = Vec::with_capacity(request.fetch.len());
        for fetch in &request.fetch {
            let name = fetch.split(':').next().unwrap_or_default();
            stack.push(self.graph.find(name).ok_or_else(|| not_found!("Fetch {fetch}: not found"))?);
        }
        let mut visited: HashSet<_> = stack.iter().copied().collect();
        while let Some(id) = stack.pop() {
            let node = self.graph.node(id);
            for input in &node.inputs {
                let source = format!("{}:{}", self.graph.node(input.node).name, input.slot);
                if pending.contains(&source) {
                    return Err(invalid_argument!(
                        "Fetch {source} can't be computed from the feeds that have been fed so far."
                    ));
                }
            }
            let sources = node.inputs.iter().map(|input| input.node).chain(node.control_inputs.iter().copied());
            stack.extend(sources.filter(|&source| visited.insert(source)));
        }
        Ok(())
    }

    /// Waits for tensors, in the order of their names, and with `last` for the end of the run. `None` if the deadline passes.
    async fn wait_for(&self, fetches: &[String], last: bool, deadline: Option<Instant>) -> Option<Result<Vec<Tensor>>> {
        let arrived = async {
            loop {
                let news = self.news.notified();
                if let Some(result) = self.ready(fetches, last) {
                    return result;
                }
                news.await;
            }
        };
        match deadline {
            None => Some(arrived.await),
            Some(deadline) => timeout_at(deadline, arrived).await.ok(),
        }
    }

    fn ready(&self, fetches: &[String], last: bool) -> Option<Result<Vec<Tensor>>> {
        let progress = self.progress.lock();
        let ended: Option<std::result::Result<(), Status>> = progress.outcome.clone();
        match ended {
            Some(Err(error)) => return Some(Err(error)),
            None if last => return None,
            _ => {}
        }
        let tensor = |name: &String| progress.tensors.get(port(self.prepared.program.fetches(), name)?)?.clone();
        match fetches.iter().map(tensor).collect::<Option<Vec<Tensor>>>() {
            Some(tensors) => Some(Ok(tensors)),
            None if ended.is_some() => Some(Err(internal!("The step has given too few tensors"))),
            None => None,
        }
    }
}

/// The number of the port that a feed or fetch has.
fn port(ports: &[Port], name: &str) -> Option<usize> {
    let name = Signature::tensor_name(name);
    ports.iter().position(|port| port.name == name)
}
