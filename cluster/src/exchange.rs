//! What the parts of steps exchange, within this task and with others.

use crate::Random;
use crate::collective::StepCollectives;
use crate::grpc::Frames;
use crate::peers::{Peers, task_of};
use crate::task::Task;
use crate::waits::Receives;
use bytes::Bytes;
use graphmill_runtime::{LocalRendezvous, Parcel, Receiver, Rendezvous, Step};
use graphmill_tensor::{Code, Result, Status, Tensor, internal, invalid_argument, payload};
use graphmill_wire::service::WorkerMethod;
use graphmill_wire::tensorflow::{RecvTensorRequest, RecvTensorResponse};
use parking_lot::Mutex;
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// After this time a receive says in the log what it waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The rendezvous of the steps that have parts on this task, by step id. A receive may come before its step begins here.
#[derive(Default)]
pub(crate) struct Exchanges(Mutex<HashMap<i64, Arc<LocalRendezvous>>>);

impl Exchanges {
    /// That of a step, made by the first who asks.
    pub fn of(&self, step: i64) -> Arc<LocalRendezvous> {
        self.0.lock().entry(step).or_default().clone()
    }

    /// Forgets a step. Who still waits in it gets `reason`.
    pub fn end(&self, step: i64, reason: Status) {
        let ended = self.0.lock().remove(&step);
        if let Some(rendezvous) = ended {
            rendezvous.abort(reason);
        }
    }

    /// Forgets a step in which nothing is left and that nobody else holds: a receive that came too late had made it.
    pub fn forget_if_idle(&self, step: i64, rendezvous: Arc<LocalRendezvous>) {
        let mut all = self.0.lock();
        let held_elsewhere = Arc::strong_count(&rendezvous) > 2;
        if !held_elsewhere && rendezvous.is_idle() && all.get(&step).is_some_and(|held| Arc::ptr_eq(held, &rendezvous))
        {
            all.remove(&step);
        }
    }

    /// The rendezvous of each step.
    pub fn list(&self) -> Vec<(i64, Arc<LocalRendezvous>)> {
        self.0.lock().iter().map(|(&step, rendezvous)| (step, rendezvous.clone())).collect()
    }

