//! Elements of a list in one tensor.

use super::{ELEMENTS, check_type, element_shape, with_elements};
use crate::pieces::{joined, with_front};
use crate::variants::value;
use graphmill_runtime::{Construction, Context, Kernel, Registry, TensorList};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("TensorListStack").types("element_dtype", ELEMENTS).kernel(Stack::new);
    registry.op("TensorListGather").types("element_dtype", ELEMENTS).kernel(Gather::new);
}

/// All elements; zeros for missing ones.
struct Stack {
    dtype: DType,
    /// The number of elements that there must be.
    count: Option<usize>,
}

impl Stack {
    fn new(c: &Construction<'_>) -> Result<Stack> {
        Ok(Stack { dtype: c.dtype("element_dtype")?, count: usize::try_from(c.attrs().int("num_elements")?).ok() })
    }
}

impl Kernel for Stack {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let list = value::<TensorList>(ctx, 0)?;
        check_type(&list, self.dtype)?;
        let length = list.tensors.len();
        if let Some(count) = self.count.filter(|&count| count != length) {
            return Err(invalid_argument!(
                "Operation expected a list with {count} elements but got a list with {length} elements."
            ));
        }
        let mut shape = element_shape(ctx, &list, 1)?;
        if !shape.is_fully_defined() && list.tensors.is_empty() {
            return Err(invalid_argument!(
                "Tried to stack elements of an empty list with non-fully-defined element_shape: {shape}"
            ));
        }
        if !list.element_shape.is_fully_defined() {
            shape = with_elements(shape, list.tensors.iter().flatten())?;
        }
        let element = shape.to_shape().ok_or_else(|| {
            invalid_argument!(
                "Tried to stack list which only contains uninitialized tensors and has a non-fully-defined element_shape: \
                 {shape}"
            )
        })?;
        let pieces = list.tensors.iter().map(|tensor| (tensor.as_ref(), element.num_elements()));
        let output = joined(self.dtype, with_front(length, &element)?, pieces)?;
        drop(list);
        ctx.set_output(0, output)
    }
}

/// The elements that the indices name; zeros for missing ones.
struct Gather {
    dtype: DType,
}

impl Gather {
    fn new(c: &Construction<'_>) -> Result<Gather> {
        Ok(Gather { dtype: c.dtype("element_dtype")? })
    }
}

impl Kernel for Gather {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let list = value::<TensorList>(ctx, 0)?;
        check_type(&list, self.dtype)?;
        let indices = ctx.input(1)?.as_slice::<i32>()?;
        let mut shape = element_shape(ctx, &list, 2)?;
        if !shape.is_fully_defined() && indices.is_empty() {
            return Err(invalid_argument!(
                "Tried to gather 0-elements from a list with non-fully-defined shape: {shape}"
            ));
        }
        let element = |&index: &i32| -> Result<Option<&Tensor>> {
            let element = usize::try_from(index).ok().and_then(|at| list.tensors.get(at));
            let element = element.ok_or_else(|| {
                invalid_argument!("Index {index} out o range; list only has {} elements.", list.tensors.len())
            })?;
            Ok(element.as_ref())
        };
        let elements = indices.iter().map(element).collect::<Result<Vec<_>>>()?;
        if !list.element_shape.is_fully_defined() {
            shape = with_elements(shape, elements.iter().copied().flatten())?;
        }
        let element = shape.to_shape().ok_or_else(|| {
            invalid_argument!(
                "Tried to gather uninitialized tensors from a list with non-fully-defined element_shape: {shape}"
            )
        })?;
        let pieces = elements.iter().map(|&tensor| (tensor, element.num_elements()));
        let output = joined(self.dtype, with_front(indices.len(), &element)?, pieces)?;
        drop(list);
        ctx.set_output(0, output)
    }
}
