//! Two-dimensional convolution and its gradients.

mod attrs;
mod depthwise;
mod direct;
mod general;
mod product;
mod tile;
mod volume;

#[cfg(test)]
mod tests;

use crate::convert::{channels_last, channels_second, narrowed, widened};
use crate::window::DataFormat;
use attrs::{ConvAttrs, ConvShape, sizes_shape};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, bf16, dispatch, internal};
pub(crate) use product::{Scalar, View};

/// Runs one of the three computations in the element type that it is done in.
trait Compute: Scalar {
    fn forward(
        ctx: &Context<'_>,
        shape: &ConvShape,
        input: &[Self],
        filter: &[Self],
        output: &mut [Self],
    ) -> Result<()>;
    fn input_gradient(
        ctx: &Context<'_>,
        shape: &ConvShape,
        filter: &[Self],
        out_backprop: &[Self],
        gradient: &mut [Self],
    ) -> Result<()>;
    fn filter_gradient(
        ctx: &Context<'_>,
        shape: &ConvShape,
        input: &[Self],
        out_backprop: &[Self],
        gradient: &mut [Self],
    ) -> Result<()>;
}

/// Implements [`Compute`] by patches.
macro_rules! by_patches {
    ($($t:ty),*) => {$(
        impl Compute for $t {
            fn forward(
                ctx: &Context<'_>, shape: &ConvShape, input: &[$t], filter: &[$t], output: &mut [$t],
            ) -> Result<()> {
                general::forward(ctx, shape, input, filter, output)
            }
            fn input_gradient(
                ctx: &Context<'_>, shape: &ConvShape, filter: &[$t], out_backprop: &[$t], gradient: &mut [$t],
            ) -> Result<()> {
                general::input_gradient(ctx, shape, filter, out_backprop, gradient)
            }
            fn filter_gradient(
                ctx: &Context<'_>, shape: &ConvShape, input: &[$t], out_backprop: &[$t], gradient: &mut [$t],
            ) -> Result<()> {
                general::filter_gradient(ctx, shape, input, out_backprop, gradient)
            }
        }
    )*};
}

by_patches!(f64, i32);

impl Compute for f32 {
    fn forward(ctx: &Context<'_>, shape: &ConvShape, input: &[f32], filter: &[f32], output: &mut [f32]) -> Result<()> {
        match direct::forward(ctx, shape, input, filter, output) {
            Some(done) => done,
            None => general::forward(ctx, shape, input, filter, output),
        }
    }

    fn input_gradient(
        ctx: &Context<'_>,
        shape: &ConvShape,
        filter: &[f32],
        out_backprop: &[f32],
        gradient: &mut [f32],
    ) -> Result<()> {
        match direct::input_gradient(ctx, shape, filter, out_backprop, gradient) {
            Some(done) => done,
            None => general::input_gradient(ctx, shape, filter, out_backprop, gradient),
        }
    }

    fn filter_gradient(
        ctx: &Context<'_>,
        shape: &ConvShape,
        input: &[f32],
        out_backprop: &[f32],
        gradient: &mut [f32],
    ) -> Result<()> {
        match direct::filter_gradient(ctx, shape, input, out_backprop, gradient) {
            Some(done) => done,
            None => general::filter_gradient(ctx, shape, input, out_backprop, gradient),
        }
    }
}

/// Which computation, and what it computes from: two tensors, channels last, in the type it is done in.
#[derive(Clone, Copy)]
enum Step {
    Forward,
    InputGradient,
    FilterGradient,
}

fn run<T: Compute>(
    ctx: &Context<'_>,
    step: Step,
    shape: &ConvShape,
    a: &Tensor,
    b: &Tensor,
    to: Shape,
) -> Result<Tensor> {
    let mut result = Tensor::alloc(T::DTYPE, to)?;
    let (a, b, target) = (a.as_slice::<T>()?, b.as_slice::<T>()?, result.as_mut_slice::<T>()?);
    match step {
        Step::Forward if depthwise::suits(shape) => depthwise::forward(ctx, shape, a, b, target),
        Step::InputGradient if depthwise::suits(shape) => depthwise::input_gradient(ctx, shape, a, b, target),
        Step::FilterGradient if depthwise::suits(shape) => depthwise::filter_gradient(ctx, shape, a, b, target)?,
        Step::Forward => T::forward(ctx, shape, a, b, target)?,
        Step::InputGradient => T::input_gradient(ctx, shape, a, b, target)?,
        Step::FilterGradient => T::filter_gradient(ctx, shape, a, b, target)?,
    }
    Ok(result)
}

