//! Pieces of one tensor as many elements.

use super::{ITEMS, array, check_write, pass_flow};
use crate::pieces::row;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("TensorArrayUnpack").types("T", ITEMS).kernel(|_| Ok(Scatter { all: true }));
    for op in ["TensorArrayScatter", "TensorArrayScatterV2", "TensorArrayScatterV3"] {
        registry.op(op).types("T", ITEMS).kernel(|_| Ok(Scatter { all: false }));
    }
    for op in ["TensorArraySplit", "TensorArraySplitV2", "TensorArraySplitV3"] {
        registry.op(op).types("T", ITEMS).kernel(|_| Ok(Split));
    }
}

/// Writes the rows of a tensor to the indices, or to all indices in their order.
struct Scatter {
    all: bool,
}

impl Kernel for Scatter {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let array = array(ctx)?;
        let value = ctx.input(if self.all { 1 } else { 2 })?;
        check_write(&array, value)?;
        if value.shape().is_scalar() {
            return Err(invalid_argument!(
                "Input value for unpack must be at least a vector but received shape: {}",
                value.shape()
            ));
        }
        let rows = value.shape().dim(0);
        let count = i32::try_from(rows).map_err(|_| invalid_argument!("tensor dim0 too large to unpack"))?;
        let indices: Vec<i32> = if self.all {
            (0..count).collect()
        } else {
            let indices = ctx.input(1)?;
            if !indices.shape().is_vector() {
                return Err(invalid_argument!(
                    "Expected indices to be a vector, but received shape: {}",
                    indices.shape()
                ));
            }
            if indices.num_elements() != rows {
                return Err(invalid_argument!(
                    "Expected len(indices) == values.shape[0], but saw: {} vs. {rows}",
                    indices.num_elements()
                ));
            }
            indices.as_slice::<i32>()?.to_vec()
        };
        let values = (0..rows).map(|i| row(value, i)).collect::<Result<Vec<_>>>()?;
        array.with(|state| {
            let last = indices.iter().max().copied().unwrap_or(-1);
            let needed = usize::try_from(last).map_or(0, |last| last + 1);
            let size = if state.dynamic_size { state.size().max(needed) } else { state.size() };
            if self.all && rows != size {
                return Err(invalid_argument!(
                    "Input value must have first dimension equal to the array size ({rows} vs. {size})"
                ));
            }
            if needed > size {
                return Err(invalid_argument!("Max scatter index must be < array size ({last} vs. {size})"));
            }
            if self.all && !array.is_gradient {
                state.marked_size = Some(size);
            }
            indices.iter().zip(values).try_for_each(|(&index, value)| array.write(state, index, value))
        })?;
        pass_flow(ctx, if self.all { 2 } else { 3 })
    }
}

/// Writes pieces of a tensor, of the given sizes along its first dimension.
struct Split;

impl Kernel for Split {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let array = array(ctx)?;
        let (value, lengths) = (ctx.input(1)?, ctx.input(2)?);
        if !lengths.shape().is_vector() {
            return Err(invalid_argument!("Expected lengths to be a vector, received shape: {}", lengths.shape()));
        }
        let lengths = lengths.as_slice::<i64>()?;
        if value.shape().is_scalar() {
            return Err(invalid_argument!(
                "Expected value to be at least a vector, but received shape: {}",
                value.shape()
            ));
        }
        let bad = || invalid_argument!("Expected lengths to be at least 0");
        let sizes = lengths.iter().map(|&length| usize::try_from(length).map_err(|_| bad()));
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size)).ok_or_else(bad)?;
        if total != value.shape().dim(0) {
            return Err(invalid_argument!(
                "Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {total} and value's shape is: {}",
                value.shape()
            ));
        }
        check_write(&array, value)?;
        let mut start = 0;
        let mut pieces = Vec::with_capacity(sizes.len());
        for &size in &sizes {
            pieces.push(value.rows(start, size)?);
            start += size;
        }
        array.with(|state| {
            let size = if state.dynamic_size { state.size().max(pieces.len()) } else { state.size() };
            if size != pieces.len() {
                return Err(invalid_argument!(
                    "TensorArray's size is not equal to the size of lengths ({size} vs. {}), and the TensorArray is not marked as \
                     dynamically resizeable",
                    pieces.len()
                ));
            }
            if !array.is_gradient {
                state.marked_size = Some(size);
            }
            (0..).zip(pieces).try_for_each(|(index, piece)| array.write(state, index, piece))
        })?;
        pass_flow(ctx, 3)
    }
}
