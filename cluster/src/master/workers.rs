//! The tasks that a session runs on.

use crate::DeviceSpec;
use crate::grpc::{Channel, Frames};
use crate::peers::{Peers, task_of};
use crate::task::Task;
use crate::worker::OwnSession;
use bytes::Bytes;
use graphmill_graph::PlacementDevice;
use graphmill_tensor::{Result, Status, deadline_exceeded, failed_precondition, internal};
use graphmill_wire::service::WorkerMethod;
use graphmill_wire::tensorflow::{
    CleanupAllRequest, CreateWorkerSessionRequest, DeleteWorkerSessionRequest, DeviceAttributes, GetStatusRequest,
    GetStatusResponse, ServerDef,
};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

/// How often the log says for which tasks the making of a session waits.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// How long tasks may take to end their part of a session, or to clean up behind a step.
pub(crate) const FAREWELL: Duration = Duration::from_secs(10);
/// The answer to a session that cannot be made in time leaves this much before its client gives up, so that it arrives.
pub(super) const HEAD_START: Duration = Duration::from_millis(100);

/// Another task, and its devices as the session calls them.
pub(super) struct RemoteWorker {
    pub channel: Arc<Channel>,
    pub devices: Vec<DeviceAttributes>,
}

/// The tasks and devices of a session.
pub(super) struct Workers {
    /// The tasks as the session calls them.
    pub peers: Arc<Peers>,
    pub own_devices: Vec<DeviceAttributes>,
    pub remote: Vec<RemoteWorker>,
}

impl Workers {
    /// Asks the tasks that `filters` leave for their devices, and waits for those that do not answer yet.
    ///
    /// # Errors
    /// `DEADLINE_EXCEEDED` naming the tasks that have not answered by `limit`, `FAILED_PRECONDITION` for an address at which another
    /// task answers, and what a task answers.
    pub async fn find(
        task: &Task,
        peers: Arc<Peers>,
        own_devices: Vec<DeviceAttributes>,
        filters: &[DeviceSpec],
        limit: Option<Instant>,
    ) -> Result<Workers> {
        let renamed = peers.own() != task.name;
        let wanted = |name: &str| is_wanted(name, filters);
        let asked: Vec<Arc<Channel>> = peers.others().filter(|channel| wanted(channel.task())).cloned().collect();
        let waiting = task.creations.begin(asked.clone());
        let mut answers = JoinSet::new();
        for (number, channel) in asked.iter().cloned().enumerate() {
            answers.spawn(async move { (number, status_of(&channel, renamed).await) });
        }
        let mut devices: Vec<Option<Vec<DeviceAttributes>>> = vec![None; asked.len()];
        let all = async {
            while let Some(answer) = next_answer(&mut answers, &asked, &devices).await {
                let (number, answer) = answer?;
                let answer = answer.inspect_err(|error| {
                    let task = asked.get(number).map(|channel| channel.task()).unwrap_or_default();
                    tracing::info!("CreateSession failed because worker {task} returned error: {error}");
                })?;
                waiting.answered(number);
                if let Some(place) = devices.get_mut(number) {
                    *place = Some(answer);
                }
            }
            Ok(())
        };
        let limit = limit.map(|limit| limit.checked_sub(HEAD_START).unwrap_or(limit));
        let outcome = match limit {
            None => all.await,
            Some(limit) => match timeout_at(limit, all).await {
                Ok(outcome) => outcome,
                Err(_) => Err(missing(&asked, &devices)),
            },
        };
        outcome?;
        let remote = asked.into_iter().zip(devices).map(|(channel, devices)| {
            let kept = devices.into_iter().flatten().filter(|device| wanted(&device.name)).collect();
            RemoteWorker { channel, devices: kept }
        });
        Ok(Workers { remote: remote.collect(), peers, own_devices })
    }

