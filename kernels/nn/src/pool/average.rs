//! Average pooling and its gradient.

use super::attrs::{PoolAttrs, PoolShape, check_rank, general};
use crate::convert::{channels_last, channels_second, try_parallel_chunks};
use crate::simd::{Real, Wide, vectorized};
use crate::window::DataFormat;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, dispatch, internal, invalid_argument, unimplemented_op};
use num_traits::{One, Zero};

/// The attributes, and a size check that both ops need.
struct Average(PoolAttrs);

impl Average {
    fn new(c: &Construction<'_>, kernel: &str, strides: &str) -> Result<Average> {
        let attrs = PoolAttrs::new(c, strides)?.channels_last_unless_general(kernel)?.positive_window()?;
        Ok(Average(attrs))
    }

    fn shape(&self, ctx: &Context<'_>, input: &Shape) -> Result<PoolShape> {
        let shape = self.0.shape(ctx, input, None)?;
        if shape.depth_window != 1 {
            return Err(unimplemented_op!("Non-spatial pooling is not yet supported. Volunteers? :)"));
        }
        Ok(shape)
    }
}

/// `AvgPool(value)`: the average of what each window covers; padding does not count.
struct AvgPool(Average);

impl Kernel for AvgPool {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let attrs = &self.0.0;
        if general(attrs.dtype) && input.shape().rank() != 4 {
            return Err(invalid_argument!("Input must be 4 or 5-dimensional"));
        }
        let shape = self.0.shape(ctx, input.shape())?;
        let output = dispatch!(attrs.dtype, T in floats => {
            if attrs.format == DataFormat::Nhwc {
                averages::<T>(ctx, input, &shape)
            } else {
                channels_last::<T>(ctx, input)
                    .and_then(|input| averages::<T>(ctx, &input, &shape))
                    .and_then(|output| channels_second::<T>(ctx, &output))
            }
        })
        .ok_or_else(|| internal!("no average of {}", attrs.dtype))??;
        ctx.set_output(0, output)
    }
}

vectorized! {
    /// Adds pixels up.
    fn add_pixels[T: Real](sums: &mut [T::Wide], pixels: &[T]) {
        for pixel in pixels.chunks_exact(sums.len()) {
            sums.iter_mut().zip(pixel).for_each(|(s, p)| *s = *s + p.widen());
        }
    }
}

vectorized! {
    /// Adds a share of a gradient to each of some pixels.
    fn add_shares[T: Real](pixels: &mut [T::Wide], gradient: &[T], share: T::Wide) {
        for pixel in pixels.chunks_exact_mut(gradient.len()) {
            pixel.iter_mut().zip(gradient).for_each(|(p, g)| *p = *p + g.widen() * share);
        }
    }
}

vectorized! {
    fn divided[T: Real](to: &mut [T], from: &[T::Wide], divisor: T::Wide) {
        to.iter_mut().zip(from).for_each(|(t, f)| *t = T::narrow(*f / divisor));
    }
}

fn averages<T: Real>(ctx: &Context<'_>, input: &Tensor, shape: &PoolShape) -> Result<Tensor> {
    let mut output = Tensor::alloc(T::DTYPE, shape.output()?)?;
    let source = input.as_slice::<T>()?;
    let depth = shape.depth;
    let cost = shape.output_row() as f64 * (shape.window() as f64 * 0.1 + 0.2);
    ctx.parallel_chunks(output.as_mut_slice::<T>()?, shape.output_row(), cost, |rows, part| {
        let mut sums = vec![T::Wide::zero(); depth];
        for (row, to_row) in rows.zip(part.chunks_exact_mut(shape.output_row())) {
            let (image, row) = (row / shape.rows.output, row % shape.rows.output);
            let image = &source[image * shape.image()..(image + 1) * shape.image()];
            let covered_rows = shape.rows.covered(row);
            for (col, to) in to_row.chunks_exact_mut(depth).enumerate() {
                let covered = shape.cols.covered(col);
                let count = T::Wide::of((covered_rows.len() * covered.len()).max(1) as f64);
                sums.fill(T::Wide::zero());
                for y in covered_rows.clone() {
                    let line = y * shape.cols.input * depth;
                    let from = &image[line + covered.start * depth..line + covered.end * depth];
                    add_pixels(&mut sums, from);
                }
                divided(to, &sums, count);
            }
        }
    });
    Ok(output)
}

/// `AvgPoolGrad(orig_input_shape, grad)`: each gradient is shared out evenly over what its window covers.
struct AvgPoolGrad(Average);

