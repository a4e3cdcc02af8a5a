//! Communicators: groups whose size and key an op has put together, and which number their operations themselves.

use graphmill_runtime::{Context, Kernel, Registry, Resource, unique_number};
use graphmill_tensor::{Result, Shape, Tensor, internal, invalid_argument, unimplemented_op};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Where the communicators of a step are.
const CONTAINER: &str = "_communicators";

pub(crate) fn register(registry: &mut Registry) {
    registry.op("CollectiveInitializeCommunicator").kernel(|_| Ok(InitializeCommunicator));
}

/// A group of devices, for the step that has made it.
pub(crate) struct Communicator {
    pub group_key: i32,
    pub group_size: i32,
    rank: i32,
    next_instance: AtomicI32,
}

impl Resource for Communicator {
    const TYPE_NAME: &'static str = "N10tensorflow12_GLOBAL__N_123CollectiveGroupResourceE";
}

impl Communicator {
    /// The communicator that input `first` names; input `first + 1` would split it into several.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` for a split, `INVALID_ARGUMENT` for a rank in a group of several devices: it is not told to other tasks.
    pub fn of_inputs(ctx: &Context<'_>, first: usize) -> Result<Arc<Communicator>> {
        let [handle] = ctx.input(first)?.handles()? else {
            return Err(internal!("The communicator is not one handle"));
        };
        ctx.device().check_handle::<Communicator>(handle)?;
        let communicator = ctx.step().resources().lookup::<Communicator>(CONTAINER, &handle.name)?;
        if ctx.input(first + 1)?.num_elements() > 0 {
            return Err(unimplemented_op!("Group assignments are not supported yet."));
        }
        if communicator.rank >= 0 && communicator.group_size > 1 {
            return Err(invalid_argument!(
                "Only part of the group members have user given rank specified.Received ranks: {},-1",
                communicator.rank
            ));
        }
        Ok(communicator)
    }

    /// The key of the next operation.
    pub fn next_instance(&self) -> i32 {
        self.next_instance.fetch_add(1, Ordering::Relaxed)
    }
}

/// Makes a communicator. Its devices meet at its first operation.
struct InitializeCommunicator;

impl Kernel for InitializeCommunicator {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let scalar = |at: usize, name: &str| {
            let input = ctx.input(at)?;
            if !input.shape().is_scalar() {
                return Err(invalid_argument!(
                    "Unexpected dimensions on input {name}. It shoulbe a scalar, got tensor with shape {}",
                    input.shape()
                ));
            }
            input.scalar_value::<i32>()
        };
        let (group_key, rank, group_size) = (scalar(0, "group_key")?, scalar(1, "rank")?, scalar(2, "group_size")?);
        if group_size <= 0 {
            return Err(invalid_argument!("group_size must be positive integer but got {group_size}"));
        }
        if rank >= group_size {
            return Err(invalid_argument!("rank must be less than group size but got {rank} >= {group_size}"));
        }
        let name = format!("communicator_{}", unique_number());
        let communicator = Communicator { group_key, group_size, rank, next_instance: AtomicI32::new(0) };
        ctx.step().resources().create(CONTAINER, &name, communicator)?;
        let handle = ctx.device().resource_handle::<Communicator>(CONTAINER, &name, Vec::new());
        ctx.set_output(0, Tensor::from_handles(Shape::scalar(), vec![handle])?)
    }
}
