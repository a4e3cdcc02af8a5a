//! `FractionalMaxPool`, `FractionalAvgPool` and their gradients (Graham 2014): pooling whose regions are of two sizes, in an order
//! that is drawn at random.

use crate::distribution::uniform_f64;
use crate::shuffle::shuffle;
use graphmill_runtime::philox::{Philox, Words};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, dispatch, internal, invalid_argument, unimplemented_op};
use std::ops::Range;

/// A type that is pooled.
trait Value: Element + PartialOrd {
    const LOWEST: Self;
    fn plus(self, other: Self) -> Self;
    fn over(self, count: usize) -> Self;
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
}

macro_rules! values {
    ($($t:ty: $plus:expr;)*) => {$(
        impl Value for $t {
            const LOWEST: $t = <$t>::MIN;
            fn plus(self, other: $t) -> $t {
                let plus: fn($t, $t) -> $t = $plus;
                plus(self, other)
            }
            fn over(self, count: usize) -> $t {
                self / count as $t
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn from_f64(value: f64) -> $t {
                value as $t
            }
        }
    )*};
}

values! {
    f32: |a, b| a + b;
    f64: |a, b| a + b;
    i32: i32::wrapping_add;
    i64: i64::wrapping_add;
}

/// Where regions begin along a dimension, and where the last one ends.
type Bounds = Vec<i64>;

/// Regions of `k` or `k + 1` elements: rounded multiples of one random offset.
fn pseudo_random(input: usize, output: usize, stream: Philox) -> Bounds {
    let (n, count) = (input as f64, output as f64);
    let alpha = n / count;
    let k = (input / output) as f64;
    let most = ((k + 2.0) / alpha - 1.0).min((n + 1.0 - k) / alpha - (count - 1.0));
    let [a, b, ..] = stream.words();
    let u = uniform_f64(a, b) * most;
    let edge = |i: usize| match i {
        0 => 1,
        i if i == output => input as i64 + 1,
        i => (alpha * (i as f64 + u)).ceil() as i64,
    };
    (0..=output).map(|i| edge(i) - 1).collect()
}

/// Regions of both sizes in random order.
fn random(input: usize, output: usize, stream: Philox) -> Bounds {
    let (k, longer) = (input / output, input % output);
    let mut sizes: Vec<i64> = (0..output).map(|i| (k + usize::from(i < longer)) as i64).collect();
    shuffle(Words::new(stream), &mut sizes);
    let mut bounds = vec![0];
    let mut end = 0;
    for size in sizes {
        end += size;
        bounds.push(end);
    }
    bounds
}

/// The elements of region `i`, of `length` elements at most.
fn region(bounds: &[i64], i: usize, overlapping: bool, length: usize) -> Range<usize> {
    let end = bounds[i + 1] + i64::from(overlapping);
    bounds[i].max(0) as usize..(end.max(0) as usize).min(length)
}

struct FractionalPool {
    average: bool,
    ratio: [f32; 4],
    pseudo_random: bool,
    overlapping: bool,
    /// The stream of every run; a new one each time if none.
    seeds: Option<(u64, u64)>,
}

impl FractionalPool {
    fn new(c: &Construction<'_>, average: bool) -> Result<FractionalPool> {
        let attrs = c.attrs();
        let Ok(ratio) = <[f32; 4]>::try_from(attrs.float_list("pooling_ratio")?) else {
            return Err(invalid_argument!("pooling_ratio field must specify 4 dimensions"));
        };
        if let Some((i, ratio)) = ratio.iter().enumerate().find(|(_, ratio)| **ratio < 1.0 || ratio.is_nan()) {
            return Err(invalid_argument!("pooling_ratio cannot be smaller than 1, got: {ratio} at dimension {i}"));
        }
        if ratio[0] != 1.0 || ratio[3] != 1.0 {
            let name = if average { "average" } else { "max" };
            return Err(unimplemented_op!(
                "Fractional {name} pooling is not yet supported on the batch nor channel dimension."
            ));
        }
        let (seed, seed2) = (attrs.int("seed")? as u64, attrs.int("seed2")? as u64);
        let seeds = match (attrs.bool("deterministic")?, (seed, seed2)) {
            (true, (0, 0)) => Some((rand::random(), rand::random())),
            (true, seeds) => Some(seeds),
            (false, (0, 0)) => None,
            (false, _) => {
                return Err(invalid_argument!("Both seed and seed2 should be 0 if deterministic is false."));
            }
        };
        let (pseudo_random, overlapping) = (attrs.bool("pseudo_random")?, attrs.bool("overlapping")?);
        Ok(FractionalPool { average, ratio, pseudo_random, overlapping, seeds })
    }

    fn run<T: Value>(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let &[batch, rows, cols, depth] = input.shape().dims() else {
            return Err(invalid_argument!("tensor_in must be 4-dimensional"));
        };
        let mut sizes = [0; 4];
        for (i, size) in sizes.iter_mut().enumerate() {
            let length = input.shape().dim(i);
            if (length as f32) < self.ratio[i] {
                return Err(invalid_argument!(
                    "Pooling ratio is higher than input dimension size for dimension {i}. Input dim size: {length} \
                     pooling ratio: {}",
                    self.ratio[i]
                ));
            }
            *size = ((length as f32 / self.ratio[i]).floor() as usize).max(1);
        }
        let (seed, seed2) = self.seeds.unwrap_or_else(|| (rand::random(), rand::random()));
        let stream = Philox::from_seeds(seed, seed2);
        let (row_bounds, col_bounds) = if self.pseudo_random {
            (pseudo_random(rows, sizes[1], stream), pseudo_random(cols, sizes[2], stream.at(1)))
        } else {
            let draws = sizes[1].div_ceil(4) as u64;
            (random(rows, sizes[1], stream), random(cols, sizes[2], stream.at(draws)))
        };
        let mut out = ctx.alloc_output(0, Shape::from_dims(&[batch, sizes[1], sizes[2], depth])?)?;
        let x = input.as_slice::<T>()?;
        let cost = (rows * cols * depth) as f64 / (sizes[1] * sizes[2]) as f64;
        ctx.parallel_chunks(out.as_mut_slice::<T>()?, depth, cost, |range, part| {
            for (at, out) in range.zip(part.chunks_exact_mut(depth)) {
                let (n, row, col) = (at / (sizes[1] * sizes[2]), at / sizes[2] % sizes[1], at % sizes[2]);
                let row = region(&row_bounds, row, self.overlapping, rows);
                let col = region(&col_bounds, col, self.overlapping, cols);
                out.fill(if self.average { T::default() } else { T::LOWEST });
                for y in row.clone() {
                    for x_at in col.clone() {
                        let from = ((n * rows + y) * cols + x_at) * depth;
                        for (out, &x) in out.iter_mut().zip(&x[from..from + depth]) {
                            if self.average {
                                *out = out.plus(x);
                            } else if *out < x {
                                *out = x;
                            }
                        }
                    }
                }
                if self.average {
                    let count = row.len() * col.len();
                    out.iter_mut().for_each(|out| *out = out.over(count.max(1)));
                }
            }
        });
        ctx.set_output(0, out)?;
        ctx.set_output(1, Tensor::vector(&row_bounds)?)?;
        ctx.set_output(2, Tensor::vector(&col_bounds)?)
    }
}

impl Kernel for FractionalPool {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        dispatch!(ctx.output_type(0)?, T in [f32, f64, i32, i64] => self.run::<T>(ctx))
            .unwrap_or_else(|| Err(internal!("no fractional pooling of this type")))
    }
}