impl Kernel for AvgPoolGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (sizes, gradient) = (ctx.input(0)?, ctx.input(1)?);
        let attrs = &self.0.0;
        if !sizes.shape().is_vector() || sizes.num_elements() != 4 {
            return Err(invalid_argument!("out_backprop must be 1-dimensional and 4 elements"));
        }
        check_rank(gradient, "out_backprop")?;
        let sizes = sizes.to_i64_vec()?;
        if let Some(size) = sizes.iter().find(|&&size| size < 0) {
            return Err(invalid_argument!("Expected a non-negative size, got {size}"));
        }
        let input = Shape::new(&sizes)?;
        let shape = self.0.shape(ctx, &input)?;
        let (rows_at, cols_at, channels_at) = attrs.format.axes();
        let given = gradient.shape();
        if given.dim(0) != shape.batch {
            return Err(invalid_argument!(
                "Expected first dimension of orig_input and diff_dst to match, got {} and {}",
                shape.batch,
                given.dim(0)
            ));
        }
        let expected = attrs.format.shape(shape.batch, shape.rows.output, shape.cols.output, shape.depth)?;
        if given.dim(channels_at) != shape.depth
            || given.dim(rows_at) > shape.rows.output
            || given.dim(cols_at) > shape.cols.output
        {
            return Err(invalid_argument!("Expected grad shape to be {expected}, but got {given}"));
        }
        let sizes = (given.dim(rows_at), given.dim(cols_at));
        let result = dispatch!(attrs.dtype, T in floats => {
            if attrs.format == DataFormat::Nhwc {
                shares::<T>(ctx, gradient, &shape, sizes)
            } else {
                channels_last::<T>(ctx, gradient)
                    .and_then(|gradient| shares::<T>(ctx, &gradient, &shape, sizes))
                    .and_then(|result| channels_second::<T>(ctx, &result))
            }
        })
        .ok_or_else(|| internal!("no average of {}", attrs.dtype))??;
        ctx.set_output(0, result)
    }
}

/// The gradient of the input; `rows` and `cols` of gradients are given, no more than there are windows.
fn shares<T: Real>(
    ctx: &Context<'_>,
    gradient: &Tensor,
    shape: &PoolShape,
    (rows, cols): (usize, usize),
) -> Result<Tensor> {
    let depth = shape.depth;
    let to = Shape::from_dims(&[shape.batch, shape.rows.input, shape.cols.input, depth])?;
    let mut result = Tensor::alloc(T::DTYPE, to)?;
    let gradient = gradient.as_slice::<T>()?;
    let cost = (rows * cols * depth * shape.window()) as f64 * 0.15 + shape.image() as f64 * 0.2;
    try_parallel_chunks(ctx, result.as_mut_slice::<T>()?, shape.image(), cost, |images, part| {
        // From the pool, which refuses what the machine does not have: the sizes come from an input.
        let mut sums = Tensor::alloc(T::Wide::DTYPE, Shape::vector(shape.image()))?;
        let sums = sums.as_mut_slice::<T::Wide>()?;
        for (image, to) in images.zip(part.chunks_exact_mut(shape.image())) {
            sums.fill(T::Wide::zero());
            for row in 0..rows {
                let covered_rows = shape.rows.covered(row);
                for col in 0..cols {
                    let covered = shape.cols.covered(col);
                    let share = T::Wide::one() / T::Wide::of((covered_rows.len() * covered.len()).max(1) as f64);
                    let at = ((image * rows + row) * cols + col) * depth;
                    let gradient = &gradient[at..at + depth];
                    for y in covered_rows.clone() {
                        let line = y * shape.cols.input * depth;
                        let sums = &mut sums[line + covered.start * depth..line + covered.end * depth];
                        add_shares(sums, gradient, share);
                    }
                }
            }
            divided(to, sums, T::Wide::one());
        }
        Ok(())
    })?;
    Ok(result)
}

pub(super) fn register(registry: &mut Registry) {
    registry
        .op("AvgPool")
        .types("T", DType::FLOATS)
        .kernel(|c: &Construction<'_>| Average::new(c, "AvgPoolingOp", "stride").map(AvgPool));
    registry
        .op("AvgPoolGrad")
        .types("T", DType::FLOATS)
        .kernel(|c: &Construction<'_>| Average::new(c, "AvgPoolingGradOp", "strides").map(AvgPoolGrad));
}
