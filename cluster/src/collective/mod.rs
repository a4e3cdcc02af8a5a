//! Collective operations between tasks: groups, the operations that their members agree on, buffers, and the numbers of steps.

mod buffers;
mod groups;
mod instances;
mod leader;
mod recv_buf;
mod sequences;
mod services;
mod step;

pub(crate) use leader::Leader;
pub(crate) use step::StepCollectives;

use crate::Random;
use crate::grpc::{Channel, Frames};
use crate::peers::Peers;
use buffers::{StepBuffers, Wait};
use bytes::Bytes;
use graphmill_graph::Graph;
use graphmill_runtime::CollectivePart;
use graphmill_tensor::{Code, Result, Status, aborted, encode_shape, internal, invalid_argument};
use graphmill_wire::service::WorkerMethod;
use graphmill_wire::tensorflow::{
    CompleteGroupRequest, CompleteGroupResponse, CompleteInstanceRequest, CompleteInstanceResponse,
    GetStepSequenceRequest, GetStepSequenceResponse,
};
use groups::{Applicant, Group, Groups};
use instances::{Instances, Terms};
use prost::Message;
use sequences::{Sequences, graph_key};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Length of the key by which the members of a group know each other.
const COMMUNICATOR_KEY: usize = 128;
/// How often, and at which distance, the leader is asked for the number of the next step while it still names one that has failed.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// What a task knows of collective operations.
pub(crate) struct CollectiveState {
    pub leader: Leader,
    groups: Groups,
    instances: Instances,
    buffers: StepBuffers,
    sequences: Sequences,
    /// Longest piece of a buffer for those who do not say that they take longer ones.
    chunk: usize,
    random: Arc<Random>,
    runtime: Handle,
}

impl CollectiveState {
    /// `chunk` is the longest piece in which buffers are sent, 0 for the usual one, negative for no limit.
    pub fn new(leader: Leader, chunk: i64, random: Arc<Random>, runtime: Handle) -> CollectiveState {
        CollectiveState {
            leader,
            groups: Groups::default(),
            instances: Instances::default(),
            buffers: StepBuffers::default(),
            sequences: Sequences::default(),
            chunk: if chunk == 0 { recv_buf::CHUNK } else { usize::try_from(chunk).unwrap_or(usize::MAX) },
            random,
            runtime,
        }
    }

    /// The group of a device, when all its members are there.
    async fn group(&self, peers: &Peers, leader: &str, applicant: &Applicant, kind: i32) -> Result<Arc<Group>> {
        let key = applicant.group_key;
        let outcome = match channel(peers, leader)? {
            None => self.groups.join(applicant, || self.communicator_key()).await,
            Some(channel) => match self.groups.complete(key) {
                Some(group) if group.admit(applicant).is_ok() => Ok(group),
                _ => self.ask_for_group(channel, applicant, kind).await,
            },
        };
        outcome.inspect_err(|error| self.forget_restarted(key, error))
    }

    async fn ask_for_group(&self, channel: &Channel, applicant: &Applicant, kind: i32) -> Result<Arc<Group>> {
        let request = CompleteGroupRequest {
            group_key: applicant.group_key,
            group_size: size(applicant.group_size)?,
            device_type: applicant.device_type.clone(),
            collective_type: kind,
            device_attributes: Some(applicant.device.clone()),
        };
        let response: CompleteGroupResponse = ask(channel, WorkerMethod::CompleteGroup, &request, None).await?;
        let group = Arc::new(Group::from_response(response)?);
        group.admit(applicant)?;
        self.groups.remember(group.clone());
        Ok(group)
    }

    /// What the members of a group agree on for an operation: the rank of the source, if it is a broadcast.
    async fn instance(
        &self,
        peers: &Peers,
        leader: &str,
        group: &Group,
        request: impl FnOnce() -> Result<CompleteInstanceRequest>,
        terms: Terms,
    ) -> Result<Option<usize>> {
        let Some(channel) = channel(peers, leader)? else { return self.instances.agree(group, &terms).await };
        if let Some(known) = self.instances.known(group, &terms)? {
            return Ok(known);
        }
        let response: Result<CompleteInstanceResponse> =
            ask(channel, WorkerMethod::CompleteInstance, &request()?, None).await;
        let response = response.inspect_err(|error| self.forget_restarted(group.key, error))?;
        let source_rank = usize::try_from(response.source_rank).ok().filter(|&rank| rank < group.members.len());
        self.instances.remember(group, terms, source_rank);
        Ok(source_rank)
    }

