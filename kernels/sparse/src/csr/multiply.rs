//! Products of sparse matrices with dense ones and with sparse ones.

use super::transpose::View;
use super::{Csr, Rows, VALUES};
use crate::number::Number;
use graphmill_runtime::{Construction, Context, Kernel, Registry, Stored};
use graphmill_tensor::{Complex32, Complex64, DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SparseMatrixMatMul").types("T", &VALUES).kernel(WithDense::new);
    registry.op("SparseMatrixSparseMatMul").types("type", &VALUES).kernel(WithSparse::new);
}

/// A sparse matrix times a dense one.
struct WithDense {
    a: View,
    b: View,
    output: View,
}

impl WithDense {
    fn new(c: &Construction<'_>) -> Result<WithDense> {
        let output =
            View { transposed: c.attrs().bool("transpose_output")?, conjugated: c.attrs().bool("conjugate_output")? };
        Ok(WithDense { a: View::new(c, "a")?, b: View::new(c, "b")?, output })
    }

    fn product<T: Number>(&self, ctx: &Context<'_>, a: &Csr, b: &Tensor, output: &mut [T], inner: usize) -> Result<()> {
        let (batch, rows, columns) = a.sizes();
        let (out_rows, _) = self.a.sizes(rows, columns);
        let out_columns = output.len().checked_div(batch * out_rows).unwrap_or(0);
        if output.is_empty() {
            return Ok(());
        }
        let all = b.as_slice::<T>()?;
        for (index, output) in output.chunks_exact_mut(out_rows * out_columns).enumerate() {
            let left = self.a.rows(a.part::<T>(index)?, (rows, columns))?;
            let size = inner * out_columns;
            let right = all.get(index * size..(index + 1) * size).unwrap_or_default();
            let right = laid_out(right, self.b, inner, out_columns);
            let entries: usize = left.iter().map(Vec::len).sum();
            let cost = 2.0 + (entries / out_rows * out_columns) as f64;
            let place = |range: std::ops::Range<usize>, target: &mut [T]| {
                for (row, target) in left[range].iter().zip(target.chunks_exact_mut(out_columns)) {
                    target.fill(T::default());
                    for &(column, value) in row {
                        let source = &right[column * out_columns..(column + 1) * out_columns];
                        target.iter_mut().zip(source).for_each(|(sum, &b)| *sum = sum.plus(value.times(b)));
                    }
                }
            };
            if self.output.transposed {
                let mut product = vec![T::default(); output.len()];
                ctx.parallel_chunks(&mut product, out_columns, cost, place);
                output.copy_from_slice(&laid_out(&product, self.output, out_columns, out_rows));
            } else {
                ctx.parallel_chunks(output, out_columns, cost, place);
                if self.output.conjugated {
                    output.iter_mut().for_each(|value| *value = value.conjugate());
                }
            }
        }
        Ok(())
    }
}

/// The elements of a matrix as they are seen, which is with `rows` and `columns`.
fn laid_out<T: Number>(elements: &[T], view: View, rows: usize, columns: usize) -> Vec<T> {
    let value = |value: T| if view.conjugated { value.conjugate() } else { value };
    if !view.transposed {
        return elements.iter().map(|&v| value(v)).collect();
    }
    let mut result = Vec::with_capacity(elements.len());
    for row in 0..rows {
        result.extend((0..columns).map(|column| value(elements[column * rows + row])));
    }
    result
}

