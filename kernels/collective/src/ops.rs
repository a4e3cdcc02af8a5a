//! The ops: what each says about its part, and which way it then goes.

use crate::communicator::Communicator;
use crate::merge::Merge;
use crate::progress::Progress;
use crate::ring::Ring;
use crate::{all_to_all, broadcast, sections};
use graphmill_runtime::{
    AsyncContext, AsyncKernel, CollectiveInstance, CollectiveKind, CollectivePart, Collectives, Construction, Context,
    Registry,
};
use graphmill_tensor::{DType, Result, Shape, Tensor, internal, invalid_argument};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn register(registry: &mut Registry) {
    let ops = [
        ("CollectiveReduce", What::Reduce, Version::Attributes),
        ("CollectiveReduceV2", What::Reduce, Version::Inputs),
        ("CollectiveReduceV3", What::Reduce, Version::Communicator),
        ("CollectiveGather", What::Gather, Version::Attributes),
        ("CollectiveGatherV2", What::Gather, Version::Inputs),
        ("CollectiveBcastSend", What::Send, Version::Attributes),
        ("CollectiveBcastSendV2", What::Send, Version::Inputs),
        ("CollectiveBcastRecv", What::Receive, Version::Attributes),
        ("CollectiveBcastRecvV2", What::Receive, Version::Inputs),
        ("CollectiveAllToAllV2", What::AllToAll, Version::Inputs),
        ("CollectiveAllToAllV3", What::AllToAll, Version::Communicator),
        ("CollectiveReduceScatterV2", What::ReduceScatter, Version::Inputs),
    ];
    for (op, what, version) in ops {
        registry.op(op).async_kernel(move |c| Collective::new(c, what, version));
    }
}

/// What an op does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Reduce,
    Gather,
    Send,
    Receive,
    AllToAll,
    ReduceScatter,
}

/// Where an op has its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Attributes,
    Inputs,
    Communicator,
}

/// The size and the keys of a group and of an operation in it.
#[derive(Clone, Copy)]
struct Keys {
    size: usize,
    group: i32,
    instance: i32,
}

impl Keys {
    fn new(size: i64, group: i32, instance: i32) -> Result<Keys> {
        match usize::try_from(size) {
            Ok(size) if size > 0 => Ok(Keys { size, group, instance }),
            _ => Err(invalid_argument!("group_size must be positive integer but got {size}")),
        }
    }

    fn of_attributes(c: &Construction<'_>) -> Result<Keys> {
        let attrs = c.attrs();
        Keys::new(attrs.int("group_size")?, attrs.int32("group_key")?, attrs.int32("instance_key")?)
    }

    /// Reads the three inputs from `first` on.
    fn of_inputs(ctx: &Context<'_>, first: usize) -> Result<Keys> {
        let scalar = |at: usize, name: &str| {
            let input = ctx.input(first + at)?;
            if !input.shape().is_scalar() {
                return Err(invalid_argument!("Unexpected dimensions on input {name}, got {}", input.shape()));
            }
            input.scalar_value::<i32>()
        };
        let (size, group) = (scalar(0, "group_size")?, scalar(1, "group_key")?);
        Keys::new(i64::from(size), group, scalar(2, "instance_key")?)
    }

    /// Those of the communicator that input `first` names.
    fn of_communicator(ctx: &Context<'_>, first: usize) -> Result<Keys> {
        let communicator = Communicator::of_inputs(ctx, first)?;
        let size = i64::from(communicator.group_size);
        Keys::new(size, communicator.group_key, communicator.next_instance())
    }
}

/// A kernel of this family.
struct Collective {
    what: What,
    /// The node and what it does, as other tasks report it.
    name: String,
    dtype: DType,
    version: Version,
    /// Of ops that have them as attributes.
    keys: Option<Keys>,
    /// The shape that a broadcast of the first version declares.
    shape: Option<Shape>,
    reduction: Option<(Merge, bool)>,
    subdiv_offsets: Vec<i32>,
    max_subdivisions: i64,
    is_stateless: bool,
    timeout: Option<Duration>,
}

