//! Functions that other tasks run: each is a graph that is registered there, and each call a run of it.

use crate::Random;
use crate::grpc::{Channel, Frames, decode};
use crate::master::{FAREWELL, RemotePart, tell};
use crate::peers::{Peers, task_of};
use crate::task::Task;
use graphmill_graph::{REMOTE_INCARNATION, ROOT_FRAME_ID, RemoteBody, RendezvousKey};
use graphmill_runtime::{RemoteFunction, RemoteTasks, Step};
use graphmill_tensor::{Result, Status, Tensor, cancelled, internal, invalid_argument};
use graphmill_wire::service::WorkerMethod;
use graphmill_wire::tensorflow::{
    CleanupGraphRequest, GraphOptions, NamedTensorProto, OptimizerOptions, RunGraphRequest, RunGraphResponse,
};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, oneshot};

/// The other tasks of a session, as its functions call on them.
pub(crate) struct RemoteFunctions(Arc<Inner>);

struct Inner {
    peers: Arc<Peers>,
    /// The session's handle; empty for that of masters which make none.
    session: String,
    random: Arc<Random>,
    runtime: Handle,
}

impl RemoteFunctions {
    /// For a session that has this handle on all its tasks.
    pub fn new(task: &Task, peers: &Arc<Peers>, session: &str) -> Arc<RemoteFunctions> {
        Arc::new(RemoteFunctions(Arc::new(Inner {
            peers: peers.clone(),
            session: session.to_owned(),
            random: task.random.clone(),
            runtime: task.runtime.clone(),
        })))
    }
}

impl RemoteTasks for RemoteFunctions {
    fn function(&self, device: &str, body: RemoteBody) -> Result<Arc<dyn RemoteFunction>> {
        let Some(channel) = self.0.peers.channel(task_of(device)).cloned() else {
            let known: Vec<&str> = self.0.peers.others().map(|channel| channel.task()).collect();
            return Err(invalid_argument!(
                "Could not find worker with target: {device} Available workers: {}",
                known.join(", ")
            ));
        };
        let key = |name: &String| {
            let key = RendezvousKey {
                send_device: device,
                send_device_incarnation: REMOTE_INCARNATION,
                recv_device: device,
                tensor_name: name,
                frame_id: ROOT_FRAME_ID,
                iteration: 0,
            };
            key.to_string()
        };
        let (args, results) = (body.args.iter().map(key).collect(), body.results.iter().map(key).collect());
        Ok(Arc::new(OnTask { session: self.0.clone(), channel, body, args, results, part: OnceCell::new() }))
    }
}

/// A function on a device of another task.
struct OnTask {
    session: Arc<Inner>,
    channel: Arc<Channel>,
    body: RemoteBody,
    /// The keys of the arguments and of the results.
    args: Vec<String>,
    results: Vec<String>,
    /// The graph on the other task, once a call has registered it.
    part: OnceCell<RemotePart>,
}

impl RemoteFunction for OnTask {
    fn call(self: Arc<Self>, step: &Arc<Step>, args: Vec<Tensor>, done: Box<dyn FnOnce(Result<Vec<Tensor>>) + Send>) {
        let (sender, ended) = oneshot::channel();
        let callback = step.cancellation().register(move || {
            // Nobody waits any more if the call has ended.
            let _ = sender.send(());
        });
        let reason = |step: &Step| {
            step.cancellation().reason().unwrap_or_else(|| cancelled!("The step was cancelled").derived())
        };
        let Some(callback) = callback else { return done(Err(reason(step))) };
        let (function, step) = (self, step.clone());
        let runtime = function.session.runtime.clone();
        runtime.spawn(async move {
            let outcome = tokio::select! {
                outcome = function.run(args) => outcome,
                _ = ended => Err(reason(&step)),
            };
            step.cancellation().deregister(callback);
            drop(step);
            done(outcome);
        });
    }
}

impl OnTask {
    async fn run(&self, args: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let part = self.part.get_or_try_init(|| self.register()).await?;
        if args.len() != self.args.len() {
            return Err(invalid_argument!("Expects {} arguments, but {} is provided", self.args.len(), args.len()));
        }
        let named = self
            .args
            .iter()
            .zip(&args)
            .map(|(key, arg)| NamedTensorProto { name: key.clone(), tensor: Some(arg.to_proto()) });
        let step_id = self.session.random.next().cast_signed();
        let request = RunGraphRequest {
            step_id,
            send: named.collect(),
            recv_key: self.results.clone(),
            request_id: self.session.random.next_non_zero().cast_signed(),
            ..part.run_graph_request()
        };
        drop(args);
        let message = Frames::message(&request)?;
        drop(request);
        let _cleanup = CleanUp { channel: self.channel.clone(), runtime: self.session.runtime.clone(), step_id };
        let answer = self.channel.call(WorkerMethod::RunGraph.path(), message, None).await;
        let answer = answer.map_err(|error| self.named(error))?;
        let mut received: HashMap<String, _> =
            decode::<RunGraphResponse>(answer)?.recv.into_iter().map(|named| (named.name, named.tensor)).collect();
        let take = |key: &String| match received.remove(key).flatten() {
            Some(tensor) => Tensor::from_proto(&tensor),
            None => Err(internal!("Could not find key: {key}")),
        };
        self.results.iter().map(take).collect()
    }

    async fn register(&self) -> Result<RemotePart> {
        let optimizer = OptimizerOptions { do_function_inlining: true, ..Default::default() };
        let options = GraphOptions { optimizer_options: Some(optimizer), ..Default::default() };
        let Inner { session, runtime, .. } = &*self.session;
        let terms = (Some(options), None);
        RemotePart::register(runtime, self.channel.clone(), session.clone(), &self.body.graph, terms, 0).await
    }

    /// An error with the name of the task that it comes from.
    fn named(&self, error: Status) -> Status {
        crate::aggregate::from_task(error, self.channel.task())
    }
}

/// Has the other task forget what a call has left.
struct CleanUp {
    channel: Arc<Channel>,
    runtime: Handle,
    step_id: i64,
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        let (channels, request) = ([self.channel.clone()], CleanupGraphRequest { step_id: self.step_id });
        self.runtime.spawn(async move {
            let all = tell(&channels, WorkerMethod::CleanupGraph, || Frames::message(&request));
            if tokio::time::timeout(FAREWELL, all).await.is_err() {
                tracing::debug!(step = request.step_id, "a task was not told that a call has ended");
            }
        });
    }
}
