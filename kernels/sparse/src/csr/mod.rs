//! Sparse matrices in compressed rows: for each row where its entries start, and for each entry its column and value. A value of
//! this kind is one matrix or a batch of them.

mod cholesky;
mod convert;
mod multiply;
mod ordering;
mod transpose;

use crate::number::Number;
use graphmill_runtime::{Context, Registry, Stored};
use graphmill_tensor::{DType, Result, Shape, Tensor, Variant, VariantObject, invalid_argument};
use std::borrow::Cow;

pub(crate) fn register(registry: &mut Registry) {
    convert::register(registry);
    transpose::register(registry);
    multiply::register(registry);
    ordering::register(registry);
    cholesky::register(registry);
}

/// The types of values that such matrices have.
const VALUES: [DType; 4] = [DType::Complex128, DType::Complex64, DType::Double, DType::Float];

/// A matrix, or a batch of matrices of one shape. What it refers to has been checked: pointers rise, columns are within the shape.
#[derive(Clone, Debug)]
pub(crate) struct Csr {
    /// `[rows, columns]` or `[batch, rows, columns]`.
    shape: Shape,
    /// Where the entries of each matrix start, and their number.
    batch_pointers: Tensor,
    /// For each matrix, where the entries of its rows start, counted from its own first one, and their number.
    row_pointers: Tensor,
    columns: Tensor,
    values: Tensor,
}

/// One matrix of a batch.
#[derive(Clone, Copy)]
struct Part<'a, T> {
    row_pointers: &'a [i32],
    columns: &'a [i32],
    values: &'a [T],
}

impl<'a, T: Copy> Part<'a, T> {
    /// Columns and values of a row.
    fn row(&self, row: usize) -> impl Iterator<Item = (usize, T)> + 'a {
        let at = |i: usize| self.row_pointers.get(i).map_or(0, |&pointer| pointer as usize);
        let range = at(row)..at(row + 1);
        let columns = self.columns.get(range.clone()).unwrap_or_default();
        let values = self.values.get(range).unwrap_or_default();
        columns.iter().map(|&column| column as usize).zip(values.iter().copied())
    }
}

/// The rows of a matrix being made: for each its columns, in rising order, and values.
type Rows<T> = Vec<Vec<(usize, T)>>;

impl Csr {
    /// A matrix from what its serialized form holds.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the tensors do not make one.
    fn new(dense_shape: &Tensor, pointers: [Tensor; 3], values: Tensor) -> Result<Csr> {
        let bad = |what: &str| invalid_argument!("CSRSparseMatrix::Validate: {what}");
        if !dense_shape.shape().is_vector() || !(2..=3).contains(&dense_shape.num_elements()) {
            return Err(bad("dense_shape should be a 2- or 3- vector"));
        }
        let shape = Shape::new(dense_shape.as_slice::<i64>()?)?;
        let [batch_pointers, row_pointers, columns] = pointers;
        if !VALUES.contains(&values.dtype()) {
            return Err(invalid_argument!(
                "CSRSparseMatrix::Validate: dtype = {} not in {{float32, float64, complex64, complex128}}",
                values.dtype()
            ));
        }
        if ![&batch_pointers, &row_pointers, &columns, &values].iter().all(|tensor| tensor.shape().is_vector()) {
            return Err(bad("batch_pointers, row_pointers, col_indices and values should be vectors"));
        }
        if columns.num_elements() != values.num_elements() {
            return Err(invalid_argument!(
                "CSRSparseMatrix::Validate: size(col_indices) = {} != size(values) = {}",
                columns.num_elements(),
                values.num_elements()
            ));
        }
        let matrix = Csr { shape, batch_pointers, row_pointers, columns, values };
        matrix.check_pointers()?;
        Ok(matrix)
    }

    fn check_pointers(&self) -> Result<()> {
        let bad = |what: &str| invalid_argument!("CSRSparseMatrix::Validate: {what}");
        let (batch, rows, columns) = self.sizes();
        let pointers = self.batch_pointers.as_slice::<i32>()?;
        let rises = |pointers: &[i32], end: usize| {
            pointers.first() == Some(&0)
                && pointers.is_sorted()
                && pointers.last().is_some_and(|&last| usize::try_from(last) == Ok(end))
        };
        if pointers.len() != batch + 1 || !rises(pointers, self.values.num_elements()) {
            return Err(bad("batch_pointers do not go with dense_shape and values"));
        }
        let all = self.row_pointers.as_slice::<i32>()?;
        if batch.checked_mul(rows + 1) != Some(all.len()) {
            return Err(bad("row_pointers should have size batch_size * (num_rows + 1)"));
        }
        let starts = all.chunks_exact(rows + 1);
        if !starts.zip(pointers.windows(2)).all(|(starts, ends)| rises(starts, (ends[1] - ends[0]) as usize)) {
            return Err(bad("row_pointers do not go with batch_pointers"));
        }
        let within = |&column: &i32| usize::try_from(column).is_ok_and(|column| column < columns);
        match self.columns.as_slice::<i32>()?.iter().all(within) {
            true => Ok(()),
            false => Err(bad("a column index is out of range")),
        }
    }

