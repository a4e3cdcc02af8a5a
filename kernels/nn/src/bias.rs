//! Adding a vector along the channels, and the gradient of that vector.

use crate::simd::vectorized;
use crate::window::DataFormat;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    Complex32, Complex64, DType, Element, Result, Shape, Tensor, bf16, dispatch, f16, internal, invalid_argument,
};

/// An element that can be added, and the type in which many are.
trait Addend: Element {
    type Sum: Copy + Default + Send + Sync;
    fn plus(self, other: Self) -> Self;
    fn add_to(self, sum: &mut Self::Sum);
    fn merge(sum: &mut Self::Sum, other: Self::Sum);
    fn total(sum: Self::Sum) -> Self;
}

macro_rules! addends {
    ($($t:ty as $sum:ty, |$a:ident, $b:ident| $plus:expr, |$x:ident| $widen:expr, |$s:ident| $narrow:expr;)*) => {$(
        impl Addend for $t {
            type Sum = $sum;
            #[inline(always)]
            fn plus(self, other: $t) -> $t {
                let ($a, $b) = (self, other);
                $plus
            }
            #[inline(always)]
            fn add_to(self, sum: &mut $sum) {
                let $x = self;
                <$t>::merge(sum, $widen);
            }
            #[inline(always)]
            fn merge(sum: &mut $sum, other: $sum) {
                *sum = SumOf::plus(*sum, other);
            }
            #[inline(always)]
            fn total($s: $sum) -> $t {
                $narrow
            }
        }
    )*};
}

/// Addition of the types that sums are kept in.
trait SumOf {
    fn plus(self, other: Self) -> Self;
}

macro_rules! sums {
    (wrapping: $($int:ty),*; plain: $($t:ty),*) => {
        $(impl SumOf for $int {
            #[inline(always)]
            fn plus(self, other: $int) -> $int { self.wrapping_add(other) }
        })*
        $(impl SumOf for $t {
            #[inline(always)]
            fn plus(self, other: $t) -> $t { self + other }
        })*
    };
}

sums!(wrapping: i8, i16, i32, i64, u8, u16, u32, u64; plain: f32, f64, Complex32, Complex64);

addends! {
    i8 as i8, |a, b| a.wrapping_add(b), |x| x, |s| s;
    i16 as i16, |a, b| a.wrapping_add(b), |x| x, |s| s;
    i32 as i32, |a, b| a.wrapping_add(b), |x| x, |s| s;
    i64 as i64, |a, b| a.wrapping_add(b), |x| x, |s| s;
    u8 as u8, |a, b| a.wrapping_add(b), |x| x, |s| s;
    u16 as u16, |a, b| a.wrapping_add(b), |x| x, |s| s;
    u32 as u32, |a, b| a.wrapping_add(b), |x| x, |s| s;
    u64 as u64, |a, b| a.wrapping_add(b), |x| x, |s| s;
    f32 as f32, |a, b| a + b, |x| x, |s| s;
    f64 as f64, |a, b| a + b, |x| x, |s| s;
    Complex32 as Complex32, |a, b| a + b, |x| x, |s| s;
    Complex64 as Complex64, |a, b| a + b, |x| x, |s| s;
    f16 as f32, |a, b| f16::from_f32(a.to_f32() + b.to_f32()), |x| x.to_f32(), |s| f16::from_f32(s);
    bf16 as f32, |a, b| bf16::from_f32(a.to_f32() + b.to_f32()), |x| x.to_f32(), |s| bf16::from_f32(s);
}

/// The shape as rows of channels of columns: `outer * channels * inner` elements.
fn outer_channels_inner(format: DataFormat, shape: &Shape) -> (usize, usize, usize) {
    let axis = if format == DataFormat::Nhwc { shape.rank().saturating_sub(1) } else { 1 };
    (shape.dims().iter().take(axis).product(), shape.dim(axis), shape.stride(axis))
}

/// `BiasAdd(value, bias)`, `BiasAddV1(value, bias)`: adds the vector along the last dimension, or along the second one with
/// `data_format = "NCHW"`.
struct BiasAdd {
    dtype: DType,
    format: DataFormat,
}

impl BiasAdd {
    fn new(c: &Construction<'_>) -> Result<BiasAdd> {
        Ok(BiasAdd { dtype: c.dtype("T")?, format: DataFormat::from_attr(c)? })
    }
}

impl Kernel for BiasAdd {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = ctx.input(0)?.shape().clone();
        let bias = ctx.input(1)?.shape();
        if shape.rank() < 2 {
            return Err(invalid_argument!("Input tensor must be at least 2D: {shape}"));
        }
        if !bias.is_vector() {
            return Err(invalid_argument!("Biases must be 1D: {bias}"));
        }
        let (_, channels, inner) = outer_channels_inner(self.format, &shape);
        if bias.dim(0) != channels {
            return Err(invalid_argument!(
                "Must provide as many biases as the last dimension of the input tensor: {bias} vs. {shape}"
            ));
        }
        dispatch!(self.dtype, T in numbers => add::<T>(ctx, &shape, channels, inner))
            .ok_or_else(|| internal!("no bias of {}", self.dtype))?
    }
}

