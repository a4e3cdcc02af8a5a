//! Gradients summed up in an accumulator: whole tensors, or slices of one.

use graphmill_graph::PartialShape;
use graphmill_tensor::{DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};

/// The types of gradients.
pub(crate) const TYPES: [DType; 3] = [DType::Double, DType::Float, DType::Half];

/// A number of gradients, as their sum.
pub(crate) enum Sum {
    Dense(Tensor),
    Sparse { indices: Vec<i64>, values: Tensor, counts: Vec<i32> },
}

/// A gradient to be added.
pub(crate) enum Gradient {
    Dense(Tensor),
    Sparse { indices: Vec<i64>, values: Tensor, shape: Option<Vec<i64>> },
}

impl Gradient {
    /// Checks it against the declared shape and the sum so far.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` in TensorFlow's words.
    pub fn check(&self, declared: &PartialShape, sum: Option<&Sum>) -> Result<()> {
        match (self, sum) {
            (Gradient::Dense(gradient), sum) => {
                if let Some(Sum::Dense(sum)) = sum
                    && sum.shape() != gradient.shape()
                {
                    return Err(mismatch(sum.shape(), gradient.shape()));
                }
                if declared.is_compatible_with(gradient.shape()) {
                    return Ok(());
                }
                Err(mismatch(declared, gradient.shape()))
            }
            (Gradient::Sparse { indices, values, shape }, sum) => {
                check_sparse(declared, indices, values, shape.as_deref())?;
                let (held, first) = match sum {
                    Some(Sum::Sparse { values, .. }) => (values.shape().dims_i64().collect::<Vec<i64>>(), true),
                    _ => (declared.dims().unwrap_or_default().to_vec(), false),
                };
                let rank = values.shape().rank();
                if first && held.len() != rank {
                    return Err(invalid_argument!("Shape mismatch: expected values rank {}, got {rank}", held.len()));
                }
                if held.len() > rank {
                    return Err(invalid_argument!(
                        "Shape mismatch: expected values rank at least {}, got {rank}",
                        held.len()
                    ));
                }
                for (i, (&want, have)) in held.iter().zip(values.shape().dims_i64()).enumerate().skip(1) {
                    if want != -1 && want != have {
                        return Err(invalid_argument!(
                            "Shape mismatch: expected values dim {i} to be {want}, got {have}"
                        ));
                    }
                }
                Ok(())
            }
        }
    }
}

fn mismatch(expected: impl std::fmt::Display, got: &Shape) -> graphmill_tensor::Status {
    invalid_argument!("Shape mismatch: expected {expected}, got {got}")
}

fn check_sparse(declared: &PartialShape, indices: &[i64], values: &Tensor, shape: Option<&[i64]>) -> Result<()> {
    if values.shape().is_scalar() {
        return Err(invalid_argument!("Values cannot be 0-dimensional."));
    }
    if values.shape().dim(0) != indices.len() {
        return Err(invalid_argument!(
            "Expected {} non-empty input values, got {}",
            indices.len(),
            values.shape().dim(0)
        ));
    }
    let dims = declared.dims().unwrap_or_default();
    if let Some(shape) = shape {
        if dims.len() > shape.len() {
            return Err(invalid_argument!(
                "Shape mismatch: expected shape rank at least {}, got {}",
                dims.len(),
                shape.len()
            ));
        }
        for (i, (&want, &have)) in dims.iter().zip(shape).enumerate() {
            if want != -1 && want != have {
                return Err(invalid_argument!("Shape mismatch: expected shape dim {i} to be {want}, got {have}"));
            }
        }
    }
    if let Some(&rows) = dims.first().filter(|&&rows| rows != -1) {
        for (i, &index) in indices.iter().enumerate() {
            if index >= rows {
                return Err(invalid_argument!(
                    "Shape mismatch: index of slice {i} exceeded limits of shape; index is {index} exceeded {rows}"
                ));
            }
        }
    }
    Ok(())
}

impl Sum {
    /// The sum of one gradient.
    pub fn of(gradient: Gradient) -> Sum {
        match gradient {
            Gradient::Dense(gradient) => Sum::Dense(gradient),
            Gradient::Sparse { indices, values, .. } => {
                let counts = vec![1; indices.len()];
                Sum::Sparse { indices, values, counts }
            }
        }
    }

    /// The sum with another gradient, whose shape has been checked.
    ///
    /// # Errors
    /// If there is no memory for the sum.
    pub fn plus(self, gradient: Gradient) -> Result<Sum> {
        match (self, gradient) {
            (Sum::Dense(sum), Gradient::Dense(gradient)) => {
                let mut sum = sum.into_unique()?;
                add(&mut sum, 0, &gradient, 0, gradient.num_elements())?;
                Ok(Sum::Dense(sum))
            }
            (Sum::Sparse { indices, values, counts }, Gradient::Sparse { indices: more, values: rows, .. }) => {
                merge(&indices, &values, &counts, &more, &rows)
            }
            _ => Err(internal!("a dense and a sparse gradient cannot be added")),
        }
    }

