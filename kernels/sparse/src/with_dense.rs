//! A sparse and a dense tensor: `SparseTensorDenseAdd`, `SparseTensorDenseMatMul`, `SparseDenseCwiseAdd`, `...Mul`, `...Div`, and
//! `SparseMatMul`, whose operands are dense with many zeros.

use crate::coo::{Coo, is_inside, joined, strides};
use crate::number::Number;
use crate::types::{INDICES, NUMBERS, REALS};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, bf16, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SparseTensorDenseAdd").types("T", &NUMBERS).types("Tindices", &INDICES).kernel(|_| Ok(DenseAdd));
    use DType::{BFloat16, Complex64, Complex128, Double, Float, Half, Int32};
    let products = [BFloat16, Complex128, Complex64, Double, Float, Half, Int32];
    registry.op("SparseTensorDenseMatMul").types("T", &products).types("Tindices", &INDICES).kernel(DenseMatMul::new);
    registry.op("SparseDenseCwiseAdd").types("T", &REALS).kernel(|_| Ok(Cwise(Operation::Add)));
    registry.op("SparseDenseCwiseMul").types("T", &REALS).kernel(|_| Ok(Cwise(Operation::Mul)));
    registry.op("SparseDenseCwiseDiv").types("T", &REALS).kernel(|_| Ok(Cwise(Operation::Div)));
    registry
        .op("SparseMatMul")
        .types("Ta", &[BFloat16, Float])
        .types("Tb", &[BFloat16, Float])
        .kernel(SparseMatMul::new);
}

struct DenseAdd;

impl Kernel for DenseAdd {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let dense = ctx.take_input(3)?;
        let (indices, values, shape) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if !indices.shape().is_matrix() {
            return Err(invalid_argument!(
                "Input a_indices should be a matrix but received shape: {}",
                indices.shape()
            ));
        }
        if !values.shape().is_vector() || !shape.shape().is_vector() {
            return Err(invalid_argument!(
                "Inputs a_values and a_shape should be vectors but received shapes: {} and {}",
                values.shape(),
                shape.shape()
            ));
        }
        let dims = shape.to_i64_vec()?;
        if dims.len() != dense.shape().rank() {
            return Err(invalid_argument!(
                "Two operands have different ranks; received: {} and {}",
                dims.len(),
                dense.shape().rank()
            ));
        }
        for (i, (&a, b)) in dims.iter().zip(dense.shape().dims_i64()).enumerate() {
            if a != b {
                return Err(invalid_argument!(
                    "Dimension {i} does not equal (no broadcasting is supported): sparse side {a} vs dense side {b}"
                ));
            }
        }
        let rank = indices.shape().dim(1);
        if !(1..=5).contains(&rank) {
            return Err(invalid_argument!(
                "Only tensors with ranks between 1 and 5 are currently supported.  Tensor rank: {rank}"
            ));
        }
        if rank != dims.len() || indices.shape().dim(0) != values.num_elements() {
            return Err(invalid_argument!(
                "indices of shape {} do not fit values of shape {} and {} dimensions",
                indices.shape(),
                values.shape(),
                dims.len()
            ));
        }
        let rows = indices.to_i64_vec()?;
        let strides = strides(&dims);
        let mut places = Vec::with_capacity(values.num_elements());
        for (i, row) in rows.chunks_exact(rank).enumerate() {
            if let Some(d) = (0..rank).find(|&d| !(0..dims[d]).contains(&row[d])) {
                return Err(invalid_argument!(
                    "Sparse tensor has an invalid index on dimension {d}: a_indices({i},{d}) = {}, dense tensor shape: {}",
                    row[d],
                    joined(&dims, " ")
                ));
            }
            places.push(row.iter().zip(&strides).map(|(i, s)| i * s).sum::<i64>() as usize);
        }
        let mut out = dense.into_unique()?;
        let added = dispatch!(out.dtype(), T in numbers => {
            let values = values.as_slice::<T>()?;
            let target = out.as_mut_slice::<T>()?;
            for (&place, &value) in places.iter().zip(values) {
                target[place] = target[place].plus(value);
            }
            Ok(())
        });
        added.unwrap_or_else(|| Err(internal!("no such type")))?;
        ctx.set_output(0, out)
    }
}

struct DenseMatMul {
    adjoint_a: bool,
    adjoint_b: bool,
}

impl DenseMatMul {
    fn new(c: &Construction<'_>) -> Result<DenseMatMul> {
        Ok(DenseMatMul { adjoint_a: c.attrs().bool("adjoint_a")?, adjoint_b: c.attrs().bool("adjoint_b")? })
    }
}

