//! Handles as strings, by which clients feed iterators, and `IteratorGetDevice`.

use super::resource::{IteratorResource, input_handle, input_iterator};
use crate::dataset::Spec;
use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, ResourceHandle, Result, Shape, Tensor, invalid_argument};
use graphmill_wire::tensorflow::ResourceHandleProto;
use prost::Message;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("IteratorToStringHandle").kernel(|_| Ok(ToString));
    registry.op("IteratorFromStringHandle").kernel(FromString::new);
    registry.op("IteratorFromStringHandleV2").kernel(FromString::new);
    registry.op("IteratorGetDevice").kernel(|_| Ok(GetDevice));
    registry.op("ExperimentalIteratorGetDevice").kernel(|_| Ok(GetDevice));
}

/// A scalar string.
pub(crate) fn string_tensor(value: impl Into<Bytes>) -> Result<Tensor> {
    Tensor::from_strings(Shape::scalar(), vec![value.into()])
}

/// The handle that a string stands for.
pub(crate) fn parse_handle(text: &Tensor) -> Result<ResourceHandle> {
    let bytes = match text.strings()? {
        [bytes] if text.shape().is_scalar() => bytes,
        _ => return Err(invalid_argument!("string_handle must be a scalar")),
    };
    let proto = ResourceHandleProto::decode(bytes.clone()).ok();
    match proto.and_then(|proto| ResourceHandle::from_proto(&proto).ok()) {
        Some(handle) => Ok(handle),
        None => Err(invalid_argument!("Could not parse string_handle as a valid ResourceHandle")),
    }
}

struct ToString;

impl Kernel for ToString {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let resource = ctx.input(0)?;
        if !resource.shape().is_scalar() {
            return Err(invalid_argument!("resource_handle must be a scalar"));
        }
        input_iterator(ctx, 0)?;
        let text = input_handle(ctx, 0)?.to_proto().encode_to_vec();
        ctx.set_output(0, string_tensor(text)?)
    }
}

struct FromString {
    types: Vec<DType>,
    shapes: Vec<PartialShape>,
}

impl FromString {
    fn new(c: &Construction<'_>) -> Result<FromString> {
        let (types, shapes) = (c.attrs().dtype_list("output_types")?, c.attrs().shape_list("output_shapes")?);
        if !types.is_empty() && !shapes.is_empty() && types.len() != shapes.len() {
            return Err(invalid_argument!(
                "If both 'output_types' and 'output_shapes' are set, they must have the same length."
            ));
        }
        Ok(FromString { types, shapes })
    }
}

impl Kernel for FromString {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let handle = parse_handle(ctx.input(0)?)?;
        let device = ctx.device();
        if handle.device != device.name() {
            return Err(invalid_argument!(
                "Attempted create an iterator on device \"{}\" from handle defined on device \"{}\"",
                device.name(),
                handle.device
            ));
        }
        let iterator = device.lookup_handle::<IteratorResource>(&handle)?;
        // What is not declared is not checked.
        let found = iterator.spec();
        let types = if self.types.is_empty() { &found.types } else { &self.types };
        let shapes = if self.shapes.is_empty() { &found.shapes } else { &self.shapes };
        Spec { types: types.clone(), shapes: shapes.clone() }.verify(found)?;
        ctx.set_output(0, Tensor::from_handles(Shape::scalar(), vec![handle])?)
    }
}

/// The device on which an iterator lives.
struct GetDevice;

impl Kernel for GetDevice {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let device = input_handle(ctx, 0)?.device;
        ctx.set_output(0, string_tensor(device)?)
    }
}