    /// A batch of matrices from their rows.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if there are more entries than an int32 counts.
    fn from_rows<T: Number>(shape: Shape, matrices: &[Rows<T>]) -> Result<Csr> {
        let too_many = |_| invalid_argument!("a sparse matrix has more entries than an int32 counts");
        let (mut batch_pointers, mut row_pointers) = (vec![0i32], Vec::new());
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for rows in matrices {
            let start = columns.len();
            row_pointers.push(0);
            for row in rows {
                for &(column, value) in row {
                    columns.push(i32::try_from(column).map_err(too_many)?);
                    values.push(value);
                }
                row_pointers.push(i32::try_from(columns.len() - start).map_err(too_many)?);
            }
            batch_pointers.push(i32::try_from(columns.len()).map_err(too_many)?);
        }
        Ok(Csr {
            shape,
            batch_pointers: Tensor::vector(&batch_pointers)?,
            row_pointers: Tensor::vector(&row_pointers)?,
            columns: Tensor::vector(&columns)?,
            values: Tensor::vector(&values)?,
        })
    }

    /// The matrix in an input.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the input is something else.
    fn of_input<'a>(ctx: &'a Context<'_>, i: usize) -> Result<Cow<'a, Csr>> {
        let input = ctx.input(i)?;
        match input.variants()? {
            [variant] if input.shape().is_scalar() => {
                Csr::of(variant)?.ok_or_else(|| invalid_argument!("Could not retrieve Variant input {i}"))
            }
            _ => Err(invalid_argument!("sparse matrix must be a scalar, got shape {}", input.shape())),
        }
    }

    fn dtype(&self) -> DType {
        self.values.dtype()
    }

    fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// How many matrices there are, and how many rows and columns each has.
    fn sizes(&self) -> (usize, usize, usize) {
        match *self.shape.dims() {
            [rows, columns] => (1, rows, columns),
            [batch, rows, columns] => (batch, rows, columns),
            _ => (0, 0, 0),
        }
    }

    /// The shape with rows and columns of other numbers.
    fn shape_with(&self, rows: usize, columns: usize) -> Result<Shape> {
        self.shape.with_dim(self.rank() - 2, rows)?.with_dim(self.rank() - 1, columns)
    }

    fn dense_shape(&self) -> Result<Tensor> {
        Tensor::vector(&self.shape.dims_i64().collect::<Vec<_>>())
    }

    /// One matrix of the batch.
    fn part<T: Number>(&self, index: usize) -> Result<Part<'_, T>> {
        let (_, rows, _) = self.sizes();
        let missing = || invalid_argument!("there is no matrix {index} in the batch");
        let &[start, end] = self.batch_pointers.as_slice::<i32>()?.get(index..index + 2).ok_or_else(missing)? else {
            return Err(missing());
        };
        let range = start as usize..end as usize;
        let pointers = index * (rows + 1)..(index + 1) * (rows + 1);
        Ok(Part {
            row_pointers: self.row_pointers.as_slice::<i32>()?.get(pointers).ok_or_else(missing)?,
            columns: self.columns.as_slice::<i32>()?.get(range.clone()).ok_or_else(missing)?,
            values: self.values.as_slice::<T>()?.get(range).ok_or_else(missing)?,
        })
    }
}

impl VariantObject for Csr {
    fn type_name(&self) -> &str {
        Csr::TYPE_NAME
    }

    fn serialize(&self) -> Result<Variant> {
        // A truth value, padding, and the number of the type, as the structure lies in memory there.
        let mut metadata = vec![1, 0, 0, 0];
        metadata.extend(self.dtype().number().to_le_bytes());
        let parts = [&self.batch_pointers, &self.row_pointers, &self.columns, &self.values];
        let tensors = std::iter::once(self.dense_shape()?).chain(parts.into_iter().cloned()).collect();
        let type_name = Csr::TYPE_NAME.to_owned();
        Ok(Variant { type_name, metadata: metadata.into(), tensors, ..Variant::default() })
    }
}

impl Stored for Csr {
    const TYPE_NAME: &'static str = "tensorflow::CSRSparseMatrix";

    fn decode(serialized: &Variant) -> Result<Csr> {
        let [dense_shape, batch_pointers, row_pointers, columns, values] = serialized.tensors.as_slice() else {
            return Err(invalid_argument!("A sparse matrix is malformed"));
        };
        Csr::new(dense_shape, [batch_pointers.clone(), row_pointers.clone(), columns.clone()], values.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_come_back_and_bad_ones_do_not() {
        let rows = vec![vec![(1, 2f32)], vec![], vec![(0, 3.0), (2, 4.0)]];
        let matrix = Csr::from_rows(Shape::from_dims(&[3, 3]).unwrap(), &[rows]).unwrap();
        let serialized = matrix.serialize().unwrap();
        let again = Csr::decode(&serialized).unwrap();
        assert_eq!(again.part::<f32>(0).unwrap().row(2).collect::<Vec<_>>(), [(0, 3.0), (2, 4.0)]);
        for (i, bad) in
            [(1, vec![0, 4]), (2, vec![0, 2, 1, 3]), (2, vec![0, 3]), (3, vec![0, 3, 1]), (3, vec![-1, 0, 1])]
        {
            let mut serialized = serialized.clone();
            serialized.tensors[i] = Tensor::vector(&bad).unwrap();
            assert!(Csr::decode(&serialized).is_err(), "tensor {i} as {bad:?}");
        }
    }
}
