//! Ops on tensors of many lists.

use super::{ELEMENTS, check_type};
use crate::pieces::{row, without_front};
use graphmill_runtime::{Construction, Context, Kernel, Registry, Stored, TensorList};
use graphmill_tensor::{DType, Result, Tensor, Variant, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("TensorListPushBackBatch").types("element_dtype", ELEMENTS).kernel(PushBackBatch::new);
    registry.op("TensorListConcatLists").kernel(ConcatLists::new);
}

/// Changes each list of a tensor of lists: in place where nobody else holds it.
fn update_each(tensor: Tensor, mut change: impl FnMut(usize, &mut TensorList) -> Result<()>) -> Result<Tensor> {
    let mut tensor = tensor.into_unique()?;
    for (i, variant) in tensor.variants_mut()?.iter_mut().enumerate() {
        if let Some(list) = variant.get_mut::<TensorList>() {
            change(i, list)?;
            continue;
        }
        let list = TensorList::of(variant)?;
        let mut list = list.ok_or_else(|| not_a_list("Input handle", i, variant))?.into_owned();
        change(i, &mut list)?;
        *variant = Variant::of(list);
    }
    Ok(tensor)
}

fn not_a_list(what: &str, i: usize, variant: &Variant) -> graphmill_tensor::Status {
    invalid_argument!("{what} is not a list at index {i}. Saw: 'Variant<type: {}>'", variant.type_name)
}

/// Adds row `i` of a tensor to list `i`.
struct PushBackBatch {
    dtype: DType,
}

impl PushBackBatch {
    fn new(c: &Construction<'_>) -> Result<PushBackBatch> {
        Ok(PushBackBatch { dtype: c.dtype("element_dtype")? })
    }
}

impl Kernel for PushBackBatch {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (handles, input) = (ctx.input(0)?, ctx.input(1)?);
        if input.shape().is_scalar() {
            return Err(invalid_argument!("Expected tensor to be at least a vector, but saw shape: {}", input.shape()));
        }
        if !handles.shape().is_vector() {
            return Err(invalid_argument!("Expected input_handles to be a vector, but saw shape: {}", handles.shape()));
        }
        let (rows, lists) = (input.shape().dim(0), handles.num_elements());
        if rows != lists {
            return Err(invalid_argument!(
                "Expected tensor.shape[0] == input_handles.size, but saw {rows} vs. {lists}"
            ));
        }
        let shape = without_front(input.shape())?;
        let input = input.clone();
        let lists = update_each(ctx.take_input(0)?, |i, list| {
            if !list.element_shape.is_compatible_with(&shape) {
                return Err(invalid_argument!(
                    "Tried to append a tensor with incompatible shape to a list at index {i}. Op element shape: {shape} list \
                     shape: {}",
                    list.element_shape
                ));
            }
            check_type(list, self.dtype)?;
            list.tensors.push(Some(row(&input, i)?));
            Ok(())
        })?;
        ctx.set_output(0, lists)
    }
}

/// Adds the elements of each list of the second input to the list in the same place of the first.
struct ConcatLists {
    dtype: DType,
}

impl ConcatLists {
    fn new(c: &Construction<'_>) -> Result<ConcatLists> {
        Ok(ConcatLists { dtype: c.dtype("element_dtype")? })
    }

    fn check(&self, list: &TensorList, which: &str, i: usize) -> Result<()> {
        if list.element_dtype == self.dtype {
            return Ok(());
        }
        let dtype = self.dtype;
        Err(invalid_argument!("{which}[{i}].dtype != element_dtype.  Saw: {} vs. {dtype}", list.element_dtype))
    }
}

impl Kernel for ConcatLists {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0)?.shape(), ctx.input(1)?);
        if a != b.shape() {
            return Err(invalid_argument!("Incompatible input TensorList tensor shapes: {a} vs. {}", b.shape()));
        }
        let b = b.clone();
        let b = b.variants()?;
        let lists = update_each(ctx.take_input(0)?, |i, list| {
            let variant = b.get(i).ok_or_else(|| invalid_argument!("There is no list at index {i}"))?;
            let other = TensorList::of(variant)?.ok_or_else(|| not_a_list("input_b", i, variant))?;
            self.check(list, "input_a", i)?;
            self.check(&other, "input_b", i)?;
            if list.element_shape != other.element_shape {
                return Err(invalid_argument!(
                    "input_a and input_b TensorList element shapes are not identical at index {i}.  Saw {} vs. {}",
                    list.element_shape,
                    other.element_shape
                ));
            }
            list.tensors.extend(other.tensors.iter().cloned());
            Ok(())
        })?;
        ctx.set_output(0, lists)
    }
}