impl Collective {
    fn new(c: &Construction<'_>, what: What, version: Version) -> Result<Collective> {
        let attrs = c.attrs();
        let mut reduction = None;
        let mut subdiv_offsets = Vec::new();
        let mut max_subdivisions = -1;
        if version == Version::Communicator && what == What::Reduce {
            reduction = Some((Merge::parse(attrs.str("reduction")?)?, false));
        } else if matches!(what, What::Reduce | What::ReduceScatter) {
            let final_op = attrs.str("final_op")?;
            if !matches!(final_op, "Id" | "Div") {
                return Err(invalid_argument!("final_op must be one of {{\"Id\", \"Div\"}} but got {final_op}"));
            }
            reduction = Some((Merge::parse(attrs.str("merge_op")?)?, final_op == "Div"));
            if version == Version::Inputs {
                max_subdivisions = attrs.int("max_subdivs_per_device")?;
            } else {
                for &offset in attrs.int_list("subdiv_offsets")? {
                    let offset = i32::try_from(offset);
                    subdiv_offsets.push(offset.map_err(|_| invalid_argument!("subdiv_offsets are out of range"))?);
                }
            }
        }
        let is_broadcast = matches!(what, What::Send | What::Receive);
        if is_broadcast {
            subdiv_offsets.push(0);
        }
        let shape = match (is_broadcast, version) {
            (true, Version::Attributes) => {
                let shape = attrs.shape("shape")?;
                let known = shape.to_shape();
                Some(known.ok_or_else(|| invalid_argument!("The shape of a broadcast has to be known, got {shape}"))?)
            }
            _ => None,
        };
        let seconds = attrs.float("timeout_seconds")?;
        let timeout = if seconds > 0.0 { Duration::try_from_secs_f32(seconds).ok() } else { None };
        Ok(Collective {
            what,
            name: format!("{}: {}", c.name(), description(what, version, reduction)),
            dtype: c.dtype("T")?,
            version,
            keys: if version == Version::Attributes { Some(Keys::of_attributes(c)?) } else { None },
            shape,
            reduction,
            subdiv_offsets,
            max_subdivisions,
            is_stateless: attrs.bool("is_stateless").unwrap_or(false),
            timeout,
        })
    }

    /// What the op says about its part, and its input.
    fn part(&self, ctx: &Context<'_>) -> Result<(CollectivePart, Option<Tensor>)> {
        let input = if self.what == What::Receive { None } else { Some(ctx.input(0)?.clone()) };
        let first = usize::from(input.is_some());
        let keys = match (self.keys, self.version) {
            (Some(keys), _) => keys,
            (None, Version::Communicator) => Keys::of_communicator(ctx, first)?,
            (None, _) => Keys::of_inputs(ctx, first)?,
        };
        let shape = match (&self.shape, &input) {
            (Some(declared), Some(input)) if input.shape() != declared => {
                return Err(internal!("Declared shape of op {} does not match shape of input", self.name));
            }
            (Some(declared), _) => declared.clone(),
            (None, Some(input)) if self.what == What::Gather => gathered(input.shape(), keys.size)?,
            (None, Some(input)) if self.what == What::ReduceScatter => scattered(input.shape(), keys.size)?,
            (None, Some(input)) => input.shape().clone(),
            (None, None) => ctx.input_as_shape(first + 3)?,
        };
        let kind = match self.what {
            What::Reduce => CollectiveKind::Reduction,
            What::Gather => CollectiveKind::Gather,
            What::Send | What::Receive => CollectiveKind::Broadcast,
            What::AllToAll => CollectiveKind::AllToAll,
            What::ReduceScatter => CollectiveKind::ReduceScatter,
        };
        let part = CollectivePart {
            name: self.name.clone(),
            kind,
            dtype: self.dtype,
            shape,
            group_key: keys.group,
            group_size: keys.size,
            instance_key: keys.instance,
            subdiv_offsets: self.subdiv_offsets.clone(),
            is_source: self.what == What::Send,
            is_stateless: self.is_stateless,
            timeout: self.timeout,
        };
        Ok((part, input))
    }
}

impl AsyncKernel for Collective {
    fn start(&self, mut ctx: AsyncContext) {
        let (part, input) = match ctx.with_context(|ctx| self.part(ctx)) {
            Ok((part, _)) => part,
            Err(error) => return ctx.complete(Err(error)),
        };
        let Some(collectives) = ctx.step().collectives().cloned() else {
            let name = if self.version == Version::Attributes { &ctx.node().name } else { self.name.as_str() };
            let error = internal!("Failed to get CollectiveExecutor from OpKernelContext for Op {name}");
            return ctx.complete(Err(error));
        };
        let way = Way {
            what: self.what,
            dtype: self.dtype,
            shape: part.shape.clone(),
            input,
            reduction: self.reduction,
            subdiv_offsets: self.subdiv_offsets.clone(),
            max_subdivisions: self.max_subdivisions,
        };
        let device = ctx.device().clone();
        let of_step = collectives.clone();
        let joined = move |outcome: Result<CollectiveInstance>| match outcome {
            Ok(instance) => way.go(ctx, of_step, instance),
            Err(error) => ctx.complete(Err(error)),
        };
        collectives.join(&device, part, Box::new(joined));
    }
}

