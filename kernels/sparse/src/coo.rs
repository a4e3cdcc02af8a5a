//! Sparse tensors as they come in three inputs: indices, values, and the shape that they fill.

use graphmill_tensor::{DType, Mover, Result, Shape, Tensor, invalid_argument};

/// A sparse tensor whose parts fit together.
pub(crate) struct Coo<'a> {
    /// Row by row, `rank` numbers each.
    pub indices: &'a [i64],
    pub values: &'a Tensor,
    pub shape: Vec<i64>,
}

impl<'a> Coo<'a> {
    /// Checks that there is a matrix of indices, a vector of as many values, and a shape of as many sizes as the indices have.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` in TensorFlow's words.
    pub fn new(indices: &'a Tensor, values: &'a Tensor, shape: &Tensor) -> Result<Coo<'a>> {
        if !indices.shape().is_matrix() {
            return Err(invalid_argument!("Input indices should be a matrix but received shape {}", indices.shape()));
        }
        if !values.shape().is_vector() {
            return Err(invalid_argument!("Input values should be a vector but received shape {}", values.shape()));
        }
        if !shape.shape().is_vector() {
            return Err(invalid_argument!("Input shape should be a vector but received shape {}", shape.shape()));
        }
        Coo::with_shape(indices, values, shape.to_i64_vec()?)
    }

    /// As [`Coo::new`], with the shape as numbers.
    ///
    /// # Errors
    /// As [`Coo::new`].
    pub fn with_shape(indices: &'a Tensor, values: &'a Tensor, shape: Vec<i64>) -> Result<Coo<'a>> {
        if !indices.shape().is_matrix() {
            return Err(invalid_argument!("indices must be a matrix, but got: {}", indices.shape()));
        }
        if !values.shape().is_vector() {
            return Err(invalid_argument!("vals must be a vec, but got: {}", values.shape()));
        }
        let (rows, count) = (indices.shape().dim(0), values.num_elements());
        if rows != count {
            return Err(invalid_argument!(
                "indices and values rows (indexing dimension) must match. (indices = {rows}, values = {count})"
            ));
        }
        if indices.shape().dim(1) != shape.len() {
            return Err(invalid_argument!("Shape rank must be SparseTensor rank."));
        }
        // Checks the sizes and their product.
        Shape::new(&shape)?;
        Ok(Coo { indices: indices.as_slice()?, values, shape })
    }

    /// As [`Coo::new`], for the ops that TensorFlow checks in other words; entries beyond the shape are an error too.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` in TensorFlow's words.
    pub fn validated(indices: &'a Tensor, values: &'a Tensor, shape: &Tensor) -> Result<Coo<'a>> {
        for (tensor, rank, what) in [(indices, 2, "indices"), (values, 1, "values"), (shape, 1, "shape")] {
            if tensor.shape().rank() != rank {
                return Err(invalid_argument!(
                    "Sparse {what} must be rank {rank} but is rank {}",
                    tensor.shape().rank()
                ));
            }
        }
        let (rows, rank) = (indices.shape().dim(0), indices.shape().dim(1));
        if values.num_elements() != rows {
            return Err(invalid_argument!(
                "Number of elements in indices ({rows}) and values ({}) do not match",
                values.num_elements()
            ));
        }
        if shape.num_elements() != rank {
            return Err(invalid_argument!(
                "Index rank ({rank}) and shape rank ({}) do not match",
                shape.num_elements()
            ));
        }
        let coo = Coo::with_shape(indices, values, shape.to_i64_vec()?)?;
        for i in 0..coo.len() {
            if !is_inside(coo.row(i), &coo.shape) {
                return Err(invalid_argument!(
                    "Sparse index tuple indices[{i}, :] = [{}] is out of bounds",
                    joined(coo.row(i), ", ")
                ));
            }
        }
        Ok(coo)
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    pub fn len(&self) -> usize {
        self.values.num_elements()
    }

    pub fn row(&self, i: usize) -> &'a [i64] {
        row(self.indices, self.rank(), i)
    }

    /// Checks that the indices are within the shape, in order, and none is there twice.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the first index that is not.
    pub fn check_indices(&self) -> Result<()> {
        check_indices(self.indices, &self.shape)
    }

    /// Checks that the indices are within the shape.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the first index that is not.
    pub fn check_bounds(&self) -> Result<()> {
        for i in 0..self.len() {
            let row = self.row(i);
            if !is_inside(row, &self.shape) {
                return Err(out_of_bounds(i, row, &self.shape));
            }
        }
        Ok(())
    }

    /// The entries in the order of these columns of their indices, then as they come.
    pub fn order(&self, columns: &[usize]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.len()).collect();
        let key = |i: usize| columns.iter().map(move |&c| self.row(i)[c]);
        if !order.is_sorted_by(|&a, &b| key(a).le(key(b))) {
            order.sort_by(|&a, &b| key(a).cmp(key(b)));
        }
        order
    }
}

