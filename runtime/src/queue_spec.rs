//! What a queue holds: the components of its elements, and how elements make up batches.

use crate::Tuple;
use graphmill_graph::PartialShape;
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

/// What is fixed about a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// The kind, as errors name it: `FIFOQueue`.
    pub kind: &'static str,
    /// The name, as errors have it.
    pub name: String,
    /// The largest number of elements; `i32::MAX` means no limit.
    pub capacity: usize,
    /// The types of the components.
    pub types: Vec<DType>,
    /// The shapes of the components, none if they are not fixed. Batches are padded with zeros where a size is unknown.
    pub shapes: Vec<PartialShape>,
    /// Elements that stay behind as long as the queue is open.
    pub min_after_dequeue: usize,
    /// Whether a batch leaves all at once (a queue sorted by priority), rather than element by element as they come.
    pub whole_batches: bool,
    /// The seeds of a random order, as the node has them.
    pub seeds: (i64, i64),
}

impl QueueSpec {
    /// Whether a tuple is an element, or a batch of so many, of this queue.
    pub(crate) fn check(&self, tuple: &Tuple, rows: Option<usize>) -> Result<()> {
        let QueueSpec { types, shapes, .. } = self;
        if tuple.len() != types.len() {
            return Err(invalid_argument!(
                "Wrong number of components in tuple. Expected {}, got {}",
                types.len(),
                tuple.len()
            ));
        }
        for (i, (tensor, &dtype)) in tuple.iter().zip(types).enumerate() {
            if tensor.dtype() != dtype {
                return Err(invalid_argument!(
                    "Type mismatch in tuple component {i}. Expected {dtype}, got {}",
                    tensor.dtype()
                ));
            }
        }
        for (i, (tensor, shape)) in tuple.iter().zip(shapes).enumerate() {
            let expected = match (rows, shape.dims()) {
                (Some(rows), Some(dims)) => {
                    let dims: Vec<i64> = std::iter::once(rows as i64).chain(dims.iter().copied()).collect();
                    PartialShape::new(&dims)?
                }
                _ => shape.clone(),
            };
            if !expected.is_compatible_with(tensor.shape()) {
                return Err(invalid_argument!(
                    "Shape mismatch in tuple component {i}. Expected {expected}, got {}",
                    tensor.shape()
                ));
            }
        }
        Ok(())
    }

    /// The number of elements in a batch, if it is one of this queue.
    pub(crate) fn check_batch(&self, batch: &Tuple) -> Result<usize> {
        let Some(first) = batch.first() else {
            return self.check(batch, None).map(|()| 0);
        };
        if let Some((i, scalar)) = batch.iter().enumerate().find(|(_, tensor)| tensor.shape().is_scalar()) {
            return Err(invalid_argument!(
                "All input tensors must have the same size in the 0th dimension. Component {i} has shape {}",
                scalar.shape()
            ));
        }
        let rows = first.shape().dim(0);
        self.check(batch, Some(rows))?;
        for (i, tensor) in batch.iter().enumerate() {
            if tensor.shape().dim(0) != rows {
                return Err(invalid_argument!(
                    "All input tensors must have the same size in the 0th dimension. Component {i} has {}, and should have \
                     {rows}",
                    tensor.shape().dim(0)
                ));
            }
        }
        Ok(rows)
    }

    /// The elements as one tensor for each component.
    pub(crate) fn batch(&self, elements: &[Tuple]) -> Result<Tuple> {
        let mut batch = Vec::with_capacity(self.types.len());
        for (i, (&dtype, shape)) in self.types.iter().zip(&self.shapes).enumerate() {
            let mut sizes = vec![elements.len()];
            for (axis, &dim) in shape.dims().unwrap_or_default().iter().enumerate() {
                // Without elements unknown sizes are 0, and so is the largest of none.
                let largest = || elements.iter().map(|e| e[i].shape().dim(axis)).max().unwrap_or(0);
                sizes.push(usize::try_from(dim).unwrap_or_else(|_| largest()));
            }
            let shape = Shape::from_dims(&sizes)?;
            let padded = elements.iter().any(|e| e[i].shape().dims() != &sizes[1..]);
            let mut out = if padded { Tensor::zeros(dtype, shape)? } else { Tensor::alloc(dtype, shape)? };
            let row = out.shape().stride(0);
            for (at, element) in elements.iter().enumerate() {
                if element[i].shape().dims() == &sizes[1..] {
                    out.copy_elements(at * row, &element[i], 0..row)?;
                } else {
                    copy_into_larger(&mut out, at * row, &element[i])?;
                }
            }
            batch.push(out);
        }
        Ok(batch)
    }
}

/// One element of a component of a batch.
pub(crate) fn row(batch: &Tensor, at: usize) -> Result<Tensor> {
    let row = batch.rows(at, 1)?;
    let shape = Shape::from_dims(&batch.shape().dims()[1..])?;
    // A copy, so that an element does not keep the whole batch.
    row.into_shape(shape)?.deep_copy()
}

/// Copies a tensor into the corner of a row of a larger one; the row starts at element `start`.
fn copy_into_larger(out: &mut Tensor, start: usize, element: &Tensor) -> Result<()> {
    let outer = out.shape().strides();
    let dims = element.shape().dims();
    if element.num_elements() == 0 {
        return Ok(());
    }
    let run = dims.last().copied().unwrap_or(1);
    let mut index = vec![0usize; dims.len().saturating_sub(1)];
    for at in (0..element.num_elements()).step_by(run) {
        let offset: usize = index.iter().enumerate().map(|(axis, &i)| i * outer[axis + 1]).sum();
        out.copy_elements(start + offset, element, at..at + run)?;
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Ok(())
}

/// Types as TensorFlow lists them: `float, int32`.
pub fn dtype_list(types: &[DType]) -> String {
    let names: Vec<&str> = types.iter().map(|dtype| dtype.name()).collect();
    names.join(", ")
}

/// Shapes as TensorFlow lists them: `[[2,3], []]`.
pub fn shape_list(shapes: &[PartialShape]) -> String {
    let texts: Vec<String> = shapes.iter().map(ToString::to_string).collect();
    format!("[{}]", texts.join(", "))
}
