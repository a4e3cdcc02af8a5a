//! Maximum pooling, with and without positions, and its gradients.

use super::attrs::{PoolAttrs, PoolShape, check_rank, check_shape, general};
use crate::convert::{channels_last, channels_second};
use crate::simd::vectorized;
use crate::window::DataFormat;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    DType, Element, Result, Shape, Status, Tensor, bf16, dispatch, f16, internal, invalid_argument,
};

/// An element that has a maximum.
trait Ordered: Element + PartialOrd {
    /// What the maximum of nothing is.
    const LOWEST: Self;
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
}

macro_rules! ordered {
    (ints: $($int:ty),*; floats: $($float:ty),*) => {
        $(impl Ordered for $int {
            const LOWEST: $int = <$int>::MIN;
            #[inline(always)]
            fn plus(self, other: $int) -> $int { self.wrapping_add(other) }
        })*
        $(impl Ordered for $float {
            const LOWEST: $float = <$float>::MIN;
            #[inline(always)]
            fn plus(self, other: $float) -> $float { self + other }
        })*
    };
}

ordered!(ints: i8, i16, i32, i64, u8, u16, u32, u64; floats: f32, f64, f16);

impl Ordered for bf16 {
    // As oneDNN has it, which computes bfloat16.
    const LOWEST: bf16 = bf16::NEG_INFINITY;
    #[inline(always)]
    fn plus(self, other: bf16) -> bf16 {
        self + other
    }
}

fn unsupported(dtype: DType) -> Status {
    internal!("no maximum of {dtype}")
}

/// `MaxPool(input)`, `MaxPoolV2(input, ksize, strides)`: the maximum under each window of rows and columns, or of channels. NaN
/// is passed over.
struct MaxPool {
    attrs: PoolAttrs,
    /// The first of the inputs that hold window and strides, for the op that has them as inputs.
    sizes: Option<usize>,
}

impl MaxPool {
    fn new(c: &Construction<'_>) -> Result<MaxPool> {
        let attrs = PoolAttrs::new(c, "stride")?.channels_last_unless_general("MaxPoolingOp")?.positive_window()?;
        Ok(MaxPool { attrs, sizes: None })
    }

    fn with_size_inputs(c: &Construction<'_>) -> Result<MaxPool> {
        let attrs = PoolAttrs::new(c, "stride")?;
        if attrs.format != DataFormat::Nhwc {
            return Err(invalid_argument!(
                "MaxPoolingV2Op only supports NHWC or NCHW_VECT_C. Got: {}",
                c.attrs().str("data_format")?
            ));
        }
        Ok(MaxPool { attrs, sizes: Some(1) })
    }
}

impl Kernel for MaxPool {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        if general(self.attrs.dtype) && self.sizes.is_none() && input.shape().rank() != 4 {
            return Err(invalid_argument!("Input must be 4 or 5-dimensional"));
        }
        let shape = self.attrs.shape(ctx, input.shape(), self.sizes)?;
        let output = dispatch!(self.attrs.dtype, T in reals => {
            if self.attrs.format == DataFormat::Nhwc {
                maximum::<T>(ctx, input, &shape)
            } else {
                channels_last::<T>(ctx, input)
                    .and_then(|input| maximum::<T>(ctx, &input, &shape))
                    .and_then(|output| channels_second::<T>(ctx, &output))
            }
        })
        .ok_or_else(|| unsupported(self.attrs.dtype))??;
        ctx.set_output(0, output)
    }
}

fn maximum<T: Ordered>(ctx: &Context<'_>, input: &Tensor, shape: &PoolShape) -> Result<Tensor> {
    let mut output = Tensor::alloc(T::DTYPE, shape.output()?)?;
    let source = input.as_slice::<T>()?;
    let target = output.as_mut_slice::<T>()?;
    if shape.depth_window > 1 {
        let window = shape.depth_window;
        ctx.parallel_chunks(target, 1, window as f64, |range, part| {
            for (to, group) in part.iter_mut().zip(source[range.start * window..].chunks_exact(window)) {
                *to = group.iter().fold(T::LOWEST, |best, &v| if v > best { v } else { best });
            }
        });
        return Ok(output);
    }
    let cost = shape.output_row() as f64 * shape.window() as f64 * 0.1 + 5.0;
    ctx.parallel_chunks(target, shape.output_row(), cost, |rows, part| {
        for (row, to_row) in rows.zip(part.chunks_exact_mut(shape.output_row())) {
            let (image, row) = (row / shape.rows.output, row % shape.rows.output);
            let image = &source[image * shape.image()..(image + 1) * shape.image()];
            row_of_maxima(shape, image, row, to_row);
        }
    });
    Ok(output)
}

