//! From a strategy to what each process needs to rewrite its graph: entries of trained variables only, TensorFlow's names of
//! devices, numbers of replicas and participants, ranges of parts, keys of collectives.

mod keys;
mod plan;

pub use keys::{InstanceKeys, instance_key};
pub use plan::PartitionPlan;

use crate::item::GraphItem;
use crate::resources::{ClusterLayout, DeviceKind, DeviceName, ResourceSpec, tensorflow_device};
use crate::strategy::{Layout, Strategy, Synchronizer, VariableStrategy, validate};
use graphmill_tensor::Result;

/// A strategy for one graph on one cluster. All processes of a job compile the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledStrategy {
    /// The strategy's id.
    pub id: String,
    /// One entry for each trained variable, in the strategy's order.
    pub variables: Vec<CompiledVariable>,
    /// All replicas, by task, kind of device and number.
    pub replicas: Vec<Replica>,
    /// The tasks that host replicas, ascending. A task's place here is its number among those that meet in gates.
    pub participants: Vec<usize>,
    /// The task of the chief.
    pub chief: usize,
    /// All-reduced leaves by group, ascending.
    pub groups: Vec<ReduceGroup>,
    /// Entries that were dropped, in words.
    pub warnings: Vec<String>,
}

/// What becomes of a trained variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledVariable {
    /// The name of its tensor.
    pub variable: String,
    /// How it is cut; `None` if it is whole.
    pub plan: Option<PartitionPlan>,
    /// The variable itself, or its parts in order.
    pub leaves: Vec<CompiledLeaf>,
}

/// A variable or a part that is synchronised by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledLeaf {
    /// The name of its tensor.
    pub name: String,
    /// How its gradients are brought together; a destination is named as TensorFlow names it.
    pub synchronizer: Synchronizer,
    /// The key of its collective, which is the same on every task.
    pub instance_key: u32,
}

/// A copy of the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replica {
    /// The task that hosts it.
    pub task: usize,
    /// Its number among the replicas of the task.
    pub local: usize,
    /// TensorFlow's name of its device.
    pub device: String,
}

/// Gradients that travel together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReduceGroup {
    /// The strategy's number of the group.
    pub group: u32,
    /// The tensor names of the members, in the strategy's order.
    pub members: Vec<String>,
    /// The key of the collective that they share.
    pub instance_key: u32,
}

impl CompiledStrategy {
    /// Compiles a strategy, which stays as it is.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it does not fit the graph or the cluster.
    pub fn new(
        strategy: &Strategy,
        item: &GraphItem,
        spec: &ResourceSpec,
        layout: &ClusterLayout,
    ) -> Result<CompiledStrategy> {
        let mut strategy = strategy.clone();
        let warnings = validate(&mut strategy, item, spec)?;
        let replicas = number_replicas(&strategy.replicas, spec, layout)?;
        let mut participants: Vec<usize> = replicas.iter().map(|replica| replica.task).collect();
        participants.dedup();

        let mut keys = InstanceKeys::new();
        let mut variables = Vec::with_capacity(strategy.variables.len());
        for entry in &strategy.variables {
            variables.push(compile_variable(entry, item, spec, layout, &mut keys)?);
        }
        let groups = gather_groups(&variables, &mut keys);
        let chief = layout.chief();
        Ok(CompiledStrategy { id: strategy.id, variables, replicas, participants, chief, groups, warnings })
    }

    /// The replicas of a task, by number.
    pub fn local_replicas(&self, task: usize) -> impl Iterator<Item = &Replica> {
        self.replicas.iter().filter(move |replica| replica.task == task)
    }
}

/// The message that AutoDist's compiler makes: the strategy with TensorFlow's names of devices, in the strategy's order.
///
/// # Errors
/// `INVALID_ARGUMENT` for names that are no devices of the cluster.
pub fn resolve_devices(strategy: &Strategy, spec: &ResourceSpec, layout: &ClusterLayout) -> Result<Strategy> {
    let mut resolved = strategy.clone();
    for entry in &mut resolved.variables {
        match &mut entry.layout {
            Layout::Whole(synchronizer) => resolve_synchronizer(synchronizer, spec, layout)?,
            Layout::Split(split) => {
                for part in &mut split.parts {
                    resolve_synchronizer(&mut part.synchronizer, spec, layout)?;
                }
            }
        }
    }
    for replica in &mut resolved.replicas {
        *replica = layout.resolve(spec, replica)?;
    }
    Ok(resolved)
}

fn resolve_synchronizer(synchronizer: &mut Synchronizer, spec: &ResourceSpec, layout: &ClusterLayout) -> Result<()> {
    if let Synchronizer::ParameterServer(server) = synchronizer {
        server.destination = layout.resolve(spec, &server.destination)?;
    }
    Ok(())
}

fn number_replicas(names: &[String], spec: &ResourceSpec, layout: &ClusterLayout) -> Result<Vec<Replica>> {
    let mut devices: Vec<(usize, DeviceKind, u32)> = Vec::with_capacity(names.len());
    for name in names {
        let device: DeviceName = name.parse()?;
        devices.push((layout.task_of(spec, &device)?, device.kind, device.index));
    }
    devices.sort_unstable();
    let mut replicas: Vec<Replica> = Vec::with_capacity(devices.len());
    for (task, kind, index) in devices {
        let local = replicas.last().filter(|last| last.task == task).map_or(0, |last| last.local + 1);
        replicas.push(Replica { task, local, device: tensorflow_device(task, kind, index) });
    }
    Ok(replicas)
}

fn compile_variable(
    entry: &VariableStrategy,
    item: &GraphItem,
    spec: &ResourceSpec,
    layout: &ClusterLayout,
    keys: &mut InstanceKeys,
) -> Result<CompiledVariable> {
    let plan = match &entry.layout {
        Layout::Whole(_) => None,
        Layout::Split(split) => {
            let dims = item.variable(&entry.variable).and_then(|variable| variable.shape.dims()).unwrap_or_default();
            Some(PartitionPlan::new(split.partitioner, dims)?)
        }
    };
    let mut leaves = Vec::new();
    for (name, synchronizer) in entry.leaves() {
        let mut synchronizer = synchronizer.clone();
        resolve_synchronizer(&mut synchronizer, spec, layout)?;
        leaves.push(CompiledLeaf { name: name.to_owned(), synchronizer, instance_key: keys.assign(op_name(name)) });
    }
    Ok(CompiledVariable { variable: entry.variable.clone(), plan, leaves })
}

fn gather_groups(variables: &[CompiledVariable], keys: &mut InstanceKeys) -> Vec<ReduceGroup> {
    let mut groups: Vec<ReduceGroup> = Vec::new();
    for leaf in variables.iter().flat_map(|variable| &variable.leaves) {
        let Synchronizer::AllReduce(reduce) = &leaf.synchronizer else { continue };
        match groups.iter_mut().find(|group| group.group == reduce.group) {
            Some(group) => group.members.push(leaf.name.clone()),
            None => groups.push(ReduceGroup {
                group: reduce.group,
                members: vec![leaf.name.clone()],
                instance_key: keys.assign(&format!("{}/group", op_name(&leaf.name))),
            }),
        }
    }
    groups.sort_by_key(|group| group.group);
    groups
}

fn op_name(tensor: &str) -> &str {
    tensor.split_once(':').map_or(tensor, |(op, _)| op)
}