    /// All devices, the own ones first.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceAttributes> {
        self.own_devices.iter().chain(self.remote.iter().flat_map(|worker| &worker.devices))
    }

    /// All devices as the placer sees them. Where the session has a cluster of its own none counts as nearer than others.
    pub fn placement_devices(&self, own_are_near: bool) -> Vec<PlacementDevice> {
        let own = self.own_devices.len();
        let device = |(at, device): (usize, &DeviceAttributes)| PlacementDevice {
            name: device.name.clone(),
            device_type: device.device_type.clone(),
            local: own_are_near && at < own,
        };
        self.devices().enumerate().map(device).collect()
    }

    /// The number that tells this life of a device's process from others.
    pub fn incarnation(&self, device: &str) -> Option<u64> {
        self.devices().find(|known| known.name == device).map(|known| known.incarnation)
    }
}

/// Whether one of the filters, if there are any, has nothing against a task or device.
pub(super) fn is_wanted(name: &str, filters: &[DeviceSpec]) -> bool {
    filters.is_empty()
        || DeviceSpec::parse(name).is_some_and(|spec| filters.iter().any(|filter| filter.is_compatible(&spec)))
}

async fn next_answer(
    answers: &mut JoinSet<(usize, Result<Vec<DeviceAttributes>>)>,
    asked: &[Arc<Channel>],
    devices: &[Option<Vec<DeviceAttributes>>],
) -> Option<Result<(usize, Result<Vec<DeviceAttributes>>)>> {
    let report = async {
        loop {
            sleep(REPORT_INTERVAL).await;
            for (channel, _) in asked.iter().zip(devices).filter(|(_, devices)| devices.is_none()) {
                let reason = channel.last_error().unwrap_or_else(|| "it does not answer".to_owned());
                tracing::info!(
                    "CreateSession still waiting for response from worker: {} at {}: {reason}",
                    channel.task(),
                    channel.address()
                );
            }
        }
    };
    tokio::select! {
        answer = answers.join_next() => answer.map(|joined| joined.map_err(|error| internal!("A call ended early: {error}"))),
        () = report => None,
    }
}

fn missing(asked: &[Arc<Channel>], devices: &[Option<Vec<DeviceAttributes>>]) -> Status {
    let missing: Vec<String> = asked
        .iter()
        .zip(devices)
        .filter(|(_, devices)| devices.is_none())
        .map(|(channel, _)| {
            let reason = channel.last_error().unwrap_or_else(|| "it does not answer".to_owned());
            format!("{} at {} ({reason})", channel.task(), channel.address())
        })
        .collect();
    deadline_exceeded!("The session waited in vain for {}", missing.join(", "))
}

/// The devices of a task; `renamed` if the session calls the tasks otherwise than they call themselves.
async fn status_of(channel: &Channel, renamed: bool) -> Result<Vec<DeviceAttributes>> {
    let request = || Frames::message(&GetStatusRequest {});
    let answer = channel.call_when_ready(WorkerMethod::GetStatus.path(), request, None).await?;
    let status = decode_answer::<GetStatusResponse>(answer, "GetStatus")?;
    let mut devices = status.device_attributes;
    for device in &mut devices {
        let task = task_of(&device.name);
        if renamed {
            device.name = format!("{}{}", channel.task(), device.name.get(task.len()..).unwrap_or_default());
        } else if task != channel.task() {
            return Err(failed_precondition!(
                "At {}, where the cluster has {}, {task} answers: a process of another cluster, or one that was left over",
                channel.address(),
                channel.task()
            ));
        }
    }
    Ok(devices)
}

/// The message of an answer.
///
/// # Errors
/// `INTERNAL` for bytes that are none.
pub(super) fn decode_answer<M: Message + Default>(answer: Bytes, method: &str) -> Result<M> {
    M::decode(answer).map_err(|error| internal!("The answer to {method} cannot be read: {error}"))
}

/// The parts of a session on other tasks. They end with it.
pub(super) struct RemoteSessions {
    /// The session's handle.
    pub handle: String,
    /// The session on the own task, for other tasks that call functions here.
    _own: OwnSession,
    channels: Vec<Arc<Channel>>,
    runtime: Handle,
}

/// What all tasks are told about a session.
pub(super) struct SessionTerms {
    pub isolate: bool,
    /// The cluster and the names of tasks, where the session has its own.
    pub server: Option<ServerDef>,
    pub share_devices: bool,
}