pub(crate) fn row(indices: &[i64], rank: usize, i: usize) -> &[i64] {
    indices.get(i * rank..(i + 1) * rank).unwrap_or_default()
}

pub(crate) fn is_inside(row: &[i64], shape: &[i64]) -> bool {
    row.iter().zip(shape).all(|(&index, &size)| (0..size).contains(&index))
}

fn out_of_bounds(i: usize, row: &[i64], shape: &[i64]) -> graphmill_tensor::Status {
    invalid_argument!(
        "indices[{i}] = [{}] is out of bounds: need 0 <= index < [{}]",
        joined(row, ","),
        joined(shape, ",")
    )
}

/// Numbers with a separator between them.
pub(crate) fn joined(numbers: &[i64], separator: &str) -> String {
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(separator)
}

/// As [`Coo::check_indices`].
///
/// # Errors
/// `INVALID_ARGUMENT` with the first bad index.
pub(crate) fn check_indices(indices: &[i64], shape: &[i64]) -> Result<()> {
    let rank = shape.len();
    let count = indices.len().checked_div(rank).unwrap_or(0);
    for i in 0..count {
        let here = row(indices, rank, i);
        if !is_inside(here, shape) {
            return Err(out_of_bounds(i, here, shape));
        }
        if i == 0 {
            continue;
        }
        match row(indices, rank, i - 1).cmp(here) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => {
                return Err(invalid_argument!("indices[{i}] = [{}] is repeated", joined(here, ",")));
            }
            std::cmp::Ordering::Greater => {
                return Err(invalid_argument!(
                    "indices[{i}] = [{}] is out of order. Many sparse ops require sorted indices.\n    Use \
                     `tf.sparse.reorder` to create a correctly ordered copy.\n\n",
                    joined(here, ",")
                ));
            }
        }
    }
    Ok(())
}

/// Row-major strides of a shape.
pub(crate) fn strides(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1].saturating_mul(shape[axis + 1]);
    }
    strides
}

/// The rows of a tensor at some places, in this order.
///
/// # Errors
/// If there is no memory.
pub(crate) fn pick(source: &Tensor, rows: &[usize]) -> Result<Tensor> {
    let shape = source.shape().with_dim(0, rows.len())?;
    let row = source.shape().stride(0);
    let mut out = Tensor::alloc(source.dtype(), shape)?;
    out.move_from(&[source], Rows { rows, row })?;
    Ok(out)
}

struct Rows<'a> {
    rows: &'a [usize],
    row: usize,
}

impl Mover for Rows<'_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let Some(source) = sources.first() else { return };
        if self.row == 0 {
            return;
        }
        for (&row, target) in self.rows.iter().zip(target.chunks_exact_mut(self.row)) {
            if let Some(from) = source.get(row * self.row..(row + 1) * self.row) {
                target.clone_from_slice(from);
            }
        }
    }
}

/// A matrix of indices.
///
/// # Errors
/// If the numbers do not make one.
pub(crate) fn index_matrix(indices: &[i64], count: usize, rank: usize) -> Result<Tensor> {
    Tensor::from_slice(Shape::from_dims(&[count, rank])?, indices)
}

/// Tensors of one type, one behind the other.
///
/// # Errors
/// If their types differ.
pub(crate) fn chain(dtype: DType, parts: &[&Tensor]) -> Result<Tensor> {
    let total = parts.iter().map(|part| part.num_elements()).sum();
    let mut out = Tensor::alloc(dtype, Shape::vector(total))?;
    let mut at = 0;
    for part in parts {
        out.copy_elements(at, part, 0..part.num_elements())?;
        at += part.num_elements();
    }
    Ok(out)
}
