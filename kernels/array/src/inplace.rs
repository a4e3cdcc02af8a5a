//! `InplaceUpdate`, `InplaceAdd`, `InplaceSub` and `ParallelConcat`.
//!
//! TensorFlow's kernels write to the buffer of their input whoever else may see it; here a buffer that others see is copied.

use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, DType, Element, Result, Shape, Tensor, bf16, f16, invalid_argument};

#[derive(Clone, Copy, PartialEq)]
enum Change {
    Update,
    Add,
    Subtract,
}

/// Rows `v` put in, added to, or subtracted from the rows `i` of `x`; row numbers wrap around.
struct Inplace(Change);

/// A type of the rows that can be added.
trait Number: Element {
    fn sum(self, other: Self, subtract: bool) -> Self;
}

macro_rules! numbers {
    ($($t:ty: $add:expr, $subtract:expr;)*) => {$(
        impl Number for $t {
            fn sum(self, other: $t, subtract: bool) -> $t {
                let (add, sub): (fn($t, $t) -> $t, fn($t, $t) -> $t) = ($add, $subtract);
                if subtract { sub(self, other) } else { add(self, other) }
            }
        }
    )*};
}

numbers! {
    f32: |a, b| a + b, |a, b| a - b;
    f64: |a, b| a + b, |a, b| a - b;
    f16: |a, b| a + b, |a, b| a - b;
    bf16: |a, b| a + b, |a, b| a - b;
    Complex32: |a, b| a + b, |a, b| a - b;
    Complex64: |a, b| a + b, |a, b| a - b;
    i8: i8::wrapping_add, i8::wrapping_sub;
    i16: i16::wrapping_add, i16::wrapping_sub;
    i32: i32::wrapping_add, i32::wrapping_sub;
    i64: i64::wrapping_add, i64::wrapping_sub;
    u8: u8::wrapping_add, u8::wrapping_sub;
    u16: u16::wrapping_add, u16::wrapping_sub;
    u32: u32::wrapping_add, u32::wrapping_sub;
    u64: u64::wrapping_add, u64::wrapping_sub;
}

fn add_rows<T: Number>(output: &mut Tensor, rows: &[usize], v: &Tensor, width: usize, subtract: bool) -> Result<()> {
    let (target, v) = (output.as_mut_slice::<T>()?, v.as_slice::<T>()?);
    for (&row, v) in rows.iter().zip(v.chunks_exact(width)) {
        let target = &mut target[row * width..(row + 1) * width];
        target.iter_mut().zip(v).for_each(|(t, &v)| *t = t.sum(v, subtract));
    }
    Ok(())
}

impl Kernel for Inplace {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (x, i, v) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?.clone());
        let (to, from) = (x.shape(), v.shape());
        if !i.shape().is_vector() {
            return Err(invalid_argument!("i must be a vector. {}", i.shape()));
        }
        if to.rank() != from.rank() {
            return Err(invalid_argument!("x and v shape doesn't match (ranks differ): {to} vs. {from}"));
        }
        for axis in 1..to.rank() {
            if to.dim(axis) != from.dim(axis) {
                return Err(invalid_argument!("x and v shape doesn't match at index {axis} : {to} vs. {from}"));
            }
        }
        if to.is_scalar() || i.num_elements() != from.dim(0) {
            return Err(invalid_argument!("i and x shape doesn't match at index 0: {} vs. {from}", i.shape()));
        }
        if x.num_elements() == 0 || v.num_elements() == 0 {
            let x = ctx.take_input(0)?;
            return ctx.set_output(0, x);
        }
        let count = to.dim(0) as i64;
        let rows: Vec<usize> = i.as_slice::<i32>()?.iter().map(|&r| i64::from(r).rem_euclid(count) as usize).collect();
        let width = to.stride(0);
        let mut output = ctx.take_input(0)?.into_unique()?;
        if self.0 == Change::Update {
            for (j, &row) in rows.iter().enumerate() {
                output.copy_elements(row * width, &v, j * width..(j + 1) * width)?;
            }
        } else {
            let subtract = self.0 == Change::Subtract;
            graphmill_tensor::dispatch!(output.dtype(), T in numbers => {
                add_rows::<T>(&mut output, &rows, &v, width, subtract)
            })
            .ok_or_else(|| invalid_argument!("Unsupported data type: {}", v.dtype()))??;
        }
        ctx.set_output(0, output)
    }
}

/// `ParallelConcat(values)`: tensors of one row each, one under the other.
struct ParallelConcat;

impl Kernel for ParallelConcat {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let first = ctx.input(0)?.shape().clone();
        if first.is_scalar() || first.dim(0) != 1 {
            return Err(invalid_argument!("All inputs must have a first dimension of 1, got shape {first}"));
        }
        let count = ctx.num_inputs();
        let shape: Shape = first.with_dim(0, count)?;
        let mut output = ctx.alloc_output(0, shape)?;
        let width = first.num_elements();
        for i in 0..count {
            let row = ctx.input(i)?;
            if *row.shape() != first {
                return Err(invalid_argument!("All inputs must have the same shape, got {} and {first}", row.shape()));
            }
            output.copy_elements(i * width, row, 0..width)?;
        }
        ctx.set_output(0, output)
    }
}

pub(crate) fn register(registry: &mut Registry) {
    registry.op("InplaceUpdate").kernel(|_| Ok(Inplace(Change::Update)));
    registry.op("InplaceAdd").kernel(|_| Ok(Inplace(Change::Add)));
    registry.op("InplaceSub").kernel(|_| Ok(Inplace(Change::Subtract)));
    let types = [DType::NUMBERS_AND_BOOL, &[DType::String]].concat();
    registry.op("ParallelConcat").types("T", &types).kernel(|_| Ok(ParallelConcat));
}
