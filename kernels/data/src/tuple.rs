//! Putting elements together and taking them apart.

use crate::dataset::Tuple;
use graphmill_tensor::{Result, Shape, Tensor, internal, invalid_argument};

/// One element made of several: each component stacked along a new first dimension.
///
/// # Errors
/// `INVALID_ARGUMENT` if the shapes of a component differ.
pub(crate) fn stack(elements: &[Tuple]) -> Result<Tuple> {
    let Some(first) = elements.first() else {
        return Err(internal!("a batch needs an element"));
    };
    (0..first.len()).map(|component| stack_component(elements, component)).collect()
}

fn stack_component(elements: &[Tuple], component: usize) -> Result<Tensor> {
    let mut parts = elements
        .iter()
        .map(|element| element.get(component).ok_or_else(|| internal!("an element lacks component {component}")));
    let first = match parts.next() {
        Some(first) => first?,
        None => return Err(internal!("a batch needs an element")),
    };
    let size = first.num_elements();
    let mut batch = Tensor::alloc(first.dtype(), with_leading(elements.len(), first.shape())?)?;
    batch.copy_elements(0, first, 0..size)?;
    for (i, part) in (1..).zip(parts) {
        let part = part?;
        if part.shape() != first.shape() {
            return Err(invalid_argument!(
                "Cannot batch tensors with different shapes in component {component}. First element had shape {} and \
                 element {i} had shape {}.",
                first.shape(),
                part.shape()
            ));
        }
        batch.copy_elements(i * size, part, 0..size)?;
    }
    Ok(batch)
}

/// A shape with one more dimension in front.
pub(crate) fn with_leading(size: usize, shape: &Shape) -> Result<Shape> {
    let dims: smallvec::SmallVec<[usize; 8]> = std::iter::once(size).chain(shape.dims().iter().copied()).collect();
    Shape::from_dims(&dims)
}

/// Row `i` of a tensor, without its first dimension. Shares the elements.
pub(crate) fn row(tensor: &Tensor, i: usize) -> Result<Tensor> {
    let shape = Shape::from_dims(tensor.shape().dims().get(1..).unwrap_or_default())?;
    tensor.rows(i, 1)?.into_shape(shape)
}

/// One element made of several: each component's rows one behind the other.
///
/// # Errors
/// `INVALID_ARGUMENT` if the shapes of rows differ.
pub(crate) fn join(elements: &[Tuple]) -> Result<Tuple> {
    let Some(first) = elements.first() else {
        return Err(internal!("a batch needs an element"));
    };
    if elements.len() == 1 {
        return Ok(first.clone());
    }
    let component = |(i, first): (usize, &Tensor)| {
        let parts: Vec<&Tensor> = elements.iter().filter_map(|element| element.get(i)).collect();
        let inner = |tensor: &Tensor| tensor.shape().dims().get(1..).map(<[usize]>::to_vec);
        if parts.iter().any(|part| inner(part) != inner(first) || part.dtype() != first.dtype()) {
            return Err(invalid_argument!("Cannot join batches whose elements differ in shape in component {i}."));
        }
        let rows = parts.iter().map(|part| part.shape().dim(0)).sum();
        let mut joined = Tensor::alloc(first.dtype(), first.shape().with_dim(0, rows)?)?;
        let mut to = 0;
        for part in parts {
            joined.copy_elements(to, part, 0..part.num_elements())?;
            to += part.num_elements();
        }
        Ok(joined)
    };
    first.iter().enumerate().map(component).collect()
}