/// `FractionalMaxPoolGrad(orig_input, orig_output, out_backprop, row_pooling_sequence, col_pooling_sequence)`,
/// `FractionalAvgPoolGrad(orig_input_tensor_shape, out_backprop, row_pooling_sequence, col_pooling_sequence)`.
struct FractionalPoolGrad {
    average: bool,
    overlapping: bool,
}

impl FractionalPoolGrad {
    /// The bounds in input `i`, for `count` regions.
    fn bounds(ctx: &Context<'_>, i: usize, name: &str, count: usize, out: &Shape) -> Result<Bounds> {
        let bounds = ctx.input(i)?.as_slice::<i64>()?;
        if bounds.len() <= count {
            return Err(invalid_argument!(
                "Given out_backprop shape {out}, {name}_seq_tensor must have at least {} elements, but got {}",
                count + 1,
                bounds.len()
            ));
        }
        if bounds.iter().any(|&b| b < 0) || bounds.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(invalid_argument!(
                "{name} sequence tensor values must not be negative or falling, got {bounds:?}"
            ));
        }
        Ok(bounds.to_vec())
    }

    fn run<T: Value>(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (to, first) = if self.average {
            let sizes = ctx.input(0)?;
            if sizes.shape().dims() != [4] {
                return Err(invalid_argument!("original input tensor shape must be1-dimensional and 4 elements"));
            }
            (Shape::new(&sizes.to_i64_vec()?)?, 1)
        } else {
            (ctx.input(0)?.shape().clone(), 2)
        };
        let backprop = ctx.input(first)?;
        let (&[batch, rows, cols, depth], &[out_batch, out_rows, out_cols, out_depth]) =
            (to.dims(), backprop.shape().dims())
        else {
            return Err(invalid_argument!("orig_input should be a tensor of rank 4, got {to}"));
        };
        if to.num_elements() == 0 {
            return Err(invalid_argument!("orig_input must not be empty, got {to}"));
        }
        if (batch, depth) != (out_batch, out_depth) {
            return Err(invalid_argument!("out_backprop of shape {} does not fit the input's {to}", backprop.shape()));
        }
        let row_bounds = Self::bounds(ctx, first + 1, "row", out_rows, backprop.shape())?;
        let col_bounds = Self::bounds(ctx, first + 2, "col", out_cols, backprop.shape())?;
        let g = backprop.as_slice::<T>()?;
        let x = if self.average { &[][..] } else { ctx.input(0)?.as_slice::<T>()? };
        let mut sums = vec![0.0f64; if self.average { to.num_elements() } else { 0 }];
        let mut out = Tensor::zeros(T::DTYPE, to.clone())?;
        let target = out.as_mut_slice::<T>()?;
        for (at, &g) in g.iter().enumerate() {
            let (pixel, channel) = (at / depth, at % depth);
            let (n, row, col) = (pixel / (out_rows * out_cols), pixel / out_cols % out_rows, pixel % out_cols);
            let row = region(&row_bounds, row, self.overlapping, rows);
            let col = region(&col_bounds, col, self.overlapping, cols);
            let count = (row.len() * col.len()) as f64;
            let mut best: Option<usize> = None;
            for y in row {
                for x_at in col.clone() {
                    let from = ((n * rows + y) * cols + x_at) * depth + channel;
                    if self.average {
                        sums[from] += g.to_f64() / count;
                    } else if best.is_none_or(|best| x[best] < x[from]) {
                        best = Some(from);
                    }
                }
            }
            if let Some(best) = best {
                target[best] = target[best].plus(g);
            }
        }
        if self.average {
            target.iter_mut().zip(sums).for_each(|(t, sum)| *t = T::from_f64(sum));
        }
        ctx.set_output(0, out)
    }
}

