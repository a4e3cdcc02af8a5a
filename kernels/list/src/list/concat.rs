//! Elements of a list one behind the other along their first dimension, and the way back.

use super::{ELEMENTS, check_type, check_vector_or_higher, element_shape, shape_input};
use crate::pieces::{check_length, joined, with_front, without_front};
use crate::variants::value;
use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Kernel, Registry, Stored, TensorList};
use graphmill_tensor::{DType, Result, Shape, Tensor, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("TensorListConcat").types("element_dtype", ELEMENTS).kernel(|c| Concat::new(c, false));
    registry.op("TensorListConcatV2").types("element_dtype", ELEMENTS).kernel(|c| Concat::new(c, true));
    registry.op("TensorListSplit").types("element_dtype", ELEMENTS).kernel(|_| Ok(Split));
}

/// The elements one behind the other, and their sizes. A missing element is as many zeros as `leading_dims` says, or as the other
/// elements have.
struct Concat {
    dtype: DType,
    /// The elements' shape if it is an attribute; the second version has it, and `leading_dims`, as inputs.
    shape: Option<PartialShape>,
}

impl Concat {
    fn new(c: &Construction<'_>, second: bool) -> Result<Concat> {
        let shape = if second { None } else { Some(c.attrs().shape("element_shape")?) };
        Ok(Concat { dtype: c.dtype("element_dtype")?, shape })
    }

    /// The first dimension that the shape of the elements gives, -1 if unknown, and what is known of the others.
    fn shape(&self, ctx: &Context<'_>, list: &TensorList) -> Result<(i64, PartialShape)> {
        let shape = match &self.shape {
            Some(shape) => shape.clone(),
            None => element_shape(ctx, list, 1)?,
        };
        match shape.dims() {
            None => Ok((-1, PartialShape::unknown())),
            Some([]) => {
                Err(invalid_argument!("Concat requires elements to be at least vectors, found scalars instead."))
            }
            // The attribute tells nothing of the first dimension.
            Some([first, rest @ ..]) => Ok((if self.shape.is_none() { *first } else { -1 }, PartialShape::new(rest)?)),
        }
    }
}

/// What the elements of a list tell of the first dimension (-1 if they differ or are all missing) and the others.
fn from_elements(list: &TensorList, first: i64, rest: PartialShape) -> Result<(i64, PartialShape)> {
    let mut rest = rest;
    let mut common: Option<Option<i64>> = (first != -1).then_some(Some(first));
    for (i, tensor) in list.tensors.iter().enumerate() {
        let Some(tensor) = tensor else { continue };
        if tensor.shape().is_scalar() {
            return Err(invalid_argument!("Concat saw a scalar shape at index {i} but requires at least vectors."));
        }
        rest = rest.merged(&PartialShape::from(&without_front(tensor.shape())?))?;
        let size = tensor.shape().dim(0) as i64;
        if first != -1 && first != size {
            return Err(invalid_argument!(
                "First entry of element_shape input does not match the first dim of list element at index: {i} Expected: \
                 {first} Actual: {size}"
            ));
        }
        common = match common {
            None => Some(Some(size)),
            Some(Some(before)) if before == size => common,
            Some(_) => Some(None),
        };
    }
    Ok((common.flatten().unwrap_or(-1), rest))
}

impl Kernel for Concat {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let list = value::<TensorList>(ctx, 0)?;
        check_type(&list, self.dtype)?;
        let (mut first, mut rest) = self.shape(ctx, &list)?;
        if list.tensors.is_empty() && !rest.is_fully_defined() {
            return Err(invalid_argument!(
                "All except the first dimension must be fully defined when concating an empty tensor list. element_shape: {rest}"
            ));
        }
        if !list.element_shape.is_fully_defined() {
            (first, rest) = from_elements(&list, first, rest)?;
        }
        let rest = rest.to_shape().ok_or_else(|| {
            invalid_argument!(
                "Trying to concat list with only uninitialized tensors but element_shape_except_first_dim is not fully defined: \
                 {rest}"
            )
        })?;
        let leading = if self.shape.is_none() { ctx.input(2)?.as_slice::<i64>()? } else { &[] };
        let mut lengths = Vec::with_capacity(list.tensors.len());
        for (i, tensor) in list.tensors.iter().enumerate() {
            lengths.push(match (tensor, leading.get(i)) {
                (Some(tensor), _) => tensor.shape().dim(0) as i64,
                (None, Some(&size)) => size,
                (None, None) if first != -1 => first,
                (None, None) if self.shape.is_some() => {
                    return Err(invalid_argument!(
                        "Concating lists with uninitialized tensors is not supported in this version of TensorListConcat. \
                         Consider updating your GraphDef to run the newer version."
                    ));
                }
                (None, None) => {
                    return Err(invalid_argument!(
                        "List contains uninitialized tensor at index {i} but leading_dims has only {} elements.",
                        leading.len()
                    ));
                }
            });
        }
        let total = lengths.iter().try_fold(0i64, |sum, &length| (length >= 0).then(|| sum.checked_add(length))?);
        let total = total.and_then(|total| usize::try_from(total).ok());
        let total = total.ok_or_else(|| invalid_argument!("leading_dims has negative or too large sizes"))?;
        let stride = rest.num_elements();
        let places = list.tensors.iter().zip(&lengths);
        let pieces = places.map(|(tensor, &length)| (tensor.as_ref(), length as usize * stride));
        let output = joined(self.dtype, with_front(total, &rest)?, pieces)?;
        drop(list);
        ctx.set_output(0, output)?;
        ctx.set_output(1, Tensor::vector(&lengths)?)
    }
}

/// A list of pieces of a tensor, of the given sizes along the first dimension.
struct Split;

impl Kernel for Split {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = shape_input(ctx, 1)?;
        let rest = match shape.dims() {
            None => PartialShape::unknown(),
            Some([]) => {
                return Err(invalid_argument!(
                    "TensorListSplit requires element_shape to be at least of rank 1, but saw: {shape}"
                ));
            }
            Some([_, rest @ ..]) => PartialShape::new(rest)?,
        };
        let tensor = ctx.input(0)?;
        check_vector_or_higher(tensor)?;
        let own: Shape = without_front(tensor.shape())?;
        if !rest.is_compatible_with(&own) {
            return Err(invalid_argument!(
                "tensor shape {} is not compatible with element_shape {shape}",
                tensor.shape()
            ));
        }
        let lengths = ctx.input(2)?;
        if !lengths.shape().is_vector() {
            return Err(invalid_argument!("Expected lengths to be a vector, received shape: {}", lengths.shape()));
        }
        let lengths = lengths.as_slice::<i64>()?;
        check_length(lengths.len())?;
        let size = tensor.shape().dim(0);
        let mut pieces = Vec::with_capacity(lengths.len());
        let mut start = 0usize;
        for &length in lengths {
            let count = usize::try_from(length).map_err(|_| invalid_argument!("Invalid value in lengths: {length}"))?;
            let end = start.checked_add(count).ok_or_else(|| internal!("lengths are too large"))?;
            if end > size {
                return Err(invalid_argument!("Attempting to slice [{start}, {end}] from tensor with length {size}"));
            }
            pieces.push(Some(tensor.rows(start, count)?));
            start = end;
        }
        if start != size {
            return Err(invalid_argument!("Unused values in tensor. Length of tensor: {size} Values used: {start}"));
        }
        let list = TensorList::new(tensor.dtype(), shape, pieces);
        ctx.set_output(0, list.into_tensor()?)
    }
}
