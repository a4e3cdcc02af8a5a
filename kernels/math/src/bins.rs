//! `Bincount`, `DenseBincount` and `Bucketize`.

use crate::cast::CastFrom;
use crate::number::Number;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    Complex32, Complex64, DType, Element, Result, Shape, Tensor, bf16, dispatch, f16, internal, invalid_argument,
};
use std::marker::PhantomData;

/// The non-negative size in a scalar int32 or int64 tensor.
fn size_of(input: &Tensor) -> Result<usize> {
    if !input.shape().is_scalar() {
        return Err(invalid_argument!("Shape must be rank 0 but is rank {}", input.shape().rank()));
    }
    let size = match input.dtype() {
        DType::Int32 => i64::from(input.scalar_value::<i32>()?),
        _ => input.scalar_value::<i64>()?,
    };
    usize::try_from(size).map_err(|_| invalid_argument!("size ({size}) must be non-negative"))
}

/// Adds up weights, or ones where there are none, by index; indices beyond the bins are left out.
fn count<T: Number, I: Copy + TryInto<usize>>(indices: &[I], weights: &[T], bins: &mut [T]) {
    for (i, &index) in indices.iter().enumerate() {
        if let Ok(index) = index.try_into()
            && let Some(bin) = bins.get_mut(index)
        {
            *bin = bin.plus(weights.get(i).copied().unwrap_or(T::ONE));
        }
    }
}

/// `Bincount`: int32 values of any shape, the number of bins, and weights that may be empty.
struct Bincount<T>(PhantomData<T>);

impl<T: Number> Kernel for Bincount<T> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = size_of(ctx.input(1)?)?;
        let values = ctx.input(0)?.as_slice::<i32>()?;
        let weights = ctx.input(2)?.as_slice::<T>()?;
        if values.iter().any(|&v| v < 0) {
            return Err(invalid_argument!("Input arr must be non-negative!"));
        }
        if !weights.is_empty() && weights.len() != values.len() {
            return Err(invalid_argument!("Input indices and weights must have the same size."));
        }
        let mut out = Tensor::zeros(T::DTYPE, Shape::from_dims(&[size])?)?;
        count(values, weights, out.as_mut_slice()?);
        ctx.set_output(0, out)
    }
}

/// `DenseBincount`: as `Bincount` for a scalar, a vector or each row of a matrix; `binary_output` only tells whether a value
/// occurs.
struct DenseBincount<T> {
    binary: bool,
    element: PhantomData<T>,
}

impl<T: Number> DenseBincount<T> {
    fn new(c: &Construction<'_>) -> Result<DenseBincount<T>> {
        Ok(DenseBincount { binary: c.attrs().bool("binary_output")?, element: PhantomData })
    }

    fn run<I: Element + Copy + TryInto<usize> + PartialOrd + std::fmt::Display>(
        &self,
        ctx: &Context<'_>,
        size: usize,
    ) -> Result<Tensor> {
        let (input, weights) = (ctx.input(0)?, ctx.input(2)?);
        let values = input.as_slice::<I>()?;
        if let Some(negative) = values.iter().find(|&&v| v < I::default()) {
            return Err(if input.shape().rank() < 2 {
                invalid_argument!("Input arr must be non-negative!")
            } else {
                invalid_argument!("Input 'in' must be non-negative! Negative input value found: {negative}")
            });
        }
        let shape = if input.shape().is_matrix() {
            Shape::from_dims(&[input.shape().dim(0), size])?
        } else {
            Shape::from_dims(&[size])?
        };
        let mut out = Tensor::zeros(T::DTYPE, shape)?;
        let weights = if self.binary { &[] } else { weights.as_slice::<T>()? };
        let bins = out.as_mut_slice::<T>()?;
        if size == 0 {
            return Ok(out);
        }
        let row = if input.shape().is_matrix() { input.shape().dim(1) } else { values.len() };
        for (i, bins) in bins.chunks_exact_mut(size).enumerate() {
            let row = i * row..(i + 1) * row;
            count(&values[row.clone()], weights.get(row).unwrap_or(&[]), bins);
            if self.binary {
                bins.iter_mut().filter(|bin| **bin != T::ZERO).for_each(|bin| *bin = T::ONE);
            }
        }
        Ok(out)
    }
}

