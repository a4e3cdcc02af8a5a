//! The place of one task in a job.

use crate::compiler::{CompiledStrategy, Replica};
use crate::resources::{DeviceKind, tensorflow_device};
use graphmill_tensor::{Result, invalid_argument};

/// What a task needs to know to rewrite its graph.
pub(super) struct Job<'a> {
    pub strategy: &'a CompiledStrategy,
    pub task: usize,
    /// Of this task, by number.
    pub replicas: Vec<&'a Replica>,
    one_processor: bool,
}

impl<'a> Job<'a> {
    /// # Errors
    /// `INVALID_ARGUMENT` if the task hosts no replica.
    pub fn new(strategy: &'a CompiledStrategy, task: usize, one_processor: bool) -> Result<Job<'a>> {
        let replicas: Vec<&Replica> = strategy.local_replicas(task).collect();
        if replicas.is_empty() {
            return Err(invalid_argument!(
                "Task {task} hosts no replica of strategy \"{}\", so it has no graph of its own; the tasks that train are {:?}",
                strategy.id,
                strategy.participants
            ));
        }
        Ok(Job { strategy, task, replicas, one_processor })
    }

    pub fn is_chief(&self) -> bool {
        self.task == self.strategy.chief
    }

    /// The number of tasks that train.
    pub fn nodes(&self) -> usize {
        self.strategy.participants.len()
    }

    /// The place of a task among those that train.
    pub fn number(&self, task: usize) -> usize {
        self.strategy.participants.iter().position(|&other| other == task).unwrap_or(0)
    }

    /// A device as nodes name it. Processors beyond the first are the first where a task has one device for all of them.
    pub fn device(&self, name: &str) -> String {
        match name.rsplit_once(':') {
            Some((kind, _)) if self.one_processor && kind.ends_with(":CPU") => format!("{kind}:0"),
            _ => name.to_owned(),
        }
    }

    pub fn replica_device(&self, replica: usize) -> String {
        self.replicas.get(replica).map(|replica| self.device(&replica.device)).unwrap_or_default()
    }

    /// The device of the chief's first replica.
    pub fn chief_replica(&self) -> String {
        let first = self.strategy.local_replicas(self.strategy.chief).next();
        first.map(|replica| self.device(&replica.device)).unwrap_or_default()
    }

    pub fn processor(&self) -> String {
        processor(self.task)
    }

    /// The processor of one of the tasks that train, counted around.
    pub fn participant_processor(&self, number: usize) -> String {
        let tasks = &self.strategy.participants;
        processor(tasks.get(number % tasks.len().max(1)).copied().unwrap_or(self.strategy.chief))
    }

    pub fn chief_processor(&self) -> String {
        processor(self.strategy.chief)
    }
}

/// The first processor of a task.
fn processor(task: usize) -> String {
    tensorflow_device(task, DeviceKind::Cpu, 0)
}

/// What the names of a task's processors begin with.
pub(super) fn processor_of(task: usize) -> String {
    let first = processor(task);
    first.trim_end_matches('0').to_owned()
}

/// What the names of a replica's nodes begin with.
pub(super) fn scope(replica: usize) -> String {
    format!("AutoDist-Replica-{replica}")
}