    /// The sum, or with `mean` the sum divided by the number of gradients, as the outputs of the op that takes it.
    ///
    /// # Errors
    /// If there is no memory for the outputs.
    pub fn into_outputs(self, count: i32, mean: bool, declared: &PartialShape) -> Result<Vec<Tensor>> {
        match self {
            Sum::Dense(sum) => {
                let mut sum = sum.into_unique()?;
                if mean {
                    let n = sum.num_elements();
                    divide(&mut sum, 0, n, count)?;
                }
                Ok(vec![sum])
            }
            Sum::Sparse { indices, values, counts } => {
                let mut values = values.into_unique()?;
                if mean {
                    let row = values.shape().stride(0);
                    for (i, &count) in counts.iter().enumerate() {
                        divide(&mut values, i * row, row, count)?;
                    }
                }
                let mut shape: Vec<i64> = values.shape().dims_i64().collect();
                if let Some(rows) = shape.first_mut() {
                    *rows = declared.dims().and_then(|dims| dims.first().copied()).unwrap_or(-1);
                }
                Ok(vec![Tensor::vector(&indices)?, values, Tensor::vector(&shape)?])
            }
        }
    }
}

fn add(sum: &mut Tensor, at: usize, gradient: &Tensor, from: usize, count: usize) -> Result<()> {
    dispatch!(sum.dtype(), T in [f32, f64, graphmill_tensor::f16] => {
        let source = gradient.as_slice::<T>()?;
        let target = sum.as_mut_slice::<T>()?;
        for (t, &s) in target[at..at + count].iter_mut().zip(&source[from..from + count]) {
            *t += s;
        }
        Ok(())
    })
    .unwrap_or_else(|| Err(internal!("{} gradients cannot be accumulated", gradient.dtype())))
}

fn divide(values: &mut Tensor, at: usize, count: usize, by: i32) -> Result<()> {
    let dtype = values.dtype();
    match dtype {
        DType::Float => values.as_mut_slice::<f32>()?[at..at + count].iter_mut().for_each(|v| *v /= by as f32),
        DType::Double => values.as_mut_slice::<f64>()?[at..at + count].iter_mut().for_each(|v| *v /= f64::from(by)),
        _ => {
            let by = graphmill_tensor::f16::from_f32(by as f32);
            values.as_mut_slice::<graphmill_tensor::f16>()?[at..at + count].iter_mut().for_each(|v| *v /= by);
        }
    }
    Ok(())
}

/// Merges two lists of slices, both with increasing indices.
fn merge(indices: &[i64], values: &Tensor, counts: &[i32], more: &[i64], rows: &Tensor) -> Result<Sum> {
    let mut entries: Vec<(Option<usize>, Option<usize>)> = Vec::with_capacity(indices.len() + more.len());
    let (mut i, mut j) = (0, 0);
    while i < indices.len() || j < more.len() {
        let order = match (indices.get(i), more.get(j)) {
            (Some(a), Some(b)) => a.cmp(b),
            (Some(_), None) => std::cmp::Ordering::Less,
            _ => std::cmp::Ordering::Greater,
        };
        entries.push((order.is_le().then_some(i), order.is_ge().then_some(j)));
        i += usize::from(order.is_le());
        j += usize::from(order.is_ge());
    }
    let row = rows.shape().stride(0);
    let mut sum = Tensor::alloc(rows.dtype(), rows.shape().with_dim(0, entries.len())?)?;
    let (mut sum_indices, mut sum_counts) = (Vec::with_capacity(entries.len()), Vec::with_capacity(entries.len()));
    for (at, &(old, new)) in entries.iter().enumerate() {
        match (old, new) {
            (Some(i), new) => {
                sum.copy_elements(at * row, values, i * row..(i + 1) * row)?;
                if let Some(j) = new {
                    add(&mut sum, at * row, rows, j * row, row)?;
                }
                sum_indices.push(indices[i]);
                sum_counts.push(counts[i] + i32::from(new.is_some()));
            }
            (None, Some(j)) => {
                sum.copy_elements(at * row, rows, j * row..(j + 1) * row)?;
                sum_indices.push(more[j]);
                sum_counts.push(1);
            }
            (None, None) => {}
        }
    }
    Ok(Sum::Sparse { indices: sum_indices, values: sum, counts: sum_counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(indices: &[i64], values: &[f32]) -> Gradient {
        let values = Tensor::from_slice(Shape::new(&[indices.len() as i64, 1]).unwrap(), values).unwrap();
        Gradient::Sparse { indices: indices.to_vec(), values, shape: None }
    }

    #[test]
    fn slices_are_averaged_over_the_gradients_that_have_them() {
        let sum = Sum::of(slices(&[1, 4], &[2.0, 3.0])).plus(slices(&[0, 4, 5], &[1.0, 5.0, 7.0])).unwrap();
        let outputs = sum.into_outputs(2, true, &PartialShape::new(&[9, 1]).unwrap()).unwrap();
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[0, 1, 4, 5]);
        assert_eq!(outputs[1].as_slice::<f32>().unwrap(), &[1.0, 2.0, 4.0, 7.0]);
        assert_eq!(outputs[2].as_slice::<i64>().unwrap(), &[9, 1]);
    }
}