impl<T: Number> Kernel for DenseBincount<T> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, weights) = (ctx.input(0)?, ctx.input(2)?);
        if input.shape().rank() > 2 {
            return Err(invalid_argument!("Shape must be at most rank 2 but is rank {}", input.shape().rank()));
        }
        if weights.shape() != input.shape() && weights.num_elements() != 0 {
            return Err(invalid_argument!(
                "`weights` must be the same shape as `arr` or a length-0 `Tensor`, in which case it acts as all \
                 weights equal to 1. Received {}",
                weights.shape()
            ));
        }
        let size = size_of(ctx.input(1)?)?;
        let out = dispatch!(input.dtype(), I in [i32, i64] => self.run::<I>(ctx, size)?);
        ctx.set_output(0, out.ok_or_else(|| internal!("bins are counted by int32 or int64 only"))?)
    }
}

/// `Bucketize`: the number of the attribute `boundaries` that are not above an element.
struct Bucketize<T> {
    boundaries: Vec<f32>,
    element: PhantomData<T>,
}

impl<T: Element> Bucketize<T> {
    fn new(c: &Construction<'_>) -> Result<Bucketize<T>> {
        let boundaries = c.attrs().float_list("boundaries")?.to_vec();
        if !boundaries.is_sorted_by(|a, b| a <= b || a.is_nan() || b.is_nan()) {
            return Err(invalid_argument!("Expected sorted boundaries"));
        }
        Ok(Bucketize { boundaries, element: PhantomData })
    }
}

impl<T: Element> Kernel for Bucketize<T>
where
    f64: CastFrom<T>,
{
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let mut out = ctx.alloc_output(0, input.shape().clone())?;
        let x = input.as_slice::<T>()?;
        ctx.parallel_chunks(out.as_mut_slice::<i32>()?, 1, 10.0, |range, part| {
            for (y, &x) in part.iter_mut().zip(&x[range]) {
                let x = f64::cast_from(x);
                // NaN is below nothing, so it ends behind all boundaries.
                *y = self.boundaries.partition_point(|&boundary| x >= f64::from(boundary) || x.is_nan()) as i32;
            }
        });
        ctx.set_output(0, out)
    }
}

fn counts<T: Number>(r: &mut Registry) {
    r.op("Bincount").types("T", &[T::DTYPE]).kernel(|_| Ok(Bincount::<T>(PhantomData)));
    for index in [DType::Int32, DType::Int64] {
        r.op("DenseBincount").types("T", &[T::DTYPE]).types("Tidx", &[index]).kernel(DenseBincount::<T>::new);
    }
}

pub(crate) fn register(r: &mut Registry) {
    counts::<f32>(r);
    counts::<f64>(r);
    counts::<f16>(r);
    counts::<bf16>(r);
    counts::<i8>(r);
    counts::<i16>(r);
    counts::<i32>(r);
    counts::<i64>(r);
    counts::<u8>(r);
    counts::<u16>(r);
    counts::<u32>(r);
    counts::<u64>(r);
    counts::<Complex32>(r);
    counts::<Complex64>(r);
    r.op("Bucketize").types("T", &[DType::Float]).kernel(Bucketize::<f32>::new);
    r.op("Bucketize").types("T", &[DType::Double]).kernel(Bucketize::<f64>::new);
    r.op("Bucketize").types("T", &[DType::Int32]).kernel(Bucketize::<i32>::new);
    r.op("Bucketize").types("T", &[DType::Int64]).kernel(Bucketize::<i64>::new);
}