impl Kernel for DenseMatMul {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (indices, values, shape, b) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?);
        if !b.shape().is_matrix() {
            return Err(invalid_argument!("Tensor 'b' is not a matrix"));
        }
        if !shape.shape().is_vector() {
            return Err(invalid_argument!("Tensor 'a_shape' is not a vector"));
        }
        let &[a_rows, a_columns] = shape.as_slice::<i64>()? else {
            return Err(invalid_argument!("Tensor 'a_shape' must have 2 elements"));
        };
        if !values.shape().is_vector() {
            return Err(invalid_argument!("Tensor 'a_values' is not a vector"));
        }
        if !indices.shape().is_matrix() {
            return Err(invalid_argument!("Tensor 'a_indices' is not a matrix"));
        }
        if indices.shape().dim(0) != values.num_elements() {
            return Err(invalid_argument!("Number of rows of a_indices does not match number of entries in a_values"));
        }
        if indices.shape().dim(1) != 2 {
            return Err(invalid_argument!(
                "Number of columns of a_indices does not match number of entries in a_shape"
            ));
        }
        let (b_rows, b_columns) = (b.shape().dim(0), b.shape().dim(1));
        let (outer_left, inner_left) = if self.adjoint_a { (a_columns, a_rows) } else { (a_rows, a_columns) };
        let (outer_right, inner_right) = if self.adjoint_b { (b_rows, b_columns) } else { (b_columns, b_rows) };
        if inner_left != inner_right as i64 {
            return Err(invalid_argument!(
                "Cannot multiply A and B because inner dimension does not match: {inner_left} vs. {inner_right}.  Did you \
                 forget a transpose?  Dimensions of A: [{a_rows}, {a_columns}).  Dimensions of B: {}",
                b.shape()
            ));
        }
        let mut out = Tensor::zeros(b.dtype(), Shape::new(&[outer_left, outer_right as i64])?)?;
        let rows = indices.to_i64_vec()?;
        let done = dispatch!(b.dtype(), T in [f32, f64, i32, graphmill_tensor::f16, bf16, graphmill_tensor::Complex32, graphmill_tensor::Complex64] => {
            let product = Product { rows: &rows, left: outer_left, inner: inner_left, width: outer_right, op: self };
            product.run::<T>(values.as_slice()?, b.as_slice()?, b_columns, out.as_mut_slice()?)
        });
        done.unwrap_or_else(|| Err(internal!("no such type")))?;
        ctx.set_output(0, out)
    }
}

struct Product<'a> {
    rows: &'a [i64],
    left: i64,
    inner: i64,
    width: usize,
    op: &'a DenseMatMul,
}

impl Product<'_> {
    fn run<T: Number>(&self, values: &[T], b: &[T], b_columns: usize, out: &mut [T]) -> Result<()> {
        let mut sums = vec![T::no_sum(); out.len()];
        for (i, (row, &value)) in self.rows.chunks_exact(2).zip(values).enumerate() {
            let (m, k) = if self.op.adjoint_a { (row[1], row[0]) } else { (row[0], row[1]) };
            if !(0..self.inner).contains(&k) {
                return Err(invalid_argument!(
                    "k ({k}) from index[{i},{}] out of bounds (>={})",
                    usize::from(!self.op.adjoint_a),
                    self.inner
                ));
            }
            if !(0..self.left).contains(&m) {
                return Err(invalid_argument!(
                    "m ({m}) from index[{i},{}] out of bounds (>={})",
                    usize::from(self.op.adjoint_a),
                    self.left
                ));
            }
            let value = if self.op.adjoint_a { value.conjugate() } else { value };
            let (m, k) = (m as usize, k as usize);
            let target = &mut sums[m * self.width..(m + 1) * self.width];
            if self.op.adjoint_b {
                for (n, sum) in target.iter_mut().enumerate() {
                    *sum = value.times(b[n * b_columns + k].conjugate()).add_to(*sum);
                }
            } else {
                for (sum, &factor) in target.iter_mut().zip(&b[k * b_columns..(k + 1) * b_columns]) {
                    *sum = value.times(factor).add_to(*sum);
                }
            }
        }
        out.iter_mut().zip(sums).for_each(|(to, sum)| *to = T::from_sum(sum));
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Add,
    Mul,
    Div,
}

/// An operation at the entries of the sparse tensor, to which the dense one broadcasts.
struct Cwise(Operation);