    /// How many steps have a rendezvous.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// A step that may take part in collective operations, of which the task `leader` leads the groups.
pub(crate) fn step_alone(task: &Task, peers: &Arc<Peers>, id: i64, leader: Option<&str>) -> Arc<Step> {
    with_collectives(Step::new(id), task, peers, leader)
}

/// As [`step_alone`] for a step that has parts on other tasks, and where it exchanges tensors with them. Its cancellation ends the
/// exchange.
pub(crate) fn step_with_exchange(
    task: &Task,
    peers: &Arc<Peers>,
    id: i64,
    leader: Option<&str>,
) -> (Arc<Step>, Arc<dyn Rendezvous>) {
    let exchange = StepExchange {
        step: id,
        local: task.exchanges.of(id),
        peers: peers.clone(),
        runtime: task.runtime.clone(),
        random: task.random.clone(),
        receives: task.receives.clone(),
        ended: watch::Sender::new(None),
    };
    let exchange: Arc<dyn Rendezvous> = Arc::new(exchange);
    let step = with_collectives(Step::new(id).with_rendezvous(exchange.clone()), task, peers, leader);
    let (of_step, of_exchange) = (Arc::downgrade(&step), Arc::downgrade(&exchange));
    // A step that is new is not cancelled.
    let _ = step.cancellation().register(move || {
        if let (Some(step), Some(exchange)) = (of_step.upgrade(), of_exchange.upgrade())
            && let Some(reason) = step.cancellation().reason()
        {
            exchange.abort(reason);
        }
    });
    (step, exchange)
}

fn with_collectives(step: Step, task: &Task, peers: &Arc<Peers>, leader: Option<&str>) -> Arc<Step> {
    let Some(leader) = leader else { return Arc::new(step) };
    let collectives = StepCollectives::new(task, peers, leader.to_owned(), step.id());
    let step = Arc::new(step.with_collectives(collectives.clone()));
    collectives.follow(&step);
    step
}

/// The exchange of one step as one of its parts sees it: values from other tasks are asked for with `RecvTensor`.
struct StepExchange {
    step: i64,
    local: Arc<LocalRendezvous>,
    peers: Arc<Peers>,
    runtime: Handle,
    random: Arc<Random>,
    receives: Arc<Receives>,
    ended: watch::Sender<Option<Status>>,
}

impl StepExchange {
    fn receive_from(&self, task: &str, key: &Arc<str>, receiver: Receiver) {
        let Some(channel) = self.peers.channel(task).cloned() else {
            return receiver(Err(invalid_argument!("There is no task {task} that could send {key}")));
        };
        let mut ended = self.ended.subscribe();
        let (key, step) = (key.clone(), self.step);
        let request = RecvTensorRequest {
            step_id: step,
            rendezvous_key: key.to_string(),
            request_id: self.random.next_non_zero().cast_signed(),
            ..Default::default()
        };
        let noted = self.receives.note(step, key.clone());
        self.runtime.spawn(async move {
            let call = async {
                let message = Frames::message(&request)?;
                let answer = channel.call(WorkerMethod::RecvTensor.path(), message, None).await;
                decode_received(answer.map_err(consequence)?)
            };
            let told = async {
                loop {
                    tokio::time::sleep(PATIENCE).await;
                    tracing::info!(step, "still waiting for {} to send {key}", channel.task());
                }
            };
            let outcome = tokio::select! {
                outcome = call => outcome,
                reason = ended.wait_for(Option::is_some) => Err(match reason {
                    Ok(reason) => reason.clone().unwrap_or_else(over),
                    Err(_) => over(),
                }),
                () = told => Err(over()),
            };
            drop(noted);
            receiver(outcome);
        });
    }
}

/// An error of a part of the step on another task is reported by that part, and here only its consequence. A task that is gone or
/// began anew reports nothing.
fn consequence(error: Status) -> Status {
    let restarted = error.payloads().iter().any(|(key, _)| key == payload::WORKER_POSSIBLY_RESTARTED);
    if restarted || error.code() == Code::Unavailable { error } else { error.derived() }
}

fn over() -> Status {
    internal!("The step ended while it received a tensor").derived()
}

fn decode_received(message: Bytes) -> Result<Parcel> {
    let response = RecvTensorResponse::decode(message)
        .map_err(|error| internal!("The answer to RecvTensor cannot be read: {error}"))?;
    // A dead value has a type of its own, whatever was asked for.
    if response.is_dead {
        return Ok(None);
    }
    let proto = response.tensor.ok_or_else(|| internal!("The answer to RecvTensor has no tensor"))?;
    Tensor::from_proto(&proto).map(Some)
}

impl Rendezvous for StepExchange {
    fn send(&self, key: &Arc<str>, value: Parcel) -> Result<()> {
        self.local.send(key, value)
    }

    fn receive(&self, key: &Arc<str>, receiver: Receiver) {
        let task = task_of(key.split(';').next().unwrap_or_default());
        if task == self.peers.own() {
            return self.local.receive(key, receiver);
        }
        let over_grpc = match self.peers.stream(task) {
            Some(stream) => {
                let marked = Box::new(move |outcome: Result<Parcel>| receiver(outcome.map_err(consequence)));
                stream.receive(&self.runtime, self.step, key, marked)
            }
            None => Err(receiver),
        };
        if let Err(receiver) = over_grpc {
            self.receive_from(task, key, receiver);
        }
    }

    fn abort(&self, reason: Status) {
        // The part of the step that failed reports the reason itself; what fails because of it is its consequence.
        let reason = reason.derived();
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert_with(|| reason.clone());
            first
        });
        self.peers.streams().for_each(|stream| stream.abort(self.step, &reason));
        self.local.abort(reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::cancelled;

    #[test]
    fn steps_without_anything_left_are_forgotten() {
        let exchanges = Exchanges::default();
        let key: Arc<str> = Arc::from("k");
        let rendezvous = exchanges.of(1);
        let waiting = rendezvous.receive_or_wait(&key, Box::new(|_| {})).unwrap();
        exchanges.forget_if_idle(1, rendezvous.clone());
        assert_eq!(exchanges.len(), 1);
        rendezvous.withdraw(&key, waiting);
        exchanges.forget_if_idle(1, rendezvous);
        assert_eq!(exchanges.len(), 0);
    }

    #[test]
    fn the_end_of_a_step_is_told_to_those_who_wait() {
        let exchanges = Exchanges::default();
        let (sender, outcome) = std::sync::mpsc::channel();
        exchanges.of(1).receive(&Arc::from("k"), Box::new(move |value| sender.send(value).unwrap()));
        exchanges.end(1, cancelled!("over"));
        exchanges.end(2, cancelled!("over"));
        assert_eq!(outcome.recv().unwrap().err().unwrap().message(), "over");
        assert_eq!(exchanges.len(), 0);
    }
}