    /// Has a group gathered anew where an error says that a member is not what it was.
    fn forget_restarted(&self, group: i32, error: &Status) {
        if error.code() == Code::FailedPrecondition {
            self.groups.forget(group);
            self.instances.forget_group(group);
        }
    }

    fn communicator_key(&self) -> Bytes {
        (0..COMMUNICATOR_KEY / 8).flat_map(|_| self.random.next().to_le_bytes()).collect()
    }

    /// The number of the next step of a graph.
    ///
    /// # Errors
    /// What the leader answers, `DEADLINE_EXCEEDED` if it cannot be reached by `limit`.
    pub async fn next_step(&self, peers: &Peers, leader: &str, key: i64, limit: Option<Instant>) -> Result<i64> {
        let Some(channel) = channel(peers, leader)? else {
            return Ok(self.sequences.lead(key, || self.random.next()));
        };
        if let Some(next) = self.sequences.next(key) {
            return Ok(next);
        }
        let request = GetStepSequenceRequest { graph_key: vec![key] };
        let mut attempts = 1;
        loop {
            let response: GetStepSequenceResponse =
                ask(channel, WorkerMethod::GetStepSequence, &request, limit).await?;
            let found = response.step_sequence.iter().find(|sequence| sequence.graph_key == key);
            let next = found.ok_or_else(|| internal!("{leader} has not said which step comes next"))?.next_step_id;
            // The leader may still learn of the failure itself.
            if attempts == ATTEMPTS || !self.sequences.has_failed(key, next) {
                self.sequences.set(key, next);
                return Ok(next);
            }
            attempts += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Counts a step of a graph that has ended.
    pub fn retire_step(&self, key: i64, step: i64, succeeded: bool) {
        if succeeded {
            self.sequences.retire(key, step);
        } else {
            self.sequences.fail(step);
        }
    }

    /// Forgets what a step has left.
    pub fn clean_up(&self, step: i64) {
        self.buffers.clean_up(step, aborted!("Cleanup {step}").derived());
    }

    /// What a step waits for, in words; `None` if for nothing.
    pub fn missing(&self, step: i64) -> Option<String> {
        let waits: BTreeSet<Wait> = self.buffers.waits(step).into_iter().collect();
        let mut members: BTreeMap<(i32, i32), Vec<String>> = BTreeMap::new();
        let mut texts = Vec::new();
        for wait in waits {
            match wait {
                Wait::Group(key, size) => {
                    let present = self.groups.present(key);
                    texts.push(match present.len() {
                        0 => format!("the {size} members of group {key} to be there"),
                        count => format!(
                            "{} of the {size} members of group {key}, to which only {} have come",
                            size.saturating_sub(count),
                            present.join(", ")
                        ),
                    });
                }
                Wait::Instance(group, instance) => {
                    texts.push(format!("the members of group {group} to agree on instance {instance}"));
                }
                Wait::Member(group, instance, device) => {
                    members.entry((group, instance)).or_default().push(device);
                }
            }
        }
        for ((group, instance), devices) in members {
            texts.push(format!("{} in instance {instance} of group {group}", devices.join(", ")));
        }
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// The way to the leader; `None` if that is the own task.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is no such task.
fn channel<'a>(peers: &'a Peers, leader: &str) -> Result<Option<&'a Arc<Channel>>> {
    if leader == peers.own() {
        return Ok(None);
    }
    match peers.channel(leader) {
        Some(channel) => Ok(Some(channel)),
        None => Err(invalid_argument!("The leader of collective operations, {leader}, is not a task of the cluster")),
    }
}

async fn ask<A: Message + Default>(
    channel: &Channel,
    method: WorkerMethod,
    request: &impl Message,
    limit: Option<Instant>,
) -> Result<A> {
    let answer = channel.call_when_ready(method.path(), || Frames::message(request), limit).await;
    let answer = answer.map_err(|error| error.from_task(channel.task()))?;
    A::decode(answer).map_err(|error| internal!("The answer to {} cannot be read: {error}", method.name()))
}

fn size(size: usize) -> Result<i32> {
    i32::try_from(size).map_err(|_| invalid_argument!("A group cannot have {size} members"))
}

fn instance_request(part: &CollectivePart, device: &str, device_type: &str) -> Result<CompleteInstanceRequest> {
    Ok(CompleteInstanceRequest {
        name: part.name.clone(),
        r#type: part.kind.number(),
        data_type: part.dtype.number(),
        shape: Some(encode_shape(&part.shape)),
        group_key: part.group_key,
        group_size: size(part.group_size)?,
        instance_key: part.instance_key,
        device_type: device_type.to_owned(),
        subdiv_offset: part.subdiv_offsets.clone(),
        device: device.to_owned(),
        is_source: part.is_source,
        step_id: 0,
    })
}

/// The key of a graph, by its collective operations.
pub(crate) fn key_of_graph(graph: &Graph) -> i64 {
    let mut keys = Vec::new();
    let mut has_dynamic_keys = false;
    for (_, node) in graph.nodes().filter(|(_, node)| node.op_name().starts_with("Collective")) {
        match node.attrs.int("instance_key") {
            Ok(key) => keys.push(key),
            Err(_) => has_dynamic_keys |= node.op_name() != "CollectiveAssignGroupV2",
        }
    }
    graph_key(keys, has_dynamic_keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use graphmill_runtime::CollectiveKind;
    use graphmill_tensor::{DType, Shape};

    const DEVICE: &str = "/job:worker/replica:0/task:1/device:CPU:0";

    fn part(name: &str, kind: CollectiveKind, length: usize, instance_key: i32) -> CollectivePart {
        let subdiv_offsets = if kind == CollectiveKind::Gather { Vec::new() } else { vec![0] };
        CollectivePart {
            name: name.to_owned(),
            kind,
            dtype: DType::Float,
            shape: Shape::vector(length),
            group_key: 100,
            group_size: 2,
            instance_key,
            subdiv_offsets,
            is_source: false,
            is_stateless: false,
            timeout: None,
        }
    }

    /// Requests of TensorFlow's servers, as they were recorded.
    #[test]
    fn requests_are_those_of_other_servers() {
        let recorded = [
            (
                part("CollectiveReduce: Reduce(Add,Div)", CollectiveKind::Reduction, 5, 200),
                "CiFDb2xsZWN0aXZlUmVkdWNlOiBSZWR1Y2UoQWRkLERpdikYASIEEgIIBShkMAI4yAFCA0NQVUoBAFIpL2pvYjp3b3JrZXIvcmVwbGljYTowL3Rhc2s6MS9k\
                 ZXZpY2U6Q1BVOjA=",
            ),
            (
                part("CollectiveGather: Gather", CollectiveKind::Gather, 4, 201),
                "ChhDb2xsZWN0aXZlR2F0aGVyOiBHYXRoZXIQAhgBIgQSAggEKGQwAjjJAUIDQ1BVUikvam9iOndvcmtlci9yZXBsaWNhOjAvdGFzazoxL2RldmljZTpDUFU6\
                 MA==",
            ),
            (
                part("CollectiveBcastRecv: Broadcast(0)", CollectiveKind::Broadcast, 2, 202),
                "CiFDb2xsZWN0aXZlQmNhc3RSZWN2OiBCcm9hZGNhc3QoMCkQARgBIgQSAggCKGQwAjjKAUIDQ1BVSgEAUikvam9iOndvcmtlci9yZXBsaWNhOjAvdGFzazox\
                 L2RldmljZTpDUFU6MA==",
            ),
        ];
        for (part, expected) in recorded {
            let request = instance_request(&part, DEVICE, "CPU").unwrap();
            assert_eq!(STANDARD.encode(request.encode_to_vec()), expected, "{}", part.name);
        }
    }
}