/// What is left to do once the devices have agreed.
struct Way {
    what: What,
    dtype: DType,
    shape: Shape,
    input: Option<Tensor>,
    reduction: Option<(Merge, bool)>,
    subdiv_offsets: Vec<i32>,
    max_subdivisions: i64,
}

impl Way {
    fn go(self, ctx: AsyncContext, collectives: Arc<dyn Collectives>, instance: CollectiveInstance) {
        let elements = self.shape.num_elements();
        let (source, progress) =
            (instance.source_rank, Progress::new(ctx, collectives, instance, self.dtype, self.shape.clone()));
        match (self.what, self.input, source) {
            (What::Reduce | What::Gather, Some(input), _) => {
                let ring =
                    ring(&progress, input, &self.shape, self.reduction, &self.subdiv_offsets, self.max_subdivisions);
                match ring {
                    Ok(ring) => ring.start(),
                    Err(error) => progress.fail(error),
                }
            }
            (What::AllToAll, Some(input), _) => all_to_all::start(progress, &input),
            (What::Send | What::Receive, input, Some(source)) => broadcast::start(progress, source, input, elements),
            // TensorFlow has none for processors either.
            (What::ReduceScatter, ..) => {
                progress.fail(internal!("CollectiveRegistry::Lookup did not find collective implementation undef"))
            }
            _ => progress.fail(internal!("The members of the group have not agreed on who broadcasts")),
        }
    }
}

fn ring(
    progress: &Arc<Progress>,
    input: Tensor,
    shape: &Shape,
    reduction: Option<(Merge, bool)>,
    subdiv_offsets: &[i32],
    max_subdivisions: i64,
) -> Result<Ring> {
    let (members, rank) = (&progress.instance.members, progress.instance.rank);
    let (elements, element) = (shape.num_elements(), progress.dtype.size());
    let offsets = match (reduction, subdiv_offsets) {
        (None, _) => vec![0],
        (Some(_), []) => sections::offsets(elements.saturating_mul(element), members, max_subdivisions),
        (Some(_), prescribed) => prescribed.to_vec(),
    };
    let count = members.len().saturating_mul(offsets.len());
    let sections = match reduction {
        Some(_) => sections::padded(elements, element, count),
        None => sections::even(elements, count),
    };
    let rings = sections::subdivisions(members, rank, &offsets)?;
    let length = Shape::vector(input.num_elements());
    Ok(Ring { progress: progress.clone(), input: input.into_shape(length)?, sections, rings, reduction })
}

/// The shape of the inputs of all devices one behind the other.
fn gathered(shape: &Shape, devices: usize) -> Result<Shape> {
    if shape.is_scalar() {
        return Err(invalid_argument!("A scalar cannot be gathered"));
    }
    let rows = shape.dim(0).checked_mul(devices);
    shape.with_dim(0, rows.ok_or_else(|| invalid_argument!("The gathered tensor is too large"))?)
}

/// The shape of a device's part of a reduction.
fn scattered(shape: &Shape, devices: usize) -> Result<Shape> {
    if shape.is_scalar() || !shape.dim(0).is_multiple_of(devices) {
        return Err(invalid_argument!("A tensor of shape {shape} has no equal parts for {devices} devices"));
    }
    shape.with_dim(0, shape.dim(0) / devices)
}

/// What an op does, as other tasks report it.
fn description(what: What, version: Version, reduction: Option<(Merge, bool)>) -> String {
    let version = match version {
        Version::Attributes => "",
        Version::Inputs => "V2",
        Version::Communicator => "V3",
    };
    let reduced = |name: &str| match reduction {
        Some((merge, divides)) => {
            format!("{name}{version}({},{})", merge.op(), if divides { "Div" } else { "Id" })
        }
        None => format!("{name}{version}"),
    };
    match what {
        What::Reduce => reduced("Reduce"),
        What::ReduceScatter => reduced("ReduceScatter"),
        What::Gather => reduced("Gather"),
        What::AllToAll => reduced("AllToAll"),
        What::Send => "Broadcast(1)".to_owned(),
        What::Receive => "Broadcast(0)".to_owned(),
    }
}