vectorized! {
    /// The maxima of one output row.
    fn row_of_maxima[T: Ordered](shape: &PoolShape, image: &[T], row: usize, to_row: &mut [T]) {
        let depth = shape.depth;
        let larger = |best: T, v: T| if v > best { v } else { best };
        let covered_rows = shape.rows.covered(row);
        if covered_rows.is_empty() {
            to_row.fill(T::LOWEST);
        }
        for (number, y) in covered_rows.enumerate() {
            let line = &image[y * shape.cols.input * depth..(y + 1) * shape.cols.input * depth];
            for (col, to) in to_row.chunks_exact_mut(depth).enumerate() {
                let covered = shape.cols.covered(col);
                let pixels = &line[covered.start * depth..covered.end * depth];
                // Two pixels at a time, and nothing read back in the first row: this loop is all loads and stores.
                let (pair, mut rest) = pixels.split_at((2 * depth).min(pixels.len()) * usize::from(covered.len() > 1));
                let (a, b) = pair.split_at(pair.len() / 2);
                if number > 0 {
                    to.iter_mut().zip(a).zip(b).for_each(|((t, &a), &b)| *t = larger(larger(*t, a), b));
                } else if !pair.is_empty() {
                    to.iter_mut().zip(a).zip(b).for_each(|((t, &a), &b)| *t = larger(larger(T::LOWEST, a), b));
                } else {
                    to.fill(T::LOWEST);
                }
                while !rest.is_empty() {
                    let (pixel, others) = rest.split_at(depth);
                    to.iter_mut().zip(pixel).for_each(|(t, &v)| *t = larger(*t, v));
                    rest = others;
                }
            }
        }
    }
}

vectorized! {
    /// Takes elements that are larger than the best so far, and notes that they are pixel `pixel`.
    fn take_larger[T: Ordered](best: &mut [T], at: &mut [u32], from: &[T], pixel: u32) {
        for ((best, at), &from) in best.iter_mut().zip(at).zip(from) {
            let larger = *best < from;
            *best = if larger { from } else { *best };
            *at = if larger { pixel } else { *at };
        }
    }
}

vectorized! {
    /// Adds the gradients of the channels whose best is pixel `pixel`.
    fn add_where[T: Ordered](to: &mut [T], gradient: &[T], at: &[u32], pixel: u32) {
        for ((to, &g), &at) in to.iter_mut().zip(gradient).zip(at) {
            *to = if at == pixel { to.plus(g) } else { *to };
        }
    }
}

/// For each channel of one window, the largest element and the number of the covered input pixel that has it: the first of
/// equals, and the very first if that is NaN.
struct Positions<T> {
    best: Vec<T>,
    at: Vec<u32>,
}

impl<T: Ordered> Positions<T> {
    fn new(depth: usize) -> Positions<T> {
        Positions { best: vec![T::LOWEST; depth], at: vec![0; depth] }
    }

    /// Finds the positions for a window; false if it covers nothing.
    fn find(&mut self, shape: &PoolShape, image: &[T], row: usize, col: usize) -> bool {
        let mut pixel = 0;
        for y in shape.rows.covered(row) {
            for x in shape.cols.covered(col) {
                let at = (y * shape.cols.input + x) * shape.depth;
                let from = &image[at..at + shape.depth];
                if pixel == 0 {
                    self.best.copy_from_slice(from);
                    self.at.fill(0);
                } else {
                    take_larger(&mut self.best, &mut self.at, from, pixel);
                }
                pixel += 1;
            }
        }
        pixel > 0
    }
}

