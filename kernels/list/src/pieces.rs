//! Taking tensors apart into pieces along their first dimension, and putting pieces together.

use graphmill_tensor::{DType, Result, Shape, Status, Tensor, invalid_argument, resource_exhausted};

/// Most places that an input may ask for at once, which bounds their memory.
const MAX_LENGTH: usize = 1 << 27;

/// A shape with one more dimension in front.
///
/// # Errors
/// As [`Shape::from_dims`].
pub(crate) fn with_front(size: usize, shape: &Shape) -> Result<Shape> {
    let mut dims = vec![size];
    dims.extend(shape.dims());
    Shape::from_dims(&dims)
}

/// A shape without its first dimension.
///
/// # Errors
/// As [`Shape::from_dims`].
pub(crate) fn without_front(shape: &Shape) -> Result<Shape> {
    Shape::from_dims(shape.dims().get(1..).unwrap_or_default())
}

/// Row `at` of a tensor, without the first dimension.
///
/// # Errors
/// As [`Tensor::rows`].
pub(crate) fn row(tensor: &Tensor, at: usize) -> Result<Tensor> {
    let shape = without_front(tensor.shape())?;
    tensor.rows(at, 1)?.into_shape(shape)
}

/// The pieces one behind the other in a tensor of a shape; a missing piece leaves zeros.
///
/// # Errors
/// As [`Tensor::alloc`]; `INVALID_ARGUMENT` if a piece is too large for its place.
pub(crate) fn joined<'a>(
    dtype: DType,
    shape: Shape,
    pieces: impl Iterator<Item = (Option<&'a Tensor>, usize)> + Clone,
) -> Result<Tensor> {
    let complete = pieces.clone().all(|(piece, _)| piece.is_some());
    let mut joined = if complete { Tensor::alloc(dtype, shape)? } else { Tensor::zeros(dtype, shape)? };
    let mut at = 0;
    for (piece, elements) in pieces {
        if let Some(piece) = piece {
            if piece.num_elements() != elements {
                return Err(misfit(piece, elements));
            }
            joined.copy_elements(at, piece, 0..elements)?;
        }
        at += elements;
    }
    Ok(joined)
}

fn misfit(piece: &Tensor, elements: usize) -> Status {
    invalid_argument!("A tensor of shape {} does not fit a place for {elements} elements", piece.shape())
}

/// The length of a list or array as an input gives it.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` if it is absurd.
pub(crate) fn check_length(length: usize) -> Result<usize> {
    if length > MAX_LENGTH {
        return Err(resource_exhausted!("Out of memory: a list of {length} tensors is too large"));
    }
    Ok(length)
}
