//! Values that may be missing.

use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Kernel, Optional, Registry, Stored};
use graphmill_tensor::{Result, invalid_argument};
use std::borrow::Cow;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("OptionalNone").kernel(|_| Ok(NoValue));
    registry.op("OptionalFromValue").kernel(|_| Ok(FromValue));
    registry.op("OptionalHasValue").kernel(|_| Ok(HasValue));
    registry.op("OptionalGetValue").kernel(GetValue::new);
}

fn optional<'a>(ctx: &'a Context<'_>) -> Result<Cow<'a, Optional>> {
    let input = ctx.input(0)?;
    match input.variants()? {
        [variant] if input.shape().is_scalar() => Optional::of(variant)?
            .ok_or_else(|| invalid_argument!("Input to OptionalHasValue must be an OptionalVariant object.")),
        _ => Err(invalid_argument!(
            "Input to OptionalHasValue must be a scalar tensor containing an OptionalVariant object."
        )),
    }
}

/// An optional without a value.
struct NoValue;

impl Kernel for NoValue {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_output(0, Optional(None).into_tensor()?)
    }
}

/// An optional with the inputs as its value.
struct FromValue;

impl Kernel for FromValue {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let components = (0..ctx.num_inputs()).map(|i| ctx.take_input(i)).collect::<Result<_>>()?;
        ctx.set_output(0, Optional(Some(components)).into_tensor()?)
    }
}

/// Whether there is a value.
struct HasValue;

impl Kernel for HasValue {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let has_value = optional(ctx)?.0.is_some();
        ctx.set_scalar(0, has_value)
    }
}

/// The value, which must have the declared types and shapes.
struct GetValue {
    shapes: Vec<PartialShape>,
}

impl GetValue {
    fn new(c: &Construction<'_>) -> Result<GetValue> {
        Ok(GetValue { shapes: c.attrs().shape_list("output_shapes")? })
    }
}

impl Kernel for GetValue {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let optional = optional(ctx)?;
        let Some(components) = &optional.0 else {
            return Err(invalid_argument!("The given optional does not have a value."));
        };
        if components.len() != ctx.num_outputs() {
            return Err(invalid_argument!(
                "The given optional has {} components, expected {}",
                components.len(),
                ctx.num_outputs()
            ));
        }
        for (i, component) in components.iter().enumerate() {
            let expected = ctx.output_type(i)?;
            if component.dtype() != expected {
                return Err(invalid_argument!(
                    "The given optional does not match the expected type for component {i}. Expected: {expected}. Actual: {}.",
                    component.dtype()
                ));
            }
            if let Some(shape) = self.shapes.get(i).filter(|shape| !shape.is_compatible_with(component.shape())) {
                return Err(invalid_argument!(
                    "The given optional does not match the expected shape for component {i}. Expected: {shape}. Actual: {}.",
                    component.shape()
                ));
            }
        }
        let components = components.clone();
        drop(optional);
        for (i, component) in components.into_iter().enumerate() {
            ctx.set_output(i, component)?;
        }
        Ok(())
    }
}
