//! The ops that make queues: `FIFOQueue`, `PaddingFIFOQueue`, `RandomShuffleQueue` and `PriorityQueue`, in both forms.

use crate::order::{Shuffled, Sorted};
use graphmill_graph::PartialShape;
use graphmill_runtime::{
    Construction, Context, Kernel, OwnedResource, Queue, QueueOrder, QueueSpec, Registry, Variable, dtype_list,
    shape_list,
};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    for op in ["FIFOQueue", "FIFOQueueV2"] {
        registry.op(op).kernel(|c| MakeQueue::new(c, Kind::Fifo));
    }
    for op in ["PaddingFIFOQueue", "PaddingFIFOQueueV2"] {
        registry.op(op).kernel(|c| MakeQueue::new(c, Kind::Padding));
    }
    for op in ["RandomShuffleQueue", "RandomShuffleQueueV2"] {
        registry.op(op).kernel(|c| MakeQueue::new(c, Kind::Shuffle));
    }
    for op in ["PriorityQueue", "PriorityQueueV2"] {
        registry.op(op).kernel(|c| MakeQueue::new(c, Kind::Priority));
    }
    registry.op("FakeQueue").kernel(|_| Ok(ByReference));
}

/// `FakeQueue`: a queue for ops that know queues by a reference to the pair of container and name.
struct ByReference;

impl Kernel for ByReference {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let [handle] = ctx.input(0)?.handles()? else {
            return Err(invalid_argument!("A queue's handle must have exactly one element"));
        };
        let pair = [&handle.container, &handle.name].map(|text| Bytes::from(text.clone())).to_vec();
        let variable = Variable::new(&handle.name, DType::String);
        variable.write(Tensor::from_strings(Shape::vector(2), pair)?);
        ctx.set_output_ref(0, Arc::new(variable))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Fifo,
    Padding,
    Shuffle,
    Priority,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Fifo => "FIFOQueue",
            Kind::Padding => "PaddingFIFOQueue",
            Kind::Shuffle => "RandomShuffleQueue",
            Kind::Priority => "PriorityQueue",
        }
    }
}

/// A capacity that means no limit.
const UNBOUNDED: i32 = i32::MAX;

struct MakeQueue {
    kind: Kind,
    spec: QueueSpec,
    queue: OwnedResource<Queue>,
}

impl MakeQueue {
    fn new(c: &Construction<'_>, kind: Kind) -> Result<MakeQueue> {
        let capacity = c.attrs().int32("capacity")?;
        let capacity = if capacity < 0 { UNBOUNDED } else { capacity };
        let mut types = c.attrs().dtype_list("component_types")?;
        let mut shapes = c.attrs().shape_list("shapes")?;
        let (mut min_after_dequeue, mut seeds) = (0, (0, 0));
        match kind {
            Kind::Padding => {
                if let Some(shape) = shapes.iter().find(|shape| shape.rank().is_none()) {
                    return Err(invalid_argument!("shape {shape} must have known rank."));
                }
                if shapes.len() != types.len() {
                    return Err(invalid_argument!(
                        "Shapes must be provided for all components, but received {} dtypes and {} shapes.",
                        types.len(),
                        shapes.len()
                    ));
                }
            }
            Kind::Shuffle => {
                min_after_dequeue = c.attrs().int32("min_after_dequeue")?;
                if min_after_dequeue < 0 {
                    return Err(invalid_argument!("min_after_dequeue {min_after_dequeue} must be >= 0"));
                }
                if min_after_dequeue >= capacity {
                    return Err(invalid_argument!(
                        "min_after_dequeue {min_after_dequeue} must be < capacity {capacity}"
                    ));
                }
                seeds = (c.attrs().int("seed")?, c.attrs().int("seed2")?);
            }
            Kind::Priority => {
                types.insert(0, DType::Int64);
                if !shapes.is_empty() {
                    shapes.insert(0, PartialShape::new(&[])?);
                }
            }
            Kind::Fifo => {}
        }
        if kind != Kind::Padding
            && let Some(shape) = shapes.iter().find(|shape| shape.to_shape().is_none())
        {
            return Err(invalid_argument!("Shape {shape} is not fully defined"));
        }
        let queue = OwnedResource::new(c, false)?;
        let spec = QueueSpec {
            kind: kind.name(),
            name: queue.name().to_owned(),
            capacity: capacity as usize,
            types,
            shapes,
            min_after_dequeue: min_after_dequeue as usize,
            whole_batches: kind == Kind::Priority,
            seeds,
        };
        Ok(MakeQueue { kind, spec, queue })
    }

    fn create(&self) -> Result<Queue> {
        let order: Box<dyn QueueOrder> = match self.kind {
            Kind::Fifo | Kind::Padding => Box::new(VecDeque::new()),
            Kind::Shuffle => Box::new(Shuffled::new(self.spec.seeds.0 as u64, self.spec.seeds.1 as u64)),
            Kind::Priority => Box::new(Sorted::default()),
        };
        Queue::new(self.spec.clone(), order)
    }

    /// Checks a queue that another node made under the same name.
    fn verify(&self, node_op: &str, queue: &Queue) -> Result<()> {
        let (have, want) = (queue.spec(), &self.spec);
        let name = &have.name;
        if have.kind != want.kind {
            return Err(invalid_argument!("Expected {}, found {node_op}", have.kind));
        }
        if have.capacity != want.capacity {
            return Err(invalid_argument!(
                "Shared queue '{name}' has capacity {} but requested capacity was {}",
                have.capacity,
                want.capacity
            ));
        }
        if have.min_after_dequeue != want.min_after_dequeue {
            return Err(invalid_argument!(
                "Shared queue '{name}' has min_after_dequeue {} but requested min_after_dequeue was {}.",
                have.min_after_dequeue,
                want.min_after_dequeue
            ));
        }
        let (have_seeds, want_seeds) = (have.seeds, want.seeds);
        if want_seeds != (0, 0) && want_seeds != have_seeds {
            return Err(invalid_argument!(
                "Shared queue '{name}' has random seeds ({}, {}) but requested seeds are ({}, {}).",
                have_seeds.0,
                have_seeds.1,
                want_seeds.0,
                want_seeds.1
            ));
        }
        if have.types != want.types {
            return Err(invalid_argument!(
                "Shared queue '{name}' has component types {} but requested component types were {}",
                dtype_list(&have.types),
                dtype_list(&want.types)
            ));
        }
        let compatible = match self.kind {
            Kind::Padding => have.shapes.iter().zip(&want.shapes).all(|(a, b)| are_compatible(a, b)),
            _ => have.shapes == want.shapes,
        };
        if !compatible {
            return Err(invalid_argument!(
                "Shared queue '{name}' has component shapes {} but requested component shapes were {}",
                shape_list(&have.shapes),
                shape_list(&want.shapes)
            ));
        }
        Ok(())
    }
}

fn are_compatible(a: &PartialShape, b: &PartialShape) -> bool {
    match (a.dims(), b.dims()) {
        (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| a == b || a == -1 || b == -1),
        _ => true,
    }
}

impl Kernel for MakeQueue {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let op = ctx.node().op.clone();
        self.queue.give_out(ctx, || self.create(), |queue| self.verify(&op, queue))
    }
}
