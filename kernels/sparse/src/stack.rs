//! Sparse tensors stacked into one of higher rank, as `DeserializeSparse` and `TakeManySparseFromTensorsMap` make it.

use crate::coo::{chain, index_matrix};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

/// A sparse tensor of its own.
#[derive(Clone)]
pub(crate) struct Part {
    pub indices: Tensor,
    pub values: Tensor,
    pub shape: Vec<i64>,
}

impl Part {
    /// Checks that the tensors are a sparse tensor of this type. `name` and `names` are how errors call it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` in TensorFlow's words.
    pub fn check(&self, dtype: DType, i: usize, source: &str) -> Result<()> {
        let (indices, values) = (&self.indices, &self.values);
        let (first, second) = match source {
            "sparse_handles" => (format!("{source}[{i}]"), format!("{source}[{i}]")),
            _ => (format!("{source}[{i}, 0]"), format!("{source}[{i}, 1]")),
        };
        if indices.dtype() != DType::Int64 {
            return Err(invalid_argument!(
                "Expected {first} to be a matrix of DT_INT64 but received dtype {}",
                indices.dtype()
            ));
        }
        if !indices.shape().is_matrix() {
            return Err(invalid_argument!(
                "Expected {first} to represent an index matrix but received shape {}",
                indices.shape()
            ));
        }
        if !values.shape().is_vector() {
            return Err(invalid_argument!(
                "Expected {second} to represent a values vector but received shape {}",
                values.shape()
            ));
        }
        if values.dtype() != dtype {
            return Err(invalid_argument!(
                "Requested SparseTensor of type {dtype} but SparseTensor[{i}].values.dtype() == {}",
                values.dtype()
            ));
        }
        if indices.shape().dim(0) != values.num_elements() {
            return Err(invalid_argument!(
                "Expected row counts of SparseTensor[{i}].indices and SparseTensor[{i}].values to match but they do not: {} vs. \
                 {}",
                indices.shape().dim(0),
                values.num_elements()
            ));
        }
        if indices.shape().dim(1) != self.shape.len() {
            return Err(invalid_argument!(
                "Expected column counts of SparseTensor[{i}].indices to match size of SparseTensor[{i}].shape but they do not: \
                 {} vs. {}",
                indices.shape().dim(1),
                self.shape.len()
            ));
        }
        Ok(())
    }
}

/// Indices, values and shape of the parts, which have been checked, stacked in the shape `outer`.
///
/// # Errors
/// `INVALID_ARGUMENT` if their ranks differ.
pub(crate) fn stack(parts: &[Part], outer: &[usize], dtype: DType, ranks_grow: usize) -> Result<[Tensor; 3]> {
    let mut shape: Vec<i64> = parts.first().map(|part| part.shape.clone()).unwrap_or_default();
    for (i, part) in parts.iter().enumerate() {
        if part.shape.len() != shape.len() {
            return Err(invalid_argument!(
                "Inconsistent {} across SparseTensors: rank prior to SparseTensor[{i}] was: {} but rank of SparseTensor[{i}] is: {}",
                if ranks_grow == 0 { "shape" } else { "rank" },
                shape.len() + ranks_grow,
                part.shape.len() + ranks_grow
            ));
        }
        shape.iter_mut().zip(&part.shape).for_each(|(largest, &size)| *largest = (*largest).max(size));
    }
    let rank = outer.len() + shape.len();
    let mut indices = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let mut place = vec![0i64; outer.len()];
        let mut rest = i;
        for (at, &size) in place.iter_mut().zip(outer).rev() {
            *at = (rest % size.max(1)) as i64;
            rest /= size.max(1);
        }
        let inner = part.shape.len();
        let rows = part.indices.as_slice::<i64>()?;
        for row in 0..part.values.num_elements() {
            indices.extend_from_slice(&place);
            indices.extend_from_slice(rows.get(row * inner..(row + 1) * inner).unwrap_or_default());
        }
    }
    let values: Vec<&Tensor> = parts.iter().map(|part| &part.values).collect();
    let values = chain(dtype, &values)?;
    let full: Vec<i64> = outer.iter().map(|&size| size as i64).chain(shape).collect();
    Shape::new(&full)?;
    Ok([index_matrix(&indices, values.num_elements(), rank)?, values, Tensor::vector(&full)?])
}

/// The rows of a sparse tensor as sparse tensors of one rank less; a row without entries is an empty one.
///
/// # Errors
/// `INVALID_ARGUMENT` if an entry's row is not there.
pub(crate) fn unstack(coo: &crate::coo::Coo<'_>) -> Result<Vec<Part>> {
    let Some((&rows, inner)) = coo.shape.split_first() else { return Ok(Vec::new()) };
    // Checks that there is memory for as many handles.
    let count = Tensor::alloc(DType::Int64, Shape::new(&[rows])?)?.num_elements();
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); count];
    for i in 0..coo.len() {
        let row = coo.row(i)[0];
        let slot = usize::try_from(row).ok().and_then(|row| members.get_mut(row));
        slot.ok_or_else(|| {
            invalid_argument!("Received unexpected column 0 value in input SparseTensor: {row} < 0 or >= N (= {rows})")
        })?
        .push(i);
    }
    let part = |members: &Vec<usize>| {
        let indices: Vec<i64> = members.iter().flat_map(|&i| coo.row(i)[1..].iter().copied()).collect();
        let indices = index_matrix(&indices, members.len(), inner.len())?;
        Ok(Part { indices, values: crate::coo::pick(coo.values, members)?, shape: inner.to_vec() })
    };
    members.iter().map(part).collect()
}