impl Kernel for WithDense {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (Csr::of_input(ctx, 0)?, ctx.input(1)?);
        if a.dtype() != b.dtype() {
            return Err(invalid_argument!(
                "Input types don't match.  a.dtype == {} vs. b.dtype == {}",
                a.dtype(),
                b.dtype()
            ));
        }
        let rank = a.rank();
        if b.shape().rank() != rank {
            return Err(invalid_argument!("Ranks of a and b must match, saw: {rank} vs. {}.", b.shape().rank()));
        }
        let (batch, rows, columns) = a.sizes();
        if rank == 3 && b.shape().dim(0) != batch {
            return Err(invalid_argument!("Batch sizes of a and b must match, saw: {batch} vs. {}.", b.shape().dim(0)));
        }
        let (out_rows, inner) = self.a.sizes(rows, columns);
        let (b_rows, out_columns) = self.b.sizes(b.shape().dim(rank - 2), b.shape().dim(rank - 1));
        if inner != b_rows {
            return Err(invalid_argument!(
                "Inner product dimensions of A and B do not agree.  Shapes are: {} vs. {}",
                a.shape,
                b.shape()
            ));
        }
        let (last_rows, last_columns) = self.output.sizes(out_rows, out_columns);
        let mut output = Tensor::alloc(a.dtype(), a.shape_with(last_rows, last_columns)?)?;
        let done = dispatch!(a.dtype(), T in [f32, f64, Complex32, Complex64] => {
            self.product::<T>(ctx, &a, b, output.as_mut_slice()?, inner)
        });
        done.unwrap_or_else(|| Err(internal!("a matrix cannot be of type {}", a.dtype())))?;
        ctx.set_output(0, output)
    }
}

/// A sparse matrix times a sparse one. Entries that come out as zero stay entries.
struct WithSparse {
    dtype: DType,
    a: View,
    b: View,
}

impl WithSparse {
    fn new(c: &Construction<'_>) -> Result<WithSparse> {
        Ok(WithSparse { dtype: c.dtype("type")?, a: View::new(c, "a")?, b: View::new(c, "b")? })
    }

    fn product<T: Number>(&self, a: &Csr, b: &Csr, shape: Shape) -> Result<Csr> {
        let (batch, a_rows, a_columns) = a.sizes();
        let (_, b_rows, b_columns) = b.sizes();
        let mut products = Vec::with_capacity(batch);
        for index in 0..batch {
            let left = self.a.rows(a.part::<T>(index)?, (a_rows, a_columns))?;
            let right = self.b.rows(b.part::<T>(index)?, (b_rows, b_columns))?;
            products.push(rows_times(&left, &right));
        }
        Csr::from_rows(shape, &products)
    }
}

/// The product, row by row: the terms of a row are sorted by column, which needs no room for all columns, and added up.
fn rows_times<T: Number>(left: &Rows<T>, right: &Rows<T>) -> Rows<T> {
    let row_product = |row: &Vec<(usize, T)>| {
        let mut terms: Vec<(usize, T)> = Vec::new();
        for &(inner, value) in row {
            terms.extend(right[inner].iter().map(|&(column, other)| (column, value.times(other))));
        }
        terms.sort_by_key(|&(column, _)| column);
        terms.dedup_by(|term, sum| {
            let same = term.0 == sum.0;
            if same {
                sum.1 = sum.1.plus(term.1);
            }
            same
        });
        terms
    };
    left.iter().map(row_product).collect()
}

impl Kernel for WithSparse {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (Csr::of_input(ctx, 0)?, Csr::of_input(ctx, 1)?);
        for (name, matrix) in [("a", &a), ("b", &b)] {
            if matrix.dtype() != self.dtype {
                return Err(invalid_argument!(
                    "dtype of {name} is not equal to 'type': {} vs. {}",
                    matrix.dtype(),
                    self.dtype
                ));
            }
        }
        let ((batch, a_rows, a_columns), (b_batch, b_rows, b_columns)) = (a.sizes(), b.sizes());
        if a.rank() != b.rank() || batch != b_batch {
            return Err(invalid_argument!(
                "Batch sizes of A and B do not agree.  Batch sizes are: {batch} vs. {b_batch}"
            ));
        }
        let (rows, inner) = self.a.sizes(a_rows, a_columns);
        let (other, columns) = self.b.sizes(b_rows, b_columns);
        let shapes = (a.shape_with(rows, inner)?, b.shape_with(other, columns)?);
        if inner != other {
            return Err(invalid_argument!(
                "Inner product dimensions of A and B do not agree.  Shapes are: {} vs. {}",
                shapes.0,
                shapes.1
            ));
        }
        let shape = a.shape_with(rows, columns)?;
        let product = dispatch!(self.dtype, T in [f32, f64, Complex32, Complex64] => {
            self.product::<T>(&a, &b, shape)
        });
        let product = product.unwrap_or_else(|| Err(internal!("a matrix cannot be of type {}", self.dtype)))?;
        ctx.set_output(0, product.into_tensor()?)
    }
}