/// The input pixel (row-major in its image) that pixel `number` of those under a window is.
fn pixel_at(shape: &PoolShape, row: usize, col: usize, number: u32) -> usize {
    let cols = shape.cols.covered(col);
    let (down, right) = (number as usize / cols.len().max(1), number as usize % cols.len().max(1));
    (shape.rows.covered(row).start + down) * shape.cols.input + cols.start + right
}

/// `MaxPoolWithArgmax(input) -> (output, argmax)`: the maximum and its flat position in the image, or in the whole input with
/// `include_batch_in_index`.
struct MaxPoolWithArgmax {
    attrs: PoolAttrs,
    positions: DType,
    batch_in_index: bool,
}

impl MaxPoolWithArgmax {
    fn new(c: &Construction<'_>) -> Result<MaxPoolWithArgmax> {
        Ok(MaxPoolWithArgmax {
            attrs: PoolAttrs::new(c, "stride")?,
            positions: c.dtype("Targmax")?,
            batch_in_index: c.attrs().bool("include_batch_in_index")?,
        })
    }
}

impl Kernel for MaxPoolWithArgmax {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        if input.shape().rank() != 4 {
            return Err(invalid_argument!("tensor_in must be 4-dimensional (2)"));
        }
        if input.num_elements() == 0 {
            return Err(invalid_argument!("tensor_in must not be empty (2)"));
        }
        let mut shape = self.attrs.shape(ctx, input.shape(), None)?;
        // The op looks at rows and columns alone.
        shape.depth_window = 1;
        let found = dispatch!(self.attrs.dtype, T in reals => match self.positions {
            DType::Int32 => with_positions::<T, i32>(ctx, input, &shape, self.batch_in_index, |at| at as i32),
            _ => with_positions::<T, i64>(ctx, input, &shape, self.batch_in_index, |at| at as i64),
        });
        let (output, positions) = found.ok_or_else(|| unsupported(self.attrs.dtype))??;
        ctx.set_output(0, output)?;
        ctx.set_output(1, positions)
    }
}

fn with_positions<T: Ordered, P: Element>(
    ctx: &Context<'_>,
    input: &Tensor,
    shape: &PoolShape,
    batch_in_index: bool,
    position: impl Fn(usize) -> P + Sync,
) -> Result<(Tensor, Tensor)> {
    let mut output = Tensor::alloc(T::DTYPE, shape.output()?)?;
    let mut positions = Tensor::alloc(P::DTYPE, shape.output()?)?;
    let source = input.as_slice::<T>()?;
    let mut pairs: Vec<(&mut T, &mut P)> =
        output.as_mut_slice::<T>()?.iter_mut().zip(positions.as_mut_slice::<P>()?).collect();
    let cost = shape.output_row() as f64 * (shape.window() as f64 * 0.2 + 2.0);
    ctx.parallel_chunks(&mut pairs, shape.output_row(), cost, |rows, part| {
        let mut found = Positions::<T>::new(shape.depth);
        for (row, to_row) in rows.zip(part.chunks_exact_mut(shape.output_row())) {
            let (image_at, row) = (row / shape.rows.output, row % shape.rows.output);
            let image = &source[image_at * shape.image()..(image_at + 1) * shape.image()];
            let offset = if batch_in_index { image_at * shape.image() } else { 0 };
            for (col, to) in to_row.chunks_exact_mut(shape.depth).enumerate() {
                let any = found.find(shape, image, row, col);
                for (channel, (value, at)) in to.iter_mut().enumerate() {
                    **value = if any { found.best[channel] } else { T::LOWEST };
                    let pixel = pixel_at(shape, row, col, found.at[channel]);
                    **at = position(offset + pixel * shape.depth + channel);
                }
            }
        }
    });
    drop(pairs);
    Ok((output, positions))
}

/// `MaxPoolGrad(orig_input, orig_output, grad)`, `MaxPoolGradV2(.., ksize, strides)`: each gradient goes to the first largest
/// element under its window.
struct MaxPoolGrad {
    attrs: PoolAttrs,
    sizes: Option<usize>,
}

