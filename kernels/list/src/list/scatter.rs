//! Rows of a tensor as elements of a list, by indices.

use super::{ELEMENTS, check_vector_or_higher, shape_input};
use crate::pieces::{check_length, row, without_front};
use crate::variants::{int32, update, value};
use graphmill_runtime::{Context, Kernel, Registry, Stored, TensorList};
use graphmill_tensor::{Result, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("TensorListScatter").types("element_dtype", ELEMENTS).kernel(|_| Ok(Scatter { sized: false }));
    registry.op("TensorListScatterV2").types("element_dtype", ELEMENTS).kernel(|_| Ok(Scatter { sized: true }));
    registry.op("TensorListScatterIntoExistingList").types("element_dtype", ELEMENTS).kernel(|_| Ok(ScatterInto));
}

/// A new list, long enough for the largest index, and as long as `num_elements` says.
struct Scatter {
    /// Whether there is a `num_elements`.
    sized: bool,
}

impl Kernel for Scatter {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = shape_input(ctx, 2)?;
        let size = if self.sized { int32(ctx, 3, "num_elements")? } else { -1 };
        if size < -1 {
            return Err(invalid_argument!("TensorListScatter expects num_elements >= -1, found: {size}"));
        }
        let tensor = ctx.input(0)?;
        check_vector_or_higher(tensor)?;
        let row_shape = without_front(tensor.shape())?;
        if !shape.is_compatible_with(&row_shape) {
            return Err(invalid_argument!("Specified a list with shape {shape} from a tensor with shape {row_shape}"));
        }
        let indices = ctx.input(1)?.as_slice::<i32>()?;
        let rows = tensor.shape().dim(0);
        if indices.len() != rows {
            return Err(invalid_argument!(
                "Invalid number of rows in input tensor. Expected: {} Actual: {rows}",
                indices.len()
            ));
        }
        let mut length = usize::try_from(size).unwrap_or(0);
        for &index in indices {
            let at = usize::try_from(index)
                .map_err(|_| invalid_argument!("Indices in TensorListScatter must all be non-negative."))?;
            if size != -1 && index >= size {
                return Err(invalid_argument!(
                    "TensorListScatter: Trying to scatter at index {index} in list with size {size}"
                ));
            }
            length = length.max(at + 1);
        }
        let mut list = TensorList::new(tensor.dtype(), shape, vec![None; check_length(length)?]);
        scatter(&mut list, tensor, indices)?;
        ctx.set_output(0, list.into_tensor()?)
    }
}

/// Puts rows where their indices say, in a list that is long enough.
fn scatter(list: &mut TensorList, tensor: &Tensor, indices: &[i32]) -> Result<()> {
    for (i, &index) in indices.iter().enumerate() {
        let place = usize::try_from(index).ok().and_then(|at| list.tensors.get_mut(at));
        let place = place.ok_or_else(|| invalid_argument!("Trying to scatter at index {index}"))?;
        *place = Some(row(tensor, i)?);
    }
    Ok(())
}

/// A list with some elements replaced; it grows where an index lies behind its end.
struct ScatterInto;

impl Kernel for ScatterInto {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let list = value::<TensorList>(ctx, 0)?;
        let (tensor, indices) = (ctx.input(1)?, ctx.input(2)?);
        if tensor.dtype() != list.element_dtype {
            return Err(invalid_argument!(
                "Invalid data types; input tensor type: {} list element_type: {}",
                tensor.dtype(),
                list.element_dtype
            ));
        }
        check_vector_or_higher(tensor)?;
        if !indices.shape().is_vector() {
            return Err(invalid_argument!("Expected indices to be a vector, but received shape: {}", indices.shape()));
        }
        let rows = tensor.shape().dim(0);
        if indices.num_elements() != rows {
            return Err(invalid_argument!(
                "Expected len(indices) == tensor.shape[0], but saw: {} vs. {rows}",
                indices.num_elements()
            ));
        }
        drop(list);
        let (tensor, indices) = (tensor.clone(), indices.clone());
        let indices = indices.as_slice::<i32>()?;
        let last = indices.iter().max().and_then(|&last| usize::try_from(last).ok());
        let length = check_length(last.map_or(0, |last| last + 1))?;
        update(ctx, |list: &mut TensorList| {
            if length > list.tensors.len() {
                list.tensors.resize(length, None);
            }
            scatter(list, &tensor, indices)
        })
    }
}
