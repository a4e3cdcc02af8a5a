//! `MatMul` and `BatchMatMul`.

mod einsum;
mod product;
mod skinny;
mod vector;

use crate::cast::CastFrom;
use crate::isa::map1;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    Broadcast, Complex32, Complex64, DType, Element, Result, Shape, Tensor, bf16, dispatch, f16, internal,
    invalid_argument,
};
use product::{Matrix, Multiply, Sizes};
use smallvec::SmallVec;

/// Which op: they differ in their checks and in the names of their attributes.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Two matrices.
    MatMul,
    /// Batches of the same shape.
    Batch,
    /// Batches that broadcast.
    BatchV2,
    /// Batches that broadcast, of mixed types.
    BatchV3,
}

/// How an operand is read.
#[derive(Clone, Copy)]
struct Access {
    transpose: bool,
    conjugate: bool,
}

/// The product of matrices, or of each pair of matrices in two batches.
struct MatMul {
    form: Form,
    x: Access,
    y: Access,
}

impl MatMul {
    fn new(c: &Construction<'_>, form: Form) -> Result<MatMul> {
        let (x, y) = match form {
            Form::MatMul => (c.attrs().bool("transpose_a")?, c.attrs().bool("transpose_b")?),
            _ => (c.attrs().bool("adj_x")?, c.attrs().bool("adj_y")?),
        };
        let access = |transpose: bool| Access { transpose, conjugate: transpose && form != Form::MatMul };
        Ok(MatMul { form, x: access(x), y: access(y) })
    }