impl Kernel for MaxPoolGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, output, gradient) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        check_rank(input, "tensor_in")?;
        check_rank(output, "tensor_out")?;
        check_rank(gradient, "out_backprop")?;
        let shape = self.attrs.spatial_shape(ctx, input.shape(), self.sizes, "MaxPoolingGrad")?;
        let expected = shape.output()?;
        check_shape(output, "orig_output", &expected)?;
        check_shape(gradient, "grad", &expected)?;
        let result = dispatch!(self.attrs.dtype, T in reals => gradient_of::<T>(ctx, input, gradient, &shape))
            .ok_or_else(|| unsupported(self.attrs.dtype))??;
        ctx.set_output(0, result)
    }
}

fn gradient_of<T: Ordered>(ctx: &Context<'_>, input: &Tensor, gradient: &Tensor, shape: &PoolShape) -> Result<Tensor> {
    let mut result = Tensor::alloc(T::DTYPE, input.shape().clone())?;
    let (source, gradient) = (input.as_slice::<T>()?, gradient.as_slice::<T>()?);
    let depth = shape.depth;
    let outputs = shape.rows.output * shape.output_row();
    let cost = outputs as f64 * shape.window() as f64 * 0.3 + shape.image() as f64 * 0.1;
    ctx.parallel_chunks(result.as_mut_slice::<T>()?, shape.image(), cost, |images, part| {
        let mut found = Positions::<T>::new(depth);
        for (image_at, to) in images.zip(part.chunks_exact_mut(shape.image())) {
            to.fill(T::default());
            let image = &source[image_at * shape.image()..(image_at + 1) * shape.image()];
            for row in 0..shape.rows.output {
                for col in 0..shape.cols.output {
                    if !found.find(shape, image, row, col) {
                        continue;
                    }
                    let at = image_at * outputs + row * shape.output_row() + col * depth;
                    let gradient = &gradient[at..at + depth];
                    let mut pixel = 0;
                    for y in shape.rows.covered(row) {
                        for x in shape.cols.covered(col) {
                            let at = (y * shape.cols.input + x) * depth;
                            add_where(&mut to[at..at + depth], gradient, &found.at, pixel);
                            pixel += 1;
                        }
                    }
                }
            }
        }
    });
    Ok(result)
}

/// `MaxPoolGradGrad(orig_input, orig_output, grad)`, `MaxPoolGradGradV2(.., ksize, strides)`: from a gradient of the input's
/// shape, the element where the maximum under each window is.
struct MaxPoolGradGrad {
    attrs: PoolAttrs,
    sizes: Option<usize>,
}

impl Kernel for MaxPoolGradGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, output, gradient) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        check_rank(input, "tensor_in")?;
        check_rank(output, "tensor_out")?;
        check_rank(gradient, "out_grad_backprop")?;
        let shape = self.attrs.spatial_shape(ctx, input.shape(), self.sizes, "MaxPoolingGradGrad")?;
        check_shape(output, "orig_output", &shape.output()?)?;
        check_shape(gradient, "grad", input.shape())?;
        let result = dispatch!(self.attrs.dtype, T in reals => selected::<T>(ctx, input, gradient, &shape))
            .ok_or_else(|| unsupported(self.attrs.dtype))??;
        ctx.set_output(0, result)
    }
}

fn selected<T: Ordered>(ctx: &Context<'_>, input: &Tensor, gradient: &Tensor, shape: &PoolShape) -> Result<Tensor> {
    let mut result = Tensor::zeros(T::DTYPE, shape.output()?)?;
    let (source, gradient) = (input.as_slice::<T>()?, gradient.as_slice::<T>()?);
    let cost = shape.output_row() as f64 * (shape.window() as f64 * 0.2 + 2.0);
    ctx.parallel_chunks(result.as_mut_slice::<T>()?, shape.output_row(), cost, |rows, part| {
        let mut found = Positions::<T>::new(shape.depth);
        for (row, to_row) in rows.zip(part.chunks_exact_mut(shape.output_row())) {
            let (image_at, row) = (row / shape.rows.output, row % shape.rows.output);
            let image = &source[image_at * shape.image()..(image_at + 1) * shape.image()];
            let gradient = &gradient[image_at * shape.image()..(image_at + 1) * shape.image()];
            for (col, to) in to_row.chunks_exact_mut(shape.depth).enumerate() {
                if found.find(shape, image, row, col) {
                    for (channel, to) in to.iter_mut().enumerate() {
                        *to = gradient[pixel_at(shape, row, col, found.at[channel]) * shape.depth + channel];
                    }
                }
            }
        }
    });
    Ok(result)
}

