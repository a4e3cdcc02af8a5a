//! Many elements in one tensor.

use super::{GATHERED, array, check_read};
use crate::pieces::{joined, with_front, without_front};
use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument, unimplemented_op};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("TensorArrayPack").types("dtype", GATHERED).kernel(|c| Gather::new(c, true));
    for op in ["TensorArrayGather", "TensorArrayGatherV2", "TensorArrayGatherV3"] {
        registry.op(op).types("dtype", GATHERED).kernel(|c| Gather::new(c, false));
    }
    let concatenated: Vec<DType> = GATHERED.iter().copied().filter(|&dtype| dtype != DType::Variant).collect();
    for op in ["TensorArrayConcat", "TensorArrayConcatV2", "TensorArrayConcatV3"] {
        registry.op(op).types("dtype", &concatenated).kernel(Concat::new);
    }
}

/// The elements that indices name, or all of them, along a new first dimension.
struct Gather {
    dtype: DType,
    element_shape: PartialShape,
    all: bool,
}

impl Gather {
    fn new(c: &Construction<'_>, all: bool) -> Result<Gather> {
        Ok(Gather { dtype: c.dtype("dtype")?, element_shape: c.attrs().shape("element_shape")?, all })
    }
}

impl Kernel for Gather {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let array = array(ctx)?;
        check_read(&array, self.dtype)?;
        let indices = if self.all {
            None
        } else {
            let indices = ctx.input(1)?;
            if !indices.shape().is_vector() {
                return Err(invalid_argument!(
                    "Expected indices to be a vector, but received shape: {}",
                    indices.shape()
                ));
            }
            Some(indices.as_slice::<i32>()?)
        };
        let values = array.with(|state| {
            state.element_shape = state.element_shape.merged(&self.element_shape)?;
            match indices {
                Some(indices) => indices.iter().map(|&index| array.read(state, index)).collect::<Result<Vec<_>>>(),
                None => {
                    let marked = if array.is_gradient { state.marked_size.unwrap_or(0) } else { state.size() };
                    (0..marked as i32).map(|index| array.read(state, index)).collect()
                }
            }
        })?;
        let Some(first) = values.first() else {
            let shape = self.element_shape.to_shape().ok_or_else(|| {
                unimplemented_op!(
                    "TensorArray has size zero, but element shape {} is not fully defined. Currently only static shapes are \
                     supported when packing zero-size TensorArrays.",
                    self.element_shape
                )
            })?;
            return ctx.set_output(0, Tensor::alloc(self.dtype, with_front(0, &shape)?)?);
        };
        if !self.element_shape.is_compatible_with(first.shape()) {
            return Err(invalid_argument!(
                "TensorArray was passed element_shape {} which does not match the Tensor at index 0: {}",
                self.element_shape,
                first.shape()
            ));
        }
        if let Some((i, other)) = values.iter().enumerate().find(|(_, value)| value.shape() != first.shape()) {
            return Err(invalid_argument!(
                "TensorArray has inconsistent shapes.  Index 0 has shape: {} but index {i} has shape: {}",
                first.shape(),
                other.shape()
            ));
        }
        let shape = with_front(values.len(), first.shape())?;
        let pieces = values.iter().map(|value| (Some(value), value.num_elements()));
        ctx.set_output(0, joined(self.dtype, shape, pieces)?)
    }
}

/// All elements one behind the other along their first dimension, and their sizes.
struct Concat {
    dtype: DType,
    /// What is declared of the elements' shape behind the first dimension.
    rest: PartialShape,
}

impl Concat {
    fn new(c: &Construction<'_>) -> Result<Concat> {
        Ok(Concat { dtype: c.dtype("dtype")?, rest: c.attrs().shape("element_shape_except0")? })
    }
}

impl Kernel for Concat {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let array = array(ctx)?;
        check_read(&array, self.dtype)?;
        let values = array.with(|state| {
            let count = if array.is_gradient { state.marked_size.unwrap_or(0) } else { state.size() };
            (0..count as i32).map(|index| array.read(state, index)).collect::<Result<Vec<_>>>()
        })?;
        if values.is_empty() {
            let rest = self.rest.to_shape().ok_or_else(|| {
                unimplemented_op!(
                    "TensorArray has size zero, but element_shape_except0 {} is not fully defined. Currently only static shapes \
                     are supported when concatenating zero-size TensorArrays.",
                    self.rest
                )
            })?;
            ctx.set_output(0, Tensor::alloc(self.dtype, with_front(0, &rest)?)?)?;
            return ctx.set_output(1, Tensor::vector::<i64>(&[])?);
        }
        let mut lengths = Vec::with_capacity(values.len());
        let mut common = None;
        for (i, value) in values.iter().enumerate() {
            if value.shape().is_scalar() {
                return Err(invalid_argument!(
                    "Concat saw a scalar shape at index {i} but requires at least vectors.  Did you mean to call pack?"
                ));
            }
            lengths.push(value.shape().dim(0) as i64);
            let rest = without_front(value.shape())?;
            match &common {
                None if !self.rest.is_compatible_with(&rest) => {
                    return Err(invalid_argument!(
                        "TensorArray was passed element_shape_except0 {} but index 0 has (excepting dimension 0) shape: {rest} which \
                         does not match.",
                        self.rest
                    ));
                }
                None => common = Some(rest),
                Some(first) if *first != rest => {
                    return Err(invalid_argument!(
                        "TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape: {first} but index {i} has \
                         (excepting dimension 0) shape: {rest}"
                    ));
                }
                Some(_) => {}
            }
        }
        let rest = common.unwrap_or_else(graphmill_tensor::Shape::scalar);
        let total: usize = values.iter().map(|value| value.shape().dim(0)).sum();
        let pieces = values.iter().map(|value| (Some(value), value.num_elements()));
        ctx.set_output(0, joined(self.dtype, with_front(total, &rest)?, pieces)?)?;
        ctx.set_output(1, Tensor::vector(&lengths)?)
    }
}