    fn check_ranks(&self, x: &Shape, y: &Shape) -> Result<()> {
        match self.form {
            Form::MatMul => {
                if x.rank() != y.rank() {
                    return Err(invalid_argument!("In[0] and In[1] has different ndims: {x} vs. {y}"));
                }
                if x.rank() != 2 {
                    return Err(invalid_argument!("In[0] and In[1] ndims must be == 2: {}", x.rank()));
                }
            }
            Form::Batch => {
                if x.rank() != y.rank() {
                    return Err(invalid_argument!("In[0] and In[1] has different ndims: {x} vs. {y}"));
                }
                if x.rank() < 2 {
                    return Err(invalid_argument!("In[0] and In[1] ndims must be >= 2: {}", x.rank()));
                }
                for axis in 0..x.rank() - 2 {
                    if x.dim(axis) != y.dim(axis) {
                        return Err(invalid_argument!(
                            "In[0].dim({axis}) and In[1].dim({axis}) must be the same: {x} vs {y}"
                        ));
                    }
                }
            }
            Form::BatchV2 | Form::BatchV3 => {
                for (i, shape) in [x, y].into_iter().enumerate() {
                    if shape.rank() < 2 {
                        return Err(invalid_argument!("In[{i}] ndims must be >= 2: {}", shape.rank()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The shapes of a product of batches, checked.
struct Plan {
    sizes: Sizes,
    shape: Shape,
    /// Where the matrices of each product start.
    starts: SmallVec<[(usize, usize); 1]>,
}

fn batch_dims(shape: &Shape) -> Result<Shape> {
    Shape::from_dims(&shape.dims()[..shape.rank().saturating_sub(2)])
}

impl Plan {
    fn new(op: &MatMul, x: &Shape, y: &Shape) -> Result<Plan> {
        op.check_ranks(x, y)?;
        let sizes_of = |shape: &Shape, access: Access| {
            let (rows, columns) = (shape.dim(shape.rank() - 2), shape.dim(shape.rank() - 1));
            if access.transpose { (columns, rows) } else { (rows, columns) }
        };
        let ((m, k), (inner, n)) = (sizes_of(x, op.x), sizes_of(y, op.y));
        let batches = if x.rank() == 2 && y.rank() == 2 {
            None
        } else {
            let plan = Broadcast::new(&batch_dims(x)?, &batch_dims(y)?).map_err(|error| {
                error.with_message(format!("In[0] and In[1] must have compatible batch dimensions: {x} vs. {y}"))
            })?;
            Some(plan)
        };
        if k != inner {
            return Err(invalid_argument!("Matrix size-incompatible: In[0]: {x}, In[1]: {y}"));
        }
        let mut dims: SmallVec<[usize; 6]> = SmallVec::new();
        if let Some(plan) = &batches {
            dims.extend_from_slice(plan.shape().dims());
        }
        dims.extend_from_slice(&[m, n]);
        let shape = Shape::from_dims(&dims)?;
        let mut starts = SmallVec::new();
        match &batches {
            None => starts.push((0, 0)),
            Some(_) if shape.num_elements() == 0 => (),
            Some(plan) => plan.for_each_run(0..plan.shape().num_elements(), |run, at| {
                for i in 0..run.len() {
                    let (a, b) = (at[0] + i * plan.run_stride(0), at[1] + i * plan.run_stride(1));
                    starts.push((a * m * k, b * k * n));
                }
            }),
        }
        Ok(Plan { sizes: Sizes { m, n, k }, shape, starts })
    }

    fn multiply<T: Multiply>(&self, op: &MatMul, ctx: &Context<'_>, x: &[T], y: &[T], out: &mut [T]) {
        let Sizes { m, n, k } = self.sizes;
        if out.is_empty() {
            return;
        }
        if k == 0 {
            out.fill(T::ZERO);
            return;
        }
        ctx.parallel_chunks(out, m * n, (m * n * k) as f64 / T::SPEED, |batches, part| {
            for (batch, c) in batches.zip(part.chunks_exact_mut(m * n)) {
                let (a, b) = self.starts[batch];
                let a = view(&x[a..a + m * k], op.x, m, k);
                let b = view(&y[b..b + k * n], op.y, k, n);
                T::multiply(ctx, self.sizes, a, b, c);
            }
        });
    }
}

/// A matrix of `rows` and `columns` as it is read; stored row after row, or transposed.
fn view<T: Multiply>(data: &[T], access: Access, rows: usize, columns: usize) -> Matrix<'_, T> {
    let (row, column) = if access.transpose { (1, rows) } else { (columns, 1) };
    Matrix { data, row, column, conjugate: access.conjugate }
}

/// A tensor's elements as another type.
fn widened<T: Element, U: Element + CastFrom<T>>(ctx: &Context<'_>, input: &Tensor) -> Result<Tensor> {
    let mut out = Tensor::alloc(U::DTYPE, input.shape().clone())?;
    let x = input.as_slice::<T>()?;
    let body = map1(|x: T| U::cast_from(x));
    ctx.parallel_chunks(out.as_mut_slice::<U>()?, 1, 0.2, |range, part| body(&x[range], part));
    Ok(out)
}

impl Kernel for MatMul {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (x, y) = (ctx.input(0)?, ctx.input(1)?);
        let plan = Plan::new(self, x.shape(), y.shape())?;
        let mut out = ctx.alloc_output(0, plan.shape.clone())?;
        let unknown = || internal!("there is no product of {} and {} into {}", x.dtype(), y.dtype(), out.dtype());
        if x.dtype() == y.dtype() && x.dtype() == out.dtype() && !matches!(x.dtype(), DType::Half | DType::BFloat16) {
            let done = dispatch!(x.dtype(), T in [f32, f64, Complex32, Complex64, i16, i32, i64] => {
                plan.multiply::<T>(self, ctx, x.as_slice()?, y.as_slice()?, out.as_mut_slice()?);
            });
            done.ok_or_else(|| internal!("there is no product of {} matrices", x.dtype()))?;
            return ctx.set_output(0, out);
        }
        let wide = if out.dtype() == DType::Int32 { DType::Int32 } else { DType::Float };
        let widen = |input: &Tensor| match wide {
            DType::Int32 => dispatch!(input.dtype(), T in [i8, u8] => widened::<T, i32>(ctx, input)),
            _ => dispatch!(input.dtype(), T in [f16, bf16, i8, u8] => widened::<T, f32>(ctx, input)),
        };
        let a = widen(x).ok_or_else(unknown)??;
        let b = widen(y).ok_or_else(unknown)??;
        if wide == DType::Int32 {
            plan.multiply::<i32>(self, ctx, a.as_slice()?, b.as_slice()?, out.as_mut_slice()?);
        } else {
            let mut sums = Tensor::alloc(DType::Float, plan.shape.clone())?;
            plan.multiply::<f32>(self, ctx, a.as_slice()?, b.as_slice()?, sums.as_mut_slice()?);
            out = match out.dtype() {
                DType::Half => widened::<f32, f16>(ctx, &sums)?,
                DType::BFloat16 => widened::<f32, bf16>(ctx, &sums)?,
                _ => return Err(unknown()),
            };
        }
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(r: &mut Registry) {
    einsum::register(r);
    use DType::*;
    for dtype in [BFloat16, Complex128, Complex64, Double, Float, Half, Int16, Int32, Int64] {
        r.op("MatMul").types("T", &[dtype]).kernel(|c| MatMul::new(c, Form::MatMul));
        r.op("BatchMatMul").types("T", &[dtype]).kernel(|c| MatMul::new(c, Form::Batch));
        r.op("BatchMatMulV2").types("T", &[dtype]).kernel(|c| MatMul::new(c, Form::BatchV2));
        if dtype != Half {
            mixed(r, dtype, dtype, dtype);
        }
    }
    for (x, y, out) in [
        (BFloat16, Int8, BFloat16),
        (BFloat16, UInt8, BFloat16),
        (Int8, BFloat16, BFloat16),
        (UInt8, BFloat16, BFloat16),
        (Int8, Int8, Int32),
        (Int8, UInt8, Int32),
        (UInt8, Int8, Int32),
        (UInt8, UInt8, Int32),
    ] {
        mixed(r, x, y, out);
    }
}

fn mixed(r: &mut Registry, x: DType, y: DType, out: DType) {
    let entry = r.op("BatchMatMulV3").types("Ta", &[x]).types("Tb", &[y]).types("Tout", &[out]);
    entry.kernel(|c| MatMul::new(c, Form::BatchV3));
}