vectorized! {
    fn add_rows[T: Addend](target: &mut [T], source: &[T], bias: &[T]) {
        for (to, from) in target.chunks_exact_mut(bias.len()).zip(source.chunks_exact(bias.len())) {
            to.iter_mut().zip(from).zip(bias).for_each(|((t, f), b)| *t = f.plus(*b));
        }
    }
}

vectorized! {
    fn add_rows_in_place[T: Addend](target: &mut [T], bias: &[T]) {
        for to in target.chunks_exact_mut(bias.len()) {
            to.iter_mut().zip(bias).for_each(|(t, b)| *t = t.plus(*b));
        }
    }
}

vectorized! {
    fn add_to_all[T: Addend](target: &mut [T], bias: T) {
        target.iter_mut().for_each(|t| *t = t.plus(bias));
    }
}

vectorized! {
    fn sum_rows[T: Addend](sums: &mut [T::Sum], rows: &[T]) {
        for row in rows.chunks_exact(sums.len()) {
            sums.iter_mut().zip(row).for_each(|(s, x)| x.add_to(s));
        }
    }
}

fn add<T: Addend>(ctx: &mut Context<'_>, shape: &Shape, channels: usize, inner: usize) -> Result<()> {
    let (mut output, reused) = ctx.reuse_or_alloc(&[0], 0, shape)?;
    if shape.num_elements() > 0 {
        let target = output.as_mut_slice::<T>()?;
        let source = if reused.is_some() { None } else { Some(ctx.input(0)?.as_slice::<T>()?) };
        let bias = ctx.input(1)?.as_slice::<T>()?;
        // A unit is a vector of channels, or the elements of one channel where those lie together.
        let unit = if inner == 1 { channels } else { inner };
        let cost = unit as f64 * 0.15;
        ctx.parallel_chunks(target, unit, cost, |units, part| {
            match source.map(|s| &s[units.start * unit..units.end * unit]) {
                Some(from) if inner == 1 => return add_rows(part, from, bias),
                Some(from) => part.copy_from_slice(from),
                None => {}
            }
            if inner == 1 {
                add_rows_in_place(part, bias);
            } else {
                let places = units.zip(part.chunks_exact_mut(unit));
                places.for_each(|(at, to)| add_to_all(to, bias[at % channels]));
            }
        });
    }
    ctx.set_output(0, output)
}

/// `BiasAddGrad(out_backprop)`: the sums over all dimensions but the channels.
struct BiasAddGrad(BiasAdd);

impl Kernel for BiasAddGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let gradient = ctx.input(0)?;
        let shape = gradient.shape();
        if shape.rank() < 2 {
            return Err(invalid_argument!("Input tensor must be at least 2D: {shape}"));
        }
        if i32::try_from(shape.num_elements()).is_err() {
            return Err(invalid_argument!("BiasGrad requires tensor size <= int32 max"));
        }
        let sizes = outer_channels_inner(self.0.format, shape);
        let output = dispatch!(self.0.dtype, T in numbers => sum::<T>(ctx, gradient, sizes))
            .ok_or_else(|| internal!("no bias of {}", self.0.dtype))??;
        ctx.set_output(0, output)
    }
}

fn sum<T: Addend>(
    ctx: &Context<'_>,
    gradient: &Tensor,
    (outer, channels, inner): (usize, usize, usize),
) -> Result<Tensor> {
    let mut output = Tensor::zeros(T::DTYPE, Shape::vector(channels))?;
    if gradient.num_elements() == 0 {
        return Ok(output);
    }
    let source = gradient.as_slice::<T>()?;
    let target = output.as_mut_slice::<T>()?;
    if inner > 1 {
        let cost = (outer * inner) as f64 * 0.3;
        ctx.parallel_chunks(target, 1, cost, |range, part| {
            for (channel, to) in range.zip(part) {
                let mut sum = T::Sum::default();
                for image in 0..outer {
                    let at = (image * channels + channel) * inner;
                    T::merge(&mut sum, sum_of(&source[at..at + inner]));
                }
                *to = T::total(sum);
            }
        });
        return Ok(output);
    }
    // Blocks of rows are summed on their own; how many there are does not depend on the threads, so neither does the result.
    let blocks = (outer / 64).clamp(1, 64);
    let mut partial = vec![T::Sum::default(); blocks * channels];
    let cost = outer.div_ceil(blocks) as f64 * channels as f64 * 0.15;
    ctx.parallel_chunks(&mut partial, channels, cost, |range, part| {
        for (block, sums) in range.zip(part.chunks_exact_mut(channels)) {
            let rows = outer * block / blocks..outer * (block + 1) / blocks;
            sum_rows(sums, &source[rows.start * channels..rows.end * channels]);
        }
    });
    for (channel, to) in target.iter_mut().enumerate() {
        let mut sum = T::Sum::default();
        partial.iter().skip(channel).step_by(channels).for_each(|p| T::merge(&mut sum, *p));
        *to = T::total(sum);
    }
    Ok(output)
}

