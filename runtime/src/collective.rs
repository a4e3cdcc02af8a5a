//! Operations in which several devices compute together, as kernels see them: who takes part, and buffers that go from one to another.

use crate::Device;
use graphmill_tensor::{DType, Result, Shape, Tensor};
use std::sync::Arc;
use std::time::Duration;

/// What a collective operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    /// All get the elementwise combination of all tensors.
    Reduction,
    /// All get the tensor of one.
    Broadcast,
    /// All get the tensors of all, one behind the other.
    Gather,
    /// Each gets a part of the tensor of each.
    AllToAll,
    /// Each gets a part of the elementwise combination.
    ReduceScatter,
}

impl CollectiveKind {
    /// The number by which tasks speak of the kind.
    pub fn number(self) -> i32 {
        match self {
            CollectiveKind::Reduction => 0,
            CollectiveKind::Broadcast => 1,
            CollectiveKind::Gather => 2,
            CollectiveKind::AllToAll => 4,
            CollectiveKind::ReduceScatter => 5,
        }
    }
}

/// The part of one device in a collective operation.
#[derive(Clone, Debug)]
pub struct CollectivePart {
    /// The node and what it does, such as `sum: Reduce(Add,Id)`.
    pub name: String,
    /// What the operation does.
    pub kind: CollectiveKind,
    /// The type of all tensors.
    pub dtype: DType,
    /// The shape that all parts have to agree on; that of the result, where it is another than that of the input.
    pub shape: Shape,
    /// Names the group.
    pub group_key: i32,
    /// How many devices the group has.
    pub group_size: usize,
    /// Names the operation within the group.
    pub instance_key: i32,
    /// Offsets of the rings of a reduction, where the node prescribes them.
    pub subdiv_offsets: Vec<i32>,
    /// Whether this device has the tensor that is broadcast.
    pub is_source: bool,
    /// Whether the parts may agree on another shape in each step.
    pub is_stateless: bool,
    /// How long the group, and then each buffer, may be waited for.
    pub timeout: Option<Duration>,
}

/// A device of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveMember {
    /// The full name of the device.
    pub device: String,
    /// The name of its task.
    pub task: String,
    /// The number that changes when the device's process restarts.
    pub incarnation: u64,
}

/// What the devices of a group have agreed on.
#[derive(Clone, Debug)]
pub struct CollectiveInstance {
    /// The devices, by rank.
    pub members: Arc<[CollectiveMember]>,
    /// The rank of the own device.
    pub rank: usize,
    /// The rank of the device that broadcasts, if one does.
    pub source_rank: Option<usize>,
    /// Names the group.
    pub group_key: i32,
    /// Names the operation within the group.
    pub instance_key: i32,
    /// As in [`CollectivePart`].
    pub timeout: Option<Duration>,
}

/// Takes what the devices have agreed on, or why they have not.
pub type Joined = Box<dyn FnOnce(Result<CollectiveInstance>) + Send>;
/// Is told that a buffer was taken, or why it will not be.
pub type Taken = Box<dyn FnOnce(Result<()>) + Send>;
/// Takes a buffer, or why none comes.
pub type Fetched = Box<dyn FnOnce(Result<Tensor>) + Send>;

/// How the kernels of one step take part in collective operations. When the step is cancelled everything that waits here fails.
pub trait Collectives: Send + Sync {
    /// Joins a group and an operation of it.
    fn join(&self, device: &Device, part: CollectivePart, joined: Joined);

    /// Offers a buffer to the device of rank `to`, which takes it once by the key.
    fn post(&self, instance: &CollectiveInstance, to: usize, key: String, buffer: Tensor, taken: Taken);

    /// Takes a buffer that the device of rank `from` offers now or later: a vector of `elements` elements.
    fn fetch(
        &self,
        instance: &CollectiveInstance,
        from: usize,
        key: String,
        elements: (DType, usize),
        fetched: Fetched,
    );
}
