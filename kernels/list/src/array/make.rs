//! Making arrays and arrays of gradients; their size and their end.

use super::state::{CONTAINER, Options, TensorArray};
use super::{array, string_handle};
use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Kernel, Registry, Variable};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, internal, invalid_argument};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The container that handles of arrays of gradients name.
const GRADIENTS: &str = "_tensor_array_grads";

pub(crate) fn register(registry: &mut Registry) {
    for op in ["TensorArray", "TensorArrayV2", "TensorArrayV3"] {
        registry.op(op).kernel(Make::new);
    }
    for op in ["TensorArrayGrad", "TensorArrayGradV2", "TensorArrayGradV3", "TensorArrayGradWithShape"] {
        registry.op(op).kernel(Gradient::new);
    }
    for op in ["TensorArraySize", "TensorArraySizeV2", "TensorArraySizeV3"] {
        registry.op(op).kernel(|_| Ok(Size));
    }
    for op in ["TensorArrayClose", "TensorArrayCloseV2", "TensorArrayCloseV3"] {
        registry.op(op).kernel(|_| Ok(Close));
    }
}

/// Gives out the handle of an array in the form that the op has, and a flow where there is one.
fn set_handle(ctx: &mut Context<'_>, container: &str, name: &str) -> Result<()> {
    let slot = ctx.node().output_types.first().copied().ok_or_else(|| internal!("there is no handle"))?;
    if slot.dtype == DType::Resource {
        let handle = ctx.device().resource_handle::<TensorArray>(CONTAINER, &format!("{container}{name}"), Vec::new());
        ctx.set_output(0, Tensor::from_handles(Shape::scalar(), vec![handle])?)?;
    } else {
        let strings = [container, name].map(|text| Bytes::copy_from_slice(text.as_bytes()));
        let handle = Tensor::from_strings(Shape::vector(2), strings.to_vec())?;
        if slot.is_ref {
            let variable = Variable::new(name, DType::String);
            variable.write(handle);
            ctx.set_output_ref(0, Arc::new(variable))?;
        } else {
            ctx.set_output(0, handle)?;
        }
    }
    if ctx.num_outputs() > 1 {
        ctx.set_scalar(1, 0f32)?;
    }
    Ok(())
}

/// Makes an array that lives as long as the step.
struct Make {
    name: String,
    dtype: DType,
    element_shape: PartialShape,
    identical_shapes: bool,
    dynamic_size: bool,
    clear_after_read: bool,
}

impl Make {
    fn new(c: &Construction<'_>) -> Result<Make> {
        let attrs = c.attrs();
        let name = attrs.str("tensor_array_name")?;
        Ok(Make {
            name: if name.is_empty() { c.name() } else { name }.to_owned(),
            dtype: c.dtype("dtype")?,
            element_shape: attrs.shape("element_shape")?,
            identical_shapes: attrs.has("identical_element_shapes") && attrs.bool("identical_element_shapes")?,
            dynamic_size: attrs.bool("dynamic_size")?,
            clear_after_read: attrs.bool("clear_after_read")?,
        })
    }
}

impl Kernel for Make {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = ctx.input(0)?;
        if !size.shape().is_scalar() {
            return Err(invalid_argument!("TensorArray size must be scalar, but had shape: {}", size.shape()));
        }
        let size =
            usize::try_from(size.scalar_value::<i32>()?).map_err(|_| invalid_argument!("Size should be >= 0."))?;
        // Different nodes may share a name, and a loop makes an array in each iteration.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("{}_{}", self.name, MADE.fetch_add(1, Ordering::Relaxed));
        let array = TensorArray::new(
            Options {
                name: name.clone(),
                dtype: self.dtype,
                element_shape: self.element_shape.clone(),
                identical_shapes: self.identical_shapes,
                dynamic_size: self.dynamic_size,
                clear_after_read: self.clear_after_read,
            },
            size,
        )?;
        ctx.step().resources().create(CONTAINER, &format!("{CONTAINER}{name}"), array)?;
        set_handle(ctx, CONTAINER, &name)
    }
}

/// Makes the array of an array's gradients, or gives the one that the same `source` has made.
struct Gradient {
    source: String,
}

impl Gradient {
    fn new(c: &Construction<'_>) -> Result<Gradient> {
        Ok(Gradient { source: c.attrs().str("source")?.to_owned() })
    }
}

impl Kernel for Gradient {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let front = if ctx.num_inputs() > 2 { ctx.input_as_shape(2)? } else { Shape::scalar() };
        let is_resource = ctx.node().input_types.first().is_some_and(|slot| slot.dtype == DType::Resource);
        let name = if is_resource {
            let key = super::key(ctx)?;
            let name = key.strip_prefix(CONTAINER);
            name.ok_or_else(|| invalid_argument!("Wrong input container. {key}"))?.to_owned()
        } else {
            let (container, name) = string_handle(ctx)?;
            if container != CONTAINER {
                return Err(invalid_argument!("Input container should be '{CONTAINER}',  but received '{container}'"));
            }
            name
        };
        let resources = ctx.step().resources();
        let array = resources.lookup::<TensorArray>(CONTAINER, &format!("{CONTAINER}{name}"))?;
        let name = format!("{name}@{}", self.source);
        // Once gradients are computed, the array may not grow any more, whoever made their array.
        array.with(|state| {
            state.dynamic_size = false;
            Ok(())
        })?;
        let made = || array.gradient(name.clone(), &front);
        resources.lookup_or_create(CONTAINER, &format!("{GRADIENTS}{name}"), made)?;
        set_handle(ctx, GRADIENTS, &name)
    }
}

/// The number of elements.
struct Size;

impl Kernel for Size {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = array(ctx)?.with(|state| Ok(state.size()))?;
        let size = i32::try_from(size).map_err(|_| internal!("a tensor array is too large"))?;
        ctx.set_scalar(0, size)
    }
}

/// Drops the elements and refuses further use.
struct Close;

impl Kernel for Close {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        array(ctx)?.close();
        Ok(())
    }
}