vectorized! {
    /// The sum of a slice, in 32 strands so that it vectorises and rounds less.
    fn sum_of[T: Addend](values: &[T]) -> T::Sum {
        let mut strands = [T::Sum::default(); 32];
        let (chunks, rest) = values.as_chunks::<32>();
        rest.iter().zip(&mut strands).for_each(|(x, s)| x.add_to(s));
        for chunk in chunks {
            chunk.iter().zip(&mut strands).for_each(|(x, s)| x.add_to(s));
        }
        let mut sum = T::Sum::default();
        strands.iter().for_each(|s| T::merge(&mut sum, *s));
        sum
    }
}

pub(crate) fn register(registry: &mut Registry) {
    registry.op("BiasAdd").types("T", DType::NUMBERS).kernel(BiasAdd::new);
    registry.op("BiasAddV1").types("T", DType::NUMBERS).kernel(BiasAdd::new);
    registry
        .op("BiasAddGrad")
        .types("T", DType::NUMBERS)
        .kernel(|c: &Construction<'_>| BiasAdd::new(c).map(BiasAddGrad));
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::testing::OpRun;

    fn run(op: &str, format: &str, inputs: Vec<Tensor>) -> Result<Tensor> {
        let mut registry = Registry::new();
        register(&mut registry);
        let run = OpRun::new(op).attr_type("T", inputs[0].dtype());
        let run = if op == "BiasAddV1" { run } else { run.attr_str("data_format", format) };
        run.run(&registry, inputs).map(|mut outputs| outputs.remove(0))
    }

    fn floats(dims: &[usize]) -> Tensor {
        let shape = Shape::from_dims(dims).unwrap();
        let values: Vec<f32> = (0..shape.num_elements()).map(|v| v as f32).collect();
        Tensor::from_slice(shape, &values).unwrap()
    }

    #[test]
    fn bias_goes_along_the_channels_of_either_format() {
        let bias = Tensor::vector(&[10f32, 20.0]).unwrap();
        let last = run("BiasAdd", "NHWC", vec![floats(&[1, 2, 2]), bias.clone()]).unwrap();
        assert_eq!(last.as_slice::<f32>().unwrap(), &[10.0, 21.0, 12.0, 23.0]);
        let second = run("BiasAdd", "NCHW", vec![floats(&[1, 2, 2]), bias.clone()]).unwrap();
        assert_eq!(second.as_slice::<f32>().unwrap(), &[10.0, 11.0, 22.0, 23.0]);
        let shared = floats(&[1, 1, 1, 1, 1, 2]);
        let deep = run("BiasAddV1", "", vec![shared.clone(), bias.clone()]).unwrap();
        assert_eq!(deep.as_slice::<f32>().unwrap(), &[10.0, 21.0]);
        assert_eq!(shared.as_slice::<f32>().unwrap(), &[0.0, 1.0]);
        assert_eq!(run("BiasAdd", "NHWC", vec![floats(&[0, 2]), bias]).unwrap().num_elements(), 0);
    }

    #[test]
    fn shapes_are_checked() {
        let message = |value: &[usize], bias: &[usize]| {
            run("BiasAdd", "NHWC", vec![floats(value), floats(bias)]).unwrap_err().message().to_owned()
        };
        assert_eq!(message(&[3], &[3]), "Input tensor must be at least 2D: [3]");
        assert_eq!(message(&[2, 3], &[1, 3]), "Biases must be 1D: [1,3]");
        let text = "Must provide as many biases as the last dimension of the input tensor: [2] vs. [2,3]";
        assert_eq!(message(&[2, 3], &[2]), text);
        assert!(run("BiasAddGrad", "NHWC", vec![floats(&[3])]).is_err());
    }

    #[test]
    fn gradients_sum_everything_but_the_channels() {
        let last = run("BiasAddGrad", "NHWC", vec![floats(&[2, 2, 3])]).unwrap();
        assert_eq!(last.as_slice::<f32>().unwrap(), &[18.0, 22.0, 26.0]);
        let second = run("BiasAddGrad", "NCHW", vec![floats(&[2, 2, 3])]).unwrap();
        assert_eq!(second.as_slice::<f32>().unwrap(), &[24.0, 42.0]);
        let many = Tensor::from_slice(Shape::new(&[1000, 2]).unwrap(), &[bf16::from_f32(1.0); 2000]).unwrap();
        let sums = run("BiasAddGrad", "NHWC", vec![many]).unwrap();
        assert_eq!(sums.as_slice::<bf16>().unwrap(), &[bf16::from_f32(1000.0); 2]);
        let wrapped = Tensor::from_slice(Shape::new(&[3, 1]).unwrap(), &[100i8; 3]).unwrap();
        assert_eq!(run("BiasAddGrad", "NHWC", vec![wrapped]).unwrap().as_slice::<i8>().unwrap(), &[44]);
        let empty = run("BiasAddGrad", "NHWC", vec![floats(&[0, 3])]).unwrap();
        assert_eq!(empty.as_slice::<f32>().unwrap(), &[0.0; 3]);
    }
}
