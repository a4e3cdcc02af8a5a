//! Single elements of lists.

use super::{ELEMENTS, check_type, element_shape, missing_element, with_elements};
use crate::pieces::check_length;
use crate::variants::{int32, update, value};
use graphmill_runtime::{Construction, Context, Kernel, Registry, TensorList};
use graphmill_tensor::{DType, Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("TensorListPushBack").kernel(|c| Ok(PushBack { dtype: c.dtype("element_dtype")? }));
    registry.op("TensorListPopBack").types("element_dtype", ELEMENTS).kernel(PopBack::new);
    registry.op("TensorListSetItem").kernel(SetItem::new);
    registry.op("TensorListGetItem").types("element_dtype", ELEMENTS).kernel(GetItem::new);
}

/// Adds an element.
struct PushBack {
    dtype: DType,
}

impl Kernel for PushBack {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(1)?;
        let list = value::<TensorList>(ctx, 0)?;
        if !list.element_shape.is_compatible_with(input.shape()) {
            return Err(invalid_argument!(
                "Tried to append a tensor with incompatible shape to a list. Op element shape: {} list shape: {}",
                input.shape(),
                list.element_shape
            ));
        }
        check_type(&list, self.dtype)?;
        if let Some(limit) = list.max_num_elements
            && list.tensors.len() >= limit
        {
            return Err(invalid_argument!(
                "Tried to push item into a full list list size: {} max_num_elements: {limit}",
                list.tensors.len()
            ));
        }
        drop(list);
        let input = ctx.take_input(1)?;
        update(ctx, |list: &mut TensorList| {
            list.tensors.push(Some(input));
            Ok(())
        })
    }
}

/// Takes the last element.
struct PopBack {
    dtype: DType,
}

impl PopBack {
    fn new(c: &Construction<'_>) -> Result<PopBack> {
        Ok(PopBack { dtype: c.dtype("element_dtype")? })
    }
}

impl Kernel for PopBack {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let list = value::<TensorList>(ctx, 0)?;
        check_type(&list, self.dtype)?;
        let missing = match list.tensors.last() {
            None => return Err(invalid_argument!("Trying to pop from an empty list.")),
            Some(Some(_)) => None,
            Some(None) => Some(missing_element(self.dtype, &element_shape(ctx, &list, 1)?, "")?),
        };
        drop(list);
        let mut popped = None;
        update(ctx, |list: &mut TensorList| {
            popped = list.tensors.pop().flatten();
            Ok(())
        })?;
        match popped.or(missing) {
            Some(element) => ctx.set_output(1, element),
            None => Err(invalid_argument!("Trying to pop from an empty list.")),
        }
    }
}

/// Replaces an element.
struct SetItem {
    dtype: DType,
    grows: bool,
}

impl SetItem {
    fn new(c: &Construction<'_>) -> Result<SetItem> {
        let dtype = c.dtype("element_dtype")?;
        Ok(SetItem { dtype, grows: c.attrs().bool("resize_if_index_out_of_bounds")? })
    }
}

impl Kernel for SetItem {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let list = value::<TensorList>(ctx, 0)?;
        check_type(&list, self.dtype)?;
        let index = int32(ctx, 1, "index")?;
        let length = list.tensors.len();
        let at = usize::try_from(index).ok().filter(|&at| self.grows || at < length);
        let at =
            at.ok_or_else(|| invalid_argument!("Trying to modify element {index} in a list with {length} elements."))?;
        let item = ctx.input(2)?;
        if !list.element_shape.is_compatible_with(item.shape()) {
            return Err(invalid_argument!(
                "Tried to set a tensor with incompatible shape at a list index. Item element shape: {} list shape: {}",
                item.shape(),
                list.element_shape
            ));
        }
        drop(list);
        check_length(at + 1)?;
        let item = ctx.take_input(2)?;
        update(ctx, |list: &mut TensorList| {
            if at >= list.tensors.len() {
                list.tensors.resize(at + 1, None);
            }
            list.tensors[at] = Some(item);
            Ok(())
        })
    }
}

/// Gives an element; zeros if it is missing and its shape is known.
struct GetItem {
    dtype: DType,
}

impl GetItem {
    fn new(c: &Construction<'_>) -> Result<GetItem> {
        Ok(GetItem { dtype: c.dtype("element_dtype")? })
    }
}

impl Kernel for GetItem {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let list = value::<TensorList>(ctx, 0)?;
        check_type(&list, self.dtype)?;
        let index = int32(ctx, 1, "index")?;
        let element = usize::try_from(index).ok().and_then(|at| list.tensors.get(at)).ok_or_else(|| {
            invalid_argument!("Trying to access element {index} in a list with {} elements.", list.tensors.len())
        })?;
        let element = match element {
            Some(element) => element.clone(),
            None => {
                let mut shape = element_shape(ctx, &list, 2)?;
                if !shape.is_fully_defined() {
                    shape = with_elements(shape, list.tensors.iter().flatten())?;
                }
                missing_element(self.dtype, &shape, " and no list element is set.")?
            }
        };
        drop(list);
        ctx.set_output(0, element)
    }
}
