//! Making lists, and what is known of them.

use super::{ELEMENTS, check_vector_or_higher, shape_input};
use crate::pieces::{check_length, row, without_front};
use crate::variants::{int32, update, value};
use graphmill_runtime::{Construction, Context, Kernel, Registry, Stored, TensorList};
use graphmill_tensor::{DType, Result, Tensor, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("EmptyTensorList").kernel(|c| Ok(Empty { dtype: c.dtype("element_dtype")? }));
    registry.op("TensorListReserve").kernel(|c| Ok(Reserve { dtype: c.dtype("element_dtype")? }));
    registry.op("TensorListFromTensor").types("element_dtype", ELEMENTS).kernel(|_| Ok(FromTensor));
    registry.op("TensorListLength").kernel(|_| Ok(Length));
    registry.op("TensorListElementShape").kernel(ElementShape::new);
    registry.op("TensorListResize").kernel(|_| Ok(Resize));
}

/// A list without elements; a negative `max_num_elements` means no limit.
struct Empty {
    dtype: DType,
}

impl Kernel for Empty {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let limit = int32(ctx, 1, "max_num_elements")?;
        let mut list = TensorList::new(self.dtype, shape_input(ctx, 0)?, Vec::new());
        list.max_num_elements = usize::try_from(limit).ok();
        ctx.set_output(0, list.into_tensor()?)
    }
}

/// A list of a length, without values.
struct Reserve {
    dtype: DType,
}

impl Kernel for Reserve {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = shape_input(ctx, 0)?;
        let length = int32(ctx, 1, "num_elements")?;
        let length = usize::try_from(length).map_err(|_| {
            invalid_argument!("The num_elements to reserve must be a non negative number, but got {length}")
        })?;
        let list = TensorList::new(self.dtype, shape, vec![None; check_length(length)?]);
        ctx.set_output(0, list.into_tensor()?)
    }
}

/// The rows of a tensor.
struct FromTensor;

impl Kernel for FromTensor {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = shape_input(ctx, 1)?;
        let tensor = ctx.input(0)?;
        check_vector_or_higher(tensor)?;
        let row_shape = without_front(tensor.shape())?;
        if !shape.is_compatible_with(&row_shape) {
            return Err(invalid_argument!("Specified a list with shape {shape} from a tensor with shape {row_shape}"));
        }
        let count = check_length(tensor.shape().dim(0))?;
        let rows = (0..count).map(|i| row(tensor, i).map(Some)).collect::<Result<_>>()?;
        let list = TensorList::new(tensor.dtype(), shape, rows);
        ctx.set_output(0, list.into_tensor()?)
    }
}

/// The number of elements.
struct Length;

impl Kernel for Length {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let length = value::<TensorList>(ctx, 0)?.tensors.len();
        let length = i32::try_from(length).map_err(|_| internal!("a list is too long"))?;
        ctx.set_scalar(0, length)
    }
}

/// What is known of the elements' shape: a vector with -1 for unknown sizes, or the scalar -1.
struct ElementShape {
    wide: bool,
}

impl ElementShape {
    fn new(c: &Construction<'_>) -> Result<ElementShape> {
        Ok(ElementShape { wide: c.dtype("shape_type")? == DType::Int64 })
    }
}

impl Kernel for ElementShape {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = value::<TensorList>(ctx, 0)?.element_shape.clone();
        let output = match shape.dims() {
            None if self.wide => Tensor::scalar(-1i64)?,
            None => Tensor::scalar(-1i32)?,
            Some(dims) if self.wide => Tensor::vector(dims)?,
            // As TensorFlow narrows sizes.
            Some(dims) => Tensor::vector(&dims.iter().map(|&dim| dim as i32).collect::<Vec<_>>())?,
        };
        ctx.set_output(0, output)
    }
}

/// The list cut, or with missing elements at its end.
struct Resize;

impl Kernel for Resize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        value::<TensorList>(ctx, 0)?;
        let size = int32(ctx, 1, "size")?;
        let size = usize::try_from(size)
            .map_err(|_| invalid_argument!("TensorListSlice expects size to be non-negative. Got: {size}"))?;
        check_length(size)?;
        update(ctx, |list: &mut TensorList| {
            list.tensors.resize(size, None);
            Ok(())
        })
    }
}
