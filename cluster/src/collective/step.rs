//! How one step takes part in collective operations.

use super::buffers::{Buffers, Wait};
use super::groups::{Applicant, Group};
use super::instances::{Terms, rank_of};
use super::{CollectiveState, instance_request, recv_buf};
use crate::grpc::{Channel, Frames};
use crate::peers::Peers;
use crate::task::{Task, attributes_of};
use graphmill_runtime::{
    CollectiveInstance, CollectiveMember, CollectivePart, Collectives, Device, Fetched, Joined, Step, Taken,
};
use graphmill_tensor::{DType, Result, Status, Tensor, aborted, deadline_exceeded, internal, invalid_argument};
use graphmill_wire::service::WorkerMethod;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The collective operations of one step on this task.
pub(crate) struct StepCollectives(Arc<Inner>);

struct Inner {
    step: i64,
    leader: String,
    peers: Arc<Peers>,
    state: Arc<CollectiveState>,
    buffers: Arc<Buffers>,
    ended: watch::Sender<Option<Status>>,
}

impl StepCollectives {
    /// For a step of a session whose tasks are `peers`.
    pub fn new(task: &Task, peers: &Arc<Peers>, leader: String, step: i64) -> Arc<StepCollectives> {
        let state = task.collectives.clone();
        let buffers = state.buffers.begin(step);
        let ended = watch::Sender::new(None);
        Arc::new(StepCollectives(Arc::new(Inner { step, leader, peers: peers.clone(), state, buffers, ended })))
    }

    /// Has the operations end with the step's cancellation.
    pub fn follow(&self, step: &Arc<Step>) {
        let (step_of, inner) = (Arc::downgrade(step), Arc::downgrade(&self.0));
        // A step that is new is not cancelled.
        let _ = step.cancellation().register(move || {
            if let (Some(step), Some(inner)) = (step_of.upgrade(), inner.upgrade())
                && let Some(reason) = step.cancellation().reason()
            {
                inner.end(&reason);
            }
        });
    }
}

impl Collectives for StepCollectives {
    fn join(&self, device: &Device, part: CollectivePart, joined: Joined) {
        let inner = self.0.clone();
        let applicant = Applicant {
            name: part.name.clone(),
            group_key: part.group_key,
            group_size: part.group_size,
            device_type: device.device_type().to_owned(),
            device: attributes_of(device),
        };
        if let Some(outcome) = inner.known(&applicant, &part) {
            return joined(outcome);
        }
        self.0.state.runtime.spawn(async move {
            let late = || deadline_exceeded!("Collective has timed out waiting for other workers.");
            let outcome = inner.within(part.timeout, late, inner.join(&applicant, &part)).await;
            joined(outcome);
        });
    }

    fn post(&self, instance: &CollectiveInstance, to: usize, key: String, buffer: Tensor, taken: Taken) {
        let member = match member(instance, to) {
            Ok(member) => member,
            Err(error) => return taken(Err(error)),
        };
        let waiting = self.0.buffers.waiting(wait_for(instance, member));
        let taken = move |outcome| {
            drop(waiting);
            taken(outcome);
        };
        self.0.buffers.post(&key, buffer, Box::new(taken));
    }

    fn fetch(
        &self,
        instance: &CollectiveInstance,
        from: usize,
        key: String,
        elements: (DType, usize),
        fetched: Fetched,
    ) {
        let member = match member(instance, from) {
            Ok(member) => member.clone(),
            Err(error) => return fetched(Err(error)),
        };
        let waiting = self.0.buffers.waiting(wait_for(instance, &member));
        if member.task == self.0.peers.own() {
            let fetched = move |outcome| {
                drop(waiting);
                fetched(outcome);
            };
            self.0.buffers.fetch(&key, Box::new(fetched));
            return;
        }
        let Some(channel) = self.0.peers.channel(&member.task).cloned() else {
            return fetched(Err(invalid_argument!("There is no task {} that could send {key}", member.task)));
        };
        let (inner, instance) = (self.0.clone(), instance.clone());
        self.0.state.runtime.spawn(async move {
            let late = || deadline_exceeded!("Collective has timed out during execution.");
            let call = inner.receive(&channel, &instance, &member, &key, elements);
            let outcome = inner.within(instance.timeout, late, call).await;
            drop(waiting);
            fetched(outcome);
        });
    }
}