impl RemoteSessions {
    /// Opens the session on all tasks of `workers`.
    ///
    /// # Errors
    /// What a task answers; the session is then ended on the others.
    pub async fn open(
        task: &Task,
        handle: String,
        workers: &Workers,
        terms: &SessionTerms,
        own: OwnSession,
        limit: Option<Instant>,
    ) -> Result<RemoteSessions> {
        let channels: Vec<_> = workers.remote.iter().map(|worker| worker.channel.clone()).collect();
        // Made before it is complete: it ends what there is if something goes wrong.
        let sessions = RemoteSessions { handle, _own: own, channels, runtime: task.runtime.clone() };
        let master_incarnation = task.devices.first().incarnation().cast_signed();
        let devices: Vec<DeviceAttributes> =
            if terms.share_devices { workers.devices().cloned().collect() } else { Vec::new() };
        let mut calls = JoinSet::new();
        for channel in &sessions.channels {
            let request = CreateWorkerSessionRequest {
                session_handle: sessions.handle.clone(),
                server_def: Some(server_for(channel.task(), terms)),
                isolate_session_state: terms.isolate,
                cluster_device_attributes: devices.clone(),
                master_task: workers.peers.own().to_owned(),
                master_incarnation,
            };
            let (channel, message) = (channel.clone(), Frames::message(&request)?);
            calls.spawn(async move {
                let path = WorkerMethod::CreateWorkerSession.path();
                channel.call(path, message, limit).await.map_err(|error| error.from_task(channel.task()))
            });
        }
        while let Some(answer) = calls.join_next().await {
            answer.map_err(|error| internal!("A call ended early: {error}"))??;
        }
        Ok(sessions)
    }

    /// Ends the session on the other tasks; those that do not answer soon are left to find out by themselves.
    pub async fn close(mut self) {
        let channels = std::mem::take(&mut self.channels);
        end(std::mem::take(&mut self.handle), channels).await;
    }
}

impl Drop for RemoteSessions {
    fn drop(&mut self) {
        if !self.channels.is_empty() {
            self.runtime.spawn(end(std::mem::take(&mut self.handle), std::mem::take(&mut self.channels)));
        }
    }
}

async fn end(session_handle: String, channels: Vec<Arc<Channel>>) {
    let request = DeleteWorkerSessionRequest { session_handle };
    tell(&channels, WorkerMethod::DeleteWorkerSession, || Frames::message(&request)).await;
}

/// Has tasks clear containers.
///
/// # Errors
/// What a task answers.
pub(super) async fn clean_up_all(channels: Vec<Arc<Channel>>, container: &[String]) -> Result<()> {
    let request = CleanupAllRequest { container: container.to_vec() };
    let mut calls = JoinSet::new();
    for channel in channels {
        let message = Frames::message(&request)?;
        calls.spawn(async move {
            let limit = Some(Instant::now() + FAREWELL);
            let answer = channel.call(WorkerMethod::CleanupAll.path(), message, limit).await;
            answer.map_err(|error| error.from_task(channel.task()))
        });
    }
    let mut outcome = Ok(());
    while let Some(answer) = calls.join_next().await {
        let answer = answer.map_err(|error| internal!("A call ended early: {error}")).and_then(|answer| answer);
        outcome = outcome.and(answer.map(drop));
    }
    outcome
}

/// Makes one call to each of some tasks, for the sake of the call alone.
pub(crate) async fn tell(channels: &[Arc<Channel>], method: WorkerMethod, message: impl Fn() -> Result<Frames>) {
    let mut calls = JoinSet::new();
    for channel in channels {
        let Ok(message) = message() else { return };
        let channel = channel.clone();
        calls.spawn(async move {
            let limit = Some(Instant::now() + FAREWELL);
            if let Err(error) = channel.call(method.path(), message, limit).await {
                tracing::debug!(task = channel.task(), "{} failed: {error}", method.name());
            }
        });
    }
    while calls.join_next().await.is_some() {}
}

/// What a task is told about itself.
fn server_for(task: &str, terms: &SessionTerms) -> ServerDef {
    let spec = DeviceSpec::parse(task).unwrap_or_default();
    ServerDef {
        job_name: spec.job.unwrap_or_default(),
        task_index: spec.task.and_then(|task| i32::try_from(task).ok()).unwrap_or_default(),
        protocol: "grpc".to_owned(),
        ..terms.server.clone().unwrap_or_default()
    }
}