impl Kernel for FractionalPoolGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        dispatch!(ctx.output_type(0)?, T in [f32, f64, i32, i64] => self.run::<T>(ctx))
            .unwrap_or_else(|| Err(internal!("no fractional pooling of this type")))
    }
}

pub(crate) fn register(registry: &mut Registry) {
    let types = [DType::Double, DType::Float, DType::Int32, DType::Int64];
    for (op, average) in [("FractionalMaxPool", false), ("FractionalAvgPool", true)] {
        registry.op(op).types("T", &types).kernel(move |c| FractionalPool::new(c, average));
    }
    for (op, average) in [("FractionalMaxPoolGrad", false), ("FractionalAvgPoolGrad", true)] {
        registry.op(op).types("T", &types).kernel(move |c: &Construction<'_>| {
            Ok(FractionalPoolGrad { average, overlapping: c.attrs().bool("overlapping")? })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_of_two_sizes_and_cover_everything() {
        for (input, output) in [(10, 7), (23, 10), (5, 5), (9, 1)] {
            let stream = Philox::from_seeds(5, 7);
            for bounds in [random(input, output, stream), pseudo_random(input, output, stream)] {
                assert_eq!((bounds[0], bounds[output]), (0, input as i64));
                let k = (input / output) as i64;
                assert!(bounds.windows(2).all(|pair| (k..=k + 1).contains(&(pair[1] - pair[0]))), "{bounds:?}");
            }
        }
    }
}