/// Does a computation in any element type and data format: `images` says which of the two inputs are images, so that a format
/// with the channels second has to be undone for them, `to` is the result's shape with the channels last.
fn compute(
    ctx: &Context<'_>,
    attrs: &ConvAttrs,
    step: Step,
    shape: &ConvShape,
    inputs: [&Tensor; 2],
    to: Shape,
) -> Result<Tensor> {
    let images = match step {
        Step::Forward => [true, false],
        Step::InputGradient => [false, true],
        Step::FilterGradient => [true, true],
    };
    let mut prepared = [inputs[0].clone(), inputs[1].clone()];
    for (tensor, is_image) in prepared.iter_mut().zip(images) {
        if is_image && attrs.format != DataFormat::Nhwc {
            *tensor = match attrs.dtype {
                DType::Float => channels_last::<f32>(ctx, tensor)?,
                _ => channels_last::<bf16>(ctx, tensor)?,
            };
        }
        if matches!(attrs.dtype, DType::Half | DType::BFloat16) {
            *tensor = widened(ctx, tensor)?;
        }
    }
    let [a, b] = &prepared;
    let result = match attrs.dtype {
        DType::Half | DType::BFloat16 => narrowed(ctx, &run::<f32>(ctx, step, shape, a, b, to)?, attrs.dtype)?,
        other => dispatch!(other, T in [f32, f64, i32] => run::<T>(ctx, step, shape, a, b, to))
            .ok_or_else(|| internal!("no convolution of {other}"))??,
    };
    match (step, attrs.format, attrs.dtype) {
        (Step::FilterGradient, ..) | (_, DataFormat::Nhwc, _) => Ok(result),
        (_, _, DType::Float) => channels_second::<f32>(ctx, &result),
        _ => channels_second::<bf16>(ctx, &result),
    }
}

/// `Conv2D(input, filter) -> output`: `output[n, y, x, o] = sum over i, j, c of input[n, y*s + i*d - p, x*s + j*d - p, c] *
/// filter[i, j, c, o]`. The filter may see a fraction of the input's channels: then channels are convolved in groups. Half
/// precision is summed in single. Channels may come second in `float` and `bfloat16`.
struct Conv2D(ConvAttrs);

impl Kernel for Conv2D {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, filter) = (ctx.input(0)?, ctx.input(1)?);
        let shape = self.0.forward_shape(input.shape(), filter.shape())?;
        let to = Shape::from_dims(&[shape.batch, shape.rows.output, shape.cols.output, shape.out_depth])?;
        let output = compute(ctx, &self.0, Step::Forward, &shape, [input, filter], to)?;
        ctx.set_output(0, output)
    }
}

/// `Conv2DBackpropInput(input_sizes, filter, out_backprop) -> output`: the gradient of `Conv2D`'s input.
struct Conv2DBackpropInput(ConvAttrs);

impl Kernel for Conv2DBackpropInput {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (filter, out_backprop) = (ctx.input(1)?, ctx.input(2)?);
        let input = self.0.input_shape(ctx.input(0)?, filter.shape(), out_backprop.shape())?;
        let label = "Conv2DCustomBackpropInput";
        let shape = self.0.gradient_shape(label, &input, filter.shape(), out_backprop.shape())?;
        let to = Shape::from_dims(&[shape.batch, shape.rows.input, shape.cols.input, shape.in_depth])?;
        let output = compute(ctx, &self.0, Step::InputGradient, &shape, [filter, out_backprop], to)?;
        ctx.set_output(0, output)
    }
}

/// `Conv2DBackpropFilter(input, filter_sizes, out_backprop) -> output`: the gradient of `Conv2D`'s filter.
struct Conv2DBackpropFilter(ConvAttrs);