/// `MaxPoolGradWithArgmax(input, grad, argmax)`: each gradient goes to the position that `MaxPoolWithArgmax` gave.
struct MaxPoolGradWithArgmax {
    attrs: PoolAttrs,
    batch_in_index: bool,
}

impl MaxPoolGradWithArgmax {
    fn new(c: &Construction<'_>) -> Result<MaxPoolGradWithArgmax> {
        let batch_in_index = c.attrs().bool("include_batch_in_index")?;
        Ok(MaxPoolGradWithArgmax { attrs: PoolAttrs::new(c, "stride")?, batch_in_index })
    }
}

impl Kernel for MaxPoolGradWithArgmax {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, gradient, positions) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let shape = self.attrs.shape(ctx, input.shape(), None)?;
        let expected = shape.output()?;
        check_shape(gradient, "grad", &expected)?;
        check_shape(positions, "argmax", &expected)?;
        let positions = positions.to_i64_vec()?;
        let to = Shape::from_dims(&[shape.batch, shape.rows.input, shape.cols.input, shape.depth])?;
        let result = dispatch!(self.attrs.dtype, T in reals => {
            to_positions::<T>(gradient, &positions, to, &shape, self.batch_in_index)
        })
        .ok_or_else(|| unsupported(self.attrs.dtype))??;
        ctx.set_output(0, result)
    }
}

fn to_positions<T: Ordered>(
    gradient: &Tensor,
    positions: &[i64],
    to: Shape,
    shape: &PoolShape,
    batch_in_index: bool,
) -> Result<Tensor> {
    let mut result = Tensor::zeros(T::DTYPE, to)?;
    let total = result.num_elements();
    let target = result.as_mut_slice::<T>()?;
    let per_image = positions.len().checked_div(shape.batch).unwrap_or(0);
    for (number, (&gradient, &position)) in gradient.as_slice::<T>()?.iter().zip(positions).enumerate() {
        let offset = if batch_in_index { 0 } else { number / per_image.max(1) * shape.image() };
        let at = usize::try_from(position).ok().and_then(|p| p.checked_add(offset));
        match at.and_then(|at| target.get_mut(at)) {
            Some(to) => *to = to.plus(gradient),
            None => {
                return Err(invalid_argument!("Invalid backprop index: {position}, must be in range [0, {total})"));
            }
        }
    }
    Ok(result)
}

pub(super) fn register(registry: &mut Registry) {
    let positions = &[DType::Int32, DType::Int64];
    registry.op("MaxPool").types("T", DType::REALS).kernel(MaxPool::new);
    registry.op("MaxPoolV2").types("T", DType::REALS).kernel(MaxPool::with_size_inputs);
    registry
        .op("MaxPoolWithArgmax")
        .types("T", DType::REALS)
        .types("Targmax", positions)
        .kernel(MaxPoolWithArgmax::new);
    registry
        .op("MaxPoolGradWithArgmax")
        .types("T", DType::REALS)
        .types("Targmax", &[DType::Int64])
        .kernel(MaxPoolGradWithArgmax::new);
    for (op, sizes) in [("MaxPoolGrad", None), ("MaxPoolGradV2", Some(3))] {
        registry.op(op).types("T", DType::REALS).kernel(move |c: &Construction<'_>| {
            let attrs = PoolAttrs::new(c, "strides")?.channels_last("MaxPoolingGradOp")?.spatial("MaxPoolingGrad")?;
            Ok(MaxPoolGrad { attrs, sizes })
        });
    }
    for (op, sizes) in [("MaxPoolGradGrad", None), ("MaxPoolGradGradV2", Some(3))] {
        registry.op(op).types("T", DType::REALS).kernel(move |c: &Construction<'_>| {
            let attrs = PoolAttrs::new(c, "strides")?.channels_last("MaxPoolingGradGradOp")?;
            Ok(MaxPoolGradGrad { attrs: attrs.spatial("MaxPoolGradGrad")?, sizes })
        });
    }
}
