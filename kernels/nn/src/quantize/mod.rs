//! Quantised numbers: to them, from them, there and back, and the simulation of all that with its gradients.

mod arithmetic;
mod channels;
mod convert;
mod fake;
mod instance_norm;
mod layout;
mod norm;
mod product;
mod range;
mod requantize;
mod resize;
mod round_trip;

#[cfg(test)]
mod tests;

use graphmill_runtime::Registry;
use graphmill_tensor::{Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    arithmetic::register(registry);
    channels::register(registry);
    convert::register(registry);
    instance_norm::register(registry);
    layout::register(registry);
    norm::register(registry);
    product::register(registry);
    requantize::register(registry);
    resize::register(registry);
    fake::register(registry);
    round_trip::register(registry);
}

/// How the elements of a tensor are dealt to the slices along an axis, or to one slice.
#[derive(Clone, Copy)]
struct Slices {
    count: usize,
    /// Elements of a slice in a row.
    inner: usize,
}

impl Slices {
    fn new(shape: &Shape, axis: Option<usize>) -> Slices {
        match axis {
            Some(axis) => Slices { count: shape.dim(axis), inner: shape.stride(axis) },
            None => Slices { count: 1, inner: shape.num_elements() },
        }
    }

    /// The slice that element `at` belongs to.
    fn of(self, at: usize) -> usize {
        at.checked_div(self.inner).unwrap_or(0) % self.count.max(1)
    }
}

/// The axis in an attribute, of which -1 means none.
fn axis_of(axis: i64, rank: usize) -> Result<Option<usize>> {
    if axis < -1 {
        return Err(invalid_argument!("Axis must be at least -1. Found {axis}"));
    }
    match usize::try_from(axis) {
        Ok(axis) if axis < rank => Ok(Some(axis)),
        Ok(axis) => Err(invalid_argument!("Shape must be at least rank {} but is rank {rank}", axis + 1)),
        Err(_) => Ok(None),
    }
}

/// The one value of a tensor of one element.
fn single(tensor: &Tensor) -> Result<f32> {
    match tensor.as_slice::<f32>()? {
        [value] => Ok(*value),
        values => Err(invalid_argument!("expected one element, got {}", values.len())),
    }
}