impl Inner {
    /// What the members have agreed on already.
    fn known(&self, applicant: &Applicant, part: &CollectivePart) -> Option<Result<CollectiveInstance>> {
        let group = self.state.groups.complete(part.group_key)?;
        group.admit(applicant).ok()?;
        let terms = Terms::new(part, &applicant.device.name);
        match self.state.instances.known(&group, &terms) {
            Ok(None) => None,
            Ok(Some(source_rank)) => Some(agreed(&group, applicant, part, source_rank)),
            Err(error) => Some(Err(error)),
        }
    }

    async fn join(&self, applicant: &Applicant, part: &CollectivePart) -> Result<CollectiveInstance> {
        let device = &applicant.device.name;
        let waiting = self.buffers.waiting(Wait::Group(part.group_key, part.group_size));
        let group = self.state.group(&self.peers, &self.leader, applicant, part.kind.number()).await?;
        drop(waiting);
        let _waiting = self.buffers.waiting(Wait::Instance(part.group_key, part.instance_key));
        let request = || instance_request(part, device, &applicant.device_type);
        let terms = Terms::new(part, device);
        let source_rank = self.state.instance(&self.peers, &self.leader, &group, request, terms).await?;
        agreed(&group, applicant, part, source_rank)
    }

    async fn receive(
        &self,
        channel: &Channel,
        instance: &CollectiveInstance,
        member: &CollectiveMember,
        key: &str,
        (dtype, elements): (DType, usize),
    ) -> Result<Tensor> {
        let own = instance.members.get(instance.rank).map(|own| own.device.as_str()).unwrap_or_default();
        let id = self.state.random.next_non_zero().cast_signed();
        let request = recv_buf::request((self.step, id), key, member, own, elements.saturating_mul(dtype.size()));
        let answer = channel.call(WorkerMethod::RecvBuf.path(), Frames::message(&request)?, None).await;
        let answer = answer.map_err(|error| {
            self.state.forget_restarted(instance.group_key, &error);
            let CollectiveInstance { group_key, instance_key, .. } = instance;
            let text = format!(
                "{} did not give its part in instance {instance_key} of group {group_key}: {}",
                member.device,
                error.message()
            );
            error.with_message(text)
        })?;
        recv_buf::tensor(answer, dtype, elements)
    }

    /// Runs `work` until the step is cancelled or the time is over.
    async fn within<T>(
        &self,
        limit: Option<Duration>,
        late: impl FnOnce() -> Status,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut ended = self.ended.subscribe();
        let limit = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            outcome = work => outcome,
            reason = ended.wait_for(Option::is_some) => Err(match reason {
                Ok(reason) => reason.clone().unwrap_or_else(over),
                Err(_) => over(),
            }),
            () = limit => Err(late()),
        }
    }

    /// Ends what waits here, and tells members that ask later why.
    fn end(&self, reason: &Status) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert_with(|| reason.clone().derived());
            first
        });
        if let Some(missing) = self.state.missing(self.step) {
            tracing::info!(step = self.step, "a step ends that still waited for {missing}: {reason}");
        }
        let text = reason.message();
        let told = aborted!("Collective operations of the step were aborted on {}: {text}", self.peers.own());
        self.state.sequences.fail(self.step);
        self.state.buffers.fail(self.step, &self.buffers, told.derived());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.state.buffers.forget_if_idle(self.step, &self.buffers, 2);
    }
}

fn over() -> Status {
    internal!("The step ended while its collective operations went on").derived()
}

fn member(instance: &CollectiveInstance, rank: usize) -> Result<&CollectiveMember> {
    instance.members.get(rank).ok_or_else(|| internal!("The group {} has no rank {rank}", instance.group_key))
}

fn wait_for(instance: &CollectiveInstance, member: &CollectiveMember) -> Wait {
    Wait::Member(instance.group_key, instance.instance_key, member.device.clone())
}

fn agreed(
    group: &Group,
    applicant: &Applicant,
    part: &CollectivePart,
    source_rank: Option<usize>,
) -> Result<CollectiveInstance> {
    Ok(CollectiveInstance {
        members: group.members.clone(),
        rank: rank_of(group, &applicant.device.name)?,
        source_rank,
        group_key: part.group_key,
        instance_key: part.instance_key,
        timeout: part.timeout,
    })
}