impl Kernel for Cwise {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (indices, values, shape, dense) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?);
        if !indices.shape().is_matrix() {
            return Err(invalid_argument!(
                "Input sp_indices should be a matrix but received shape: {}",
                indices.shape()
            ));
        }
        if !values.shape().is_vector() || !shape.shape().is_vector() {
            return Err(invalid_argument!(
                "Inputs sp_values and sp_shape should be vectors but received shapes: {} and {}",
                values.shape(),
                shape.shape()
            ));
        }
        if values.num_elements() != indices.shape().dim(0) {
            return Err(invalid_argument!(
                "The first dimension of values and indices should match. ({} vs. {})",
                values.num_elements(),
                indices.shape().dim(0)
            ));
        }
        if shape.num_elements() != indices.shape().dim(1) {
            return Err(invalid_argument!(
                "Number of dimensions must match second dimension of indices. Got {} dimensions, indices shape: {}",
                shape.num_elements(),
                indices.shape()
            ));
        }
        if shape.num_elements() == 0 {
            return Err(invalid_argument!("The shape argument requires at least one element."));
        }
        let coo = Coo::with_shape(indices, values, shape.to_i64_vec()?)?;
        let dense_dims: Vec<i64> = dense.shape().dims_i64().collect();
        let skipped = coo.rank().checked_sub(dense_dims.len());
        let fits = skipped.is_some_and(|skipped| {
            coo.shape[skipped..].iter().zip(&dense_dims).all(|(&a, &b)| a >= b && (a == b || b == 1))
        });
        let Some(skipped) = skipped.filter(|_| fits) else {
            return Err(invalid_argument!(
                "SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: [{}] vs. [{}]",
                joined(&coo.shape, ","),
                joined(&dense_dims, ",")
            ));
        };
        if coo.rank() > 5 {
            return Err(invalid_argument!(
                "Only tensors with ranks between 1 and 5 are currently supported.  Tensor rank: {}",
                coo.rank()
            ));
        }
        let strides = strides(&dense_dims);
        let mut places = Vec::with_capacity(coo.len());
        for i in 0..coo.len() {
            let row = coo.row(i);
            if !is_inside(row, &coo.shape) {
                return Err(invalid_argument!(
                    "Provided indices are out-of-bounds w.r.t. dense side with broadcasted shape"
                ));
            }
            let place: i64 = row[skipped..]
                .iter()
                .zip(&dense_dims)
                .zip(&strides)
                .map(|((&index, &dim), &stride)| if dim == 1 { 0 } else { index * stride })
                .sum();
            places.push(place as usize);
        }
        let out = dispatch!(values.dtype(), T in reals => {
            let (sparse, dense) = (values.as_slice::<T>()?, dense.as_slice::<T>()?);
            let mut out = Vec::with_capacity(sparse.len());
            for (&value, &place) in sparse.iter().zip(&places) {
                let other = dense[place];
                out.push(match self.0 {
                    Operation::Add => value.plus(other),
                    Operation::Mul => value.times(other),
                    Operation::Div if other == T::default() => {
                        return Err(invalid_argument!(
                            "SparseDenseCwiseDiv cannot divide by zero,but input dense tensor contains zero "
                        ));
                    }
                    Operation::Div => value.over(other),
                });
            }
            Tensor::vector(&out)
        });
        ctx.set_output(0, out.unwrap_or_else(|| Err(internal!("no such type")))?)
    }
}

/// The product of dense matrices with many zeros.
struct SparseMatMul {
    transpose_a: bool,
    transpose_b: bool,
}

impl SparseMatMul {
    fn new(c: &Construction<'_>) -> Result<SparseMatMul> {
        Ok(SparseMatMul { transpose_a: c.attrs().bool("transpose_a")?, transpose_b: c.attrs().bool("transpose_b")? })
    }
}

fn floats(tensor: &Tensor) -> Result<Vec<f32>> {
    match tensor.dtype() {
        DType::Float => Ok(tensor.as_slice::<f32>()?.to_vec()),
        _ => Ok(tensor.as_slice::<bf16>()?.iter().map(|v| v.to_f32()).collect()),
    }
}

impl Kernel for SparseMatMul {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        if !a.shape().is_matrix() {
            return Err(invalid_argument!("a is not a matrix"));
        }
        if !b.shape().is_matrix() {
            return Err(invalid_argument!("b is not a matrix"));
        }
        let (a_columns, b_columns) = (a.shape().dim(1), b.shape().dim(1));
        let (m, k) = if self.transpose_a { (a_columns, a.shape().dim(0)) } else { (a.shape().dim(0), a_columns) };
        let (n, b_k) = if self.transpose_b { (b.shape().dim(0), b_columns) } else { (b_columns, b.shape().dim(0)) };
        if k != b_k {
            return Err(invalid_argument!(
                "Matrix size incompatible: a: {}, b: {}, transpose_a: {}, transpose_b: {}",
                a.shape(),
                b.shape(),
                u8::from(self.transpose_a),
                u8::from(self.transpose_b)
            ));
        }
        let mut out = Tensor::zeros(DType::Float, Shape::from_dims(&[m, n])?)?;
        let (a, b) = (floats(a)?, floats(b)?);
        let by_row = |i: usize, row: &mut [f32]| {
            for inner in 0..k {
                let left = if self.transpose_a { a[inner * a_columns + i] } else { a[i * a_columns + inner] };
                if left == 0.0 {
                    continue;
                }
                for (j, sum) in row.iter_mut().enumerate() {
                    let right = if self.transpose_b { b[j * b_columns + inner] } else { b[inner * b_columns + j] };
                    *sum += left * right;
                }
            }
        };
        if n > 0 {
            let cost = (k * n) as f64;
            ctx.parallel_chunks(out.as_mut_slice::<f32>()?, n, cost, |rows, chunk| {
                for (i, row) in rows.zip(chunk.chunks_exact_mut(n)) {
                    by_row(i, row);
                }
            });
        }
        ctx.set_output(0, out)
    }
}
