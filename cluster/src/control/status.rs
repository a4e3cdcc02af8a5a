//! What a server is doing.

use super::{
    Control, Counters, CreationStatus, MissingTask, QueueStatus, RendezvousStatus, ResourceStatus, StatusResponse,
    StepStatus,
};
use crate::master::Master;
use crate::peers::task_of;
use crate::task::Task;
use crate::worker::Worker;
use graphmill_graph::RendezvousKey;
use graphmill_runtime::{Queue, Step};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Steps that have run for less are not listed.
const LONG: Duration = Duration::from_secs(1);

impl Control {
    pub(super) fn status(&self, master: &Master, worker: &Worker) -> StatusResponse {
        let task = &self.task;
        let mut sessions = master.session_status();
        sessions.extend(worker.session_status());
        sessions.sort_by(|a, b| b.age.total_cmp(&a.age));
        let (prepared, callables) = master.kept_runs();
        let counters = Counters {
            sessions: sessions.len() as u64,
            steps: sessions.iter().map(|session| session.steps).sum(),
            graphs: sessions.iter().map(|session| session.graphs).sum(),
            prepared,
            callables,
        };
        StatusResponse {
            task: task.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            incarnation: format!("{:016x}", task.devices.first().incarnation()),
            since: self.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            age: self.begun.elapsed().as_secs_f64(),
            ends: master.ends(),
            cluster: self.cluster.clone(),
            sessions,
            steps: steps(task, master.running_steps().into_iter().chain(worker.running_steps())),
            creations: creations(task),
            rendezvous: Some(rendezvous(task)),
            resources: resources(task),
            queues: queues(task),
            counters: Some(counters),
        }
    }
}

/// The steps that take long, the longest first.
fn steps(task: &Task, running: impl Iterator<Item = (String, Arc<Step>, Duration)>) -> Vec<StepStatus> {
    let exchanges = task.exchanges.list();
    let mut steps: Vec<StepStatus> = running
        .filter(|(_, _, age)| *age >= LONG)
        .map(|(session, step, age)| {
            let id = step.id();
            let mut keys = task.receives.of(id);
            let own = exchanges.iter().filter(|(of, _)| *of == id);
            // What another task asks this one for, which this step has yet to make, is no wait of the step.
            keys.extend(own.flat_map(|(_, rendezvous)| rendezvous.awaited()).filter(|key| is_for(key, &task.name)));
            let mut waits_for: Vec<String> = keys.iter().map(|key| in_words(key)).collect();
            waits_for.extend(step.cancellation().waits());
            waits_for.sort_unstable();
            waits_for.dedup();
            StepStatus { id, session, age: age.as_secs_f64(), waits_for }
        })
        .collect();
    steps.sort_by(|a, b| b.age.total_cmp(&a.age));
    steps
}

/// Whether the tensor of a key is for a task.
fn is_for(key: &str, task: &str) -> bool {
    RendezvousKey::parse(key).is_ok_and(|key| task_of(key.recv_device) == task)
}

/// The tensor that a key stands for. The name of an edge ends with that of the tensor.
fn in_words(key: &str) -> String {
    let Ok(RendezvousKey { send_device, tensor_name, iteration, .. }) = RendezvousKey::parse(key) else {
        return key.to_owned();
    };
    let edge = tensor_name.strip_prefix("edge_").and_then(|rest| rest.split_once('_'));
    let tensor = edge.map_or(tensor_name, |(_, tensor)| tensor);
    let turn = if iteration > 0 { format!(" of iteration {iteration}") } else { String::new() };
    format!("tensor {tensor}{turn} from {}", task_of(send_device))
}

fn creations(task: &Task) -> Vec<CreationStatus> {
    let missing = task.creations.list().into_iter().map(|(age, channels)| {
        let waits_for = channels.iter().map(|channel| MissingTask {
            task: channel.task().to_owned(),
            address: channel.address().to_owned(),
            error: channel.last_error().unwrap_or_default(),
        });
        CreationStatus { age: age.as_secs_f64(), waits_for: waits_for.collect() }
    });
    missing.collect()
}

fn rendezvous(task: &Task) -> RendezvousStatus {
    let exchanges = task.exchanges.list();
    let mut status = RendezvousStatus { steps: exchanges.len() as u64, ..Default::default() };
    for (_, rendezvous) in exchanges {
        let (number, bytes) = rendezvous.held();
        status.held += number as u64;
        status.bytes += bytes as u64;
        status.awaited += rendezvous.awaited().len() as u64;
    }
    status
}

fn resources(task: &Task) -> Vec<ResourceStatus> {
    let census = task.devices.iter().flat_map(|device| device.resources().census());
    let counted = census.map(|(container, type_name, number)| ResourceStatus {
        container,
        kind: plain(type_name),
        number: number as u64,
    });
    counted.collect()
}

fn queues(task: &Task) -> Vec<QueueStatus> {
    let all = task.devices.iter().flat_map(|device| device.resources().all::<Queue>());
    let queues = all.map(|(container, name, queue)| {
        let (enqueues, dequeues) = queue.waiting();
        QueueStatus {
            container,
            name,
            elements: queue.len() as u64,
            capacity: Some(queue.spec().capacity).filter(|&capacity| capacity != usize::MAX).map(|limit| limit as u64),
            enqueues: enqueues as u64,
            dequeues: dequeues as u64,
            closed: queue.is_closed(),
        }
    });
    queues.collect()
}

/// The last part of a mangled C++ name: `Var` of `N10tensorflow3VarE`.
fn plain(mangled: &str) -> String {
    let mut rest = mangled.trim_start_matches('N');
    let mut last = None;
    while let Some(end) = rest.find(|c: char| !c.is_ascii_digit()) {
        let (digits, name) = rest.split_at(end);
        let Some((part, behind)) = digits.parse().ok().and_then(|length| name.split_at_checked(length)) else { break };
        last = Some(part);
        rest = behind;
    }
    last.unwrap_or(mangled).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_words() {
        let key = "/job:ps/replica:0/task:0/device:CPU:0;00000000000000ab;/job:worker/replica:0/task:1/device:CPU:0;edge_16_add/ReadVariableOp;0:0";
        assert_eq!(in_words(key), "tensor add/ReadVariableOp from /job:ps/replica:0/task:0");
        assert_eq!(
            in_words(&key.replace(";0:0", ";7:3")),
            "tensor add/ReadVariableOp of iteration 3 from /job:ps/replica:0/task:0"
        );
        assert!(is_for(key, "/job:worker/replica:0/task:1"));
        assert!(!is_for(key, "/job:worker/replica:0/task:0"));
        assert_eq!(in_words("nonsense"), "nonsense");
    }

    #[test]
    fn names_of_types() {
        for (mangled, name) in [
            ("N10tensorflow3VarE", "Var"),
            ("N10tensorflow14QueueInterfaceE", "QueueInterface"),
            ("N10tensorflow6lookup15LookupInterfaceE", "LookupInterface"),
            ("Other", "Other"),
            ("N99xE", "N99xE"),
        ] {
            assert_eq!(plain(mangled), name);
        }
    }
}