impl Kernel for Conv2DBackpropFilter {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, out_backprop) = (ctx.input(0)?, ctx.input(2)?);
        let label = "Conv2DCustomBackpropFilter";
        let filter = sizes_shape(&format!("{label}: filter_sizes"), ctx.input(1)?)?;
        let shape = self.0.gradient_shape(label, input.shape(), &filter, out_backprop.shape())?;
        let output = compute(ctx, &self.0, Step::FilterGradient, &shape, [input, out_backprop], filter)?;
        ctx.set_output(0, output)
    }
}

/// `DepthwiseConv2dNative(input, filter) -> output`: each channel convolved with filters of its own: `output[n, y, x, c * m + q] =
/// sum over i, j of input[n, y*s + i*d - p, x*s + j*d - p, c] * filter[i, j, c, q]` with `m` filters a channel.
struct DepthwiseConv2d(ConvAttrs);

impl Kernel for DepthwiseConv2d {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, filter) = (ctx.input(0)?, ctx.input(1)?);
        let shape = self.0.depthwise_shape(input.shape(), filter.shape())?;
        let to = Shape::from_dims(&[shape.batch, shape.rows.output, shape.cols.output, shape.out_depth])?;
        let output = compute(ctx, &self.0, Step::Forward, &shape, [input, filter], to)?;
        ctx.set_output(0, output)
    }
}

/// `DepthwiseConv2dNativeBackpropInput(input_sizes, filter, out_backprop) -> output`: the gradient of the input.
struct DepthwiseBackpropInput(ConvAttrs);

impl Kernel for DepthwiseBackpropInput {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (filter, out_backprop) = (ctx.input(1)?, ctx.input(2)?);
        let label = "DepthwiseConv2DBackpropInput";
        let input = sizes_shape("Conv2DBackpropInput: input_sizes", ctx.input(0)?)?;
        let shape = self.0.depthwise_gradient_shape(label, &input, filter.shape(), out_backprop.shape())?;
        let to = Shape::from_dims(&[shape.batch, shape.rows.input, shape.cols.input, shape.in_depth])?;
        let output = compute(ctx, &self.0, Step::InputGradient, &shape, [filter, out_backprop], to)?;
        ctx.set_output(0, output)
    }
}

/// `DepthwiseConv2dNativeBackpropFilter(input, filter_sizes, out_backprop) -> output`: the gradient of the filter.
struct DepthwiseBackpropFilter(ConvAttrs);

impl Kernel for DepthwiseBackpropFilter {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, out_backprop) = (ctx.input(0)?, ctx.input(2)?);
        let label = "DepthwiseConv2DBackpropFilter";
        let filter = sizes_shape("Conv2DBackpropFilter: filter_sizes", ctx.input(1)?)?;
        let shape = self.0.depthwise_gradient_shape(label, input.shape(), &filter, out_backprop.shape())?;
        let output = compute(ctx, &self.0, Step::FilterGradient, &shape, [input, out_backprop], filter)?;
        ctx.set_output(0, output)
    }
}

pub(crate) fn register(registry: &mut Registry) {
    volume::register(registry);
    let floats = &[DType::BFloat16, DType::Double, DType::Float, DType::Half];
    let all = &[DType::BFloat16, DType::Double, DType::Float, DType::Half, DType::Int32];
    registry.op("Conv2D").types("T", all).kernel(|c: &Construction<'_>| ConvAttrs::forward(c).map(Conv2D));
    registry
        .op("Conv2DBackpropInput")
        .types("T", all)
        .kernel(|c: &Construction<'_>| ConvAttrs::input_gradient(c).map(Conv2DBackpropInput));
    registry
        .op("Conv2DBackpropFilter")
        .types("T", floats)
        .kernel(|c: &Construction<'_>| ConvAttrs::filter_gradient(c).map(Conv2DBackpropFilter));
    registry
        .op("DepthwiseConv2dNative")
        .types("T", floats)
        .kernel(|c: &Construction<'_>| ConvAttrs::depthwise(c).map(DepthwiseConv2d));
    registry
        .op("DepthwiseConv2dNativeBackpropInput")
        .types("T", floats)
        .kernel(|c: &Construction<'_>| ConvAttrs::depthwise(c).map(DepthwiseBackpropInput));
    registry
        .op("DepthwiseConv2dNativeBackpropFilter")
        .types("T", floats)
        .kernel(|c: &Construction<'_>| ConvAttrs::depthwise(c).map(DepthwiseBackpropFilter));
}
