//! Strategies: for each trainable variable, how its gradient is brought together and whether it is split.

mod file;
mod id;
mod partitioner;
mod validate;
mod wire;

pub use file::{default_folder, read, read_for, write};
pub use id::new_id;
pub use partitioner::{PartRange, Partitioner};
pub use validate::validate;

/// What every process of a job needs to rewrite its graph in the same way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Strategy {
    /// Unique among strategies; also the name of the file.
    pub id: String,
    /// The file it was written to last; empty if it never was.
    pub path: String,
    /// One entry for each variable that is kept equal, in the order of the graph item.
    pub variables: Vec<VariableStrategy>,
    /// Devices with a copy of the model each, in the resource file's names (`10.0.0.1:GPU:0`).
    pub replicas: Vec<String>,
}

/// What becomes of one variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VariableStrategy {
    /// The name of its tensor, such as `dense/kernel:0`.
    pub variable: String,
    /// Whether it is split, and who brings its gradients together.
    pub layout: Layout,
}

/// A variable whole or in parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layout {
    /// One variable, as the user made it.
    Whole(Synchronizer),
    /// Cut along one axis.
    Split(Split),
}

/// A variable in parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    /// The axis and the number of parts.
    pub partitioner: Partitioner,
    /// As many as the partitioner says, in order.
    pub parts: Vec<Part>,
}

/// A part of a variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The name of its tensor, such as `dense/kernel/part_0:0`.
    pub name: String,
    /// Who brings its gradients together.
    pub synchronizer: Synchronizer,
}

/// How the gradients of a variable are brought together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Synchronizer {
    /// One device stores the variable, gathers gradients and updates it.
    ParameterServer(ParameterServer),
    /// Every replica stores the variable and applies the mean of all gradients.
    AllReduce(AllReduce),
}

/// A variable on one device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParameterServer {
    /// The device that stores the variable: `10.0.0.1:CPU:0`, or `/job:worker/task:0/device:CPU:0` once compiled.
    pub destination: String,
    /// Whether each node keeps a copy for reading.
    pub local_replication: bool,
    /// Whether an update waits for the gradients of all nodes.
    pub sync: bool,
    /// By how many steps nodes may run ahead of each other; above 0 only together with `sync`.
    pub staleness: u32,
}

/// A variable on all replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllReduce {
    /// How devices talk to each other.
    pub communication: Communication,
    /// How gradients are encoded on the way.
    pub compressor: Compressor,
    /// Gradients of one group may travel together.
    pub group: u32,
}

/// How devices talk to each other in an all-reduce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Communication {
    /// The runtime chooses.
    Auto,
    /// NVIDIA's library.
    Nccl,
    /// A ring of point-to-point messages.
    Ring,
}

/// How gradients are encoded on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compressor {
    /// As they are.
    None,
    /// In a narrower floating-point type.
    Horovod,
    /// In a narrower floating-point type, what was lost being added to the next gradient.
    HorovodErrorFeedback,
    /// As a product of two small matrices; in files of older releases only.
    PowerSgd,
}

impl VariableStrategy {
    /// Everything that is synchronised by itself: the variable under its name, or each of its parts.
    pub fn leaves(&self) -> impl Iterator<Item = (&str, &Synchronizer)> {
        let (whole, parts) = match &self.layout {
            Layout::Whole(synchronizer) => (Some((self.variable.as_str(), synchronizer)), &[][..]),
            Layout::Split(split) => (None, &split.parts[..]),
        };
        whole.into_iter().chain(parts.iter().map(|part| (part.name.as_str(), &part.synchronizer)))
    }
}

impl Communication {
    /// The attribute `communication_hint` of collective operations.
    pub fn hint(self) -> &'static str {
        match self {
            Communication::Auto => "auto",
            Communication::Nccl => "nccl",
            Communication::Ring => "ring",
        }
    }
}

/// The name of part `index` of the variable with this tensor name: `v/part_1:0` for `v:0`.
pub fn part_name(variable: &str, index: usize) -> String {
    let op = variable.split_once(':').map_or(variable, |(op, _)| op);
    format!("{op}/part_{index}:0")
}
