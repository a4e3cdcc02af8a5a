//! Local response normalisation across channels, and its gradient.

use crate::simd::{Real, vectorized};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Status, Tensor, dispatch, f16, internal, invalid_argument};

const TYPES: &[DType] = &[DType::Float, DType::Half];

/// The attributes of both ops.
struct Lrn {
    dtype: DType,
    radius: usize,
    bias: f32,
    alpha: f32,
    beta: f32,
}

impl Lrn {
    fn new(c: &Construction<'_>) -> Result<Lrn> {
        let radius = c.attrs().int("depth_radius")?;
        let Some(radius) = usize::try_from(radius).ok().filter(|&r| i32::try_from(r).is_ok()) else {
            return Err(invalid_argument!("depth_radius = {radius} larger than int max"));
        };
        let number = |name| c.attrs().float(name);
        Ok(Lrn { dtype: c.dtype("T")?, radius, bias: number("bias")?, alpha: number("alpha")?, beta: number("beta")? })
    }

    fn unsupported(&self) -> Status {
        internal!("no normalisation of {}", self.dtype)
    }

    fn cost(&self, depth: usize) -> f64 {
        depth as f64 * (20.0 + self.radius.min(depth) as f64 * 2.0)
    }

    /// `norm^-beta`, without the general power for the values of beta that are in use.
    fn scale(&self, norm: f32) -> f32 {
        if self.beta == 1.0 {
            1.0 / norm
        } else if self.beta == 0.5 {
            1.0 / norm.sqrt()
        } else {
            norm.powf(-self.beta)
        }
    }
}

vectorized! {
    /// `bias + alpha * sum of squares` of the channels within the radius, for every channel of a pixel.
    fn norms_of[](lrn: &Lrn, pixel: &[f32], norms: &mut [f32]) {
        let depth = pixel.len();
        for (channel, norm) in norms.iter_mut().enumerate() {
            let near = &pixel[channel.saturating_sub(lrn.radius)..(channel + lrn.radius + 1).min(depth)];
            *norm = lrn.bias + lrn.alpha * near.iter().map(|v| v * v).sum::<f32>();
        }
    }
}

/// `LRN(input)`: `x * (bias + alpha * sum over |i| <= radius of x[c + i]^2)^-beta`.
struct Forward(Lrn);

impl Kernel for Forward {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        if input.shape().rank() != 4 {
            return Err(invalid_argument!("in must be 4-dimensional"));
        }
        check_size(input.shape(), self.0.radius)?;
        let output = dispatch!(self.0.dtype, T in [f32, f16] => forward::<T>(ctx, &self.0, input))
            .ok_or_else(|| self.0.unsupported())??;
        ctx.set_output(0, output)
    }
}

fn check_size(shape: &Shape, radius: usize) -> Result<()> {
    if i32::try_from(shape.num_elements()).is_err() {
        return Err(invalid_argument!("argument to LRN too large"));
    }
    let depth = shape.dim(3);
    if i32::try_from(depth.saturating_add(radius)).is_err() {
        return Err(invalid_argument!("depth {depth} + depth_radius {radius} exceeds int max."));
    }
    Ok(())
}

fn forward<T: Real<Wide = f32>>(ctx: &Context<'_>, lrn: &Lrn, input: &Tensor) -> Result<Tensor> {
    let mut output = Tensor::alloc(T::DTYPE, input.shape().clone())?;
    let source = input.as_slice::<T>()?;
    let depth = input.shape().dim(3);
    ctx.parallel_chunks(output.as_mut_slice::<T>()?, depth, lrn.cost(depth), |pixels, part| {
        let (mut pixel, mut norms) = (vec![0f32; depth], vec![0f32; depth]);
        for (at, to) in pixels.zip(part.chunks_exact_mut(depth)) {
            let from = &source[at * depth..(at + 1) * depth];
            pixel.iter_mut().zip(from).for_each(|(p, f)| *p = f.widen());
            norms_of(lrn, &pixel, &mut norms);
            for ((to, &x), &norm) in to.iter_mut().zip(&pixel).zip(&norms) {
                *to = T::narrow(x * lrn.scale(norm));
            }
        }
    });
    Ok(output)
}

/// `LRNGrad(input_grads, input_image, output_image)`: the gradient of `LRN`'s input.
struct Gradient(Lrn);

impl Kernel for Gradient {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (gradient, input, output) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if gradient.shape().rank() != 4 || input.shape().rank() != 4 {
            return Err(invalid_argument!("inputs must be 4-dimensional"));
        }
        if input.shape() != gradient.shape() || output.shape() != gradient.shape() {
            return Err(invalid_argument!("input_grads, input_image, and out_image should have the same shape"));
        }
        check_size(input.shape(), self.0.radius)?;
        let result = dispatch!(self.0.dtype, T in [f32, f16] => backward::<T>(ctx, &self.0, gradient, input, output))
            .ok_or_else(|| self.0.unsupported())??;
        ctx.set_output(0, result)
    }
}

fn backward<T: Real<Wide = f32>>(
    ctx: &Context<'_>,
    lrn: &Lrn,
    gradient: &Tensor,
    input: &Tensor,
    output: &Tensor,
) -> Result<Tensor> {
    let mut result = Tensor::alloc(T::DTYPE, input.shape().clone())?;
    let (gradient, source, forward) = (gradient.as_slice::<T>()?, input.as_slice::<T>()?, output.as_slice::<T>()?);
    let depth = input.shape().dim(3);
    ctx.parallel_chunks(result.as_mut_slice::<T>()?, depth, lrn.cost(depth) * 2.0, |pixels, part| {
        let (mut pixel, mut norms, mut ratios) = (vec![0f32; depth], vec![0f32; depth], vec![0f32; depth]);
        for (at, to) in pixels.zip(part.chunks_exact_mut(depth)) {
            let here = at * depth..(at + 1) * depth;
            pixel.iter_mut().zip(&source[here.clone()]).for_each(|(p, f)| *p = f.widen());
            norms_of(lrn, &pixel, &mut norms);
            let (gradient, forward) = (&gradient[here.clone()], &forward[here]);
            for (channel, ratio) in ratios.iter_mut().enumerate() {
                *ratio = gradient[channel].widen() * forward[channel].widen() / norms[channel];
            }
            for (channel, to) in to.iter_mut().enumerate() {
                let near = &ratios[channel.saturating_sub(lrn.radius)..(channel + lrn.radius + 1).min(depth)];
                let through = -2.0 * lrn.alpha * lrn.beta * pixel[channel] * near.iter().sum::<f32>();
                *to = T::narrow(gradient[channel].widen() * lrn.scale(norms[channel]) + through);
            }
        }
    });
    Ok(result)
}

pub(crate) fn register(registry: &mut Registry) {
    registry.op("LRN").types("T", TYPES).kernel(|c: &Construction<'_>| Lrn::new(c).map(Forward));
    registry.op("LRNGrad").types("T", TYPES).kernel(|c: &Construction<'_>| Lrn::new(c).map(Gradient));
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::testing::OpRun;

    fn run(op: OpRun, inputs: Vec<Tensor>) -> Result<Tensor> {
        let mut registry = Registry::new();
        register(&mut registry);
        op.run(&registry, inputs).map(|mut outputs| outputs.remove(0))
    }

    fn pixel(values: &[f32]) -> Tensor {
        Tensor::from_slice(Shape::from_dims(&[1, 1, 1, values.len()]).unwrap(), values).unwrap()
    }

    fn assert_near(tensor: &Tensor, expected: &[f32]) {
        for (got, want) in tensor.as_slice::<f32>().unwrap().iter().zip(expected) {
            assert!((got - want).abs() <= 1e-6 * want.abs().max(0.1), "{got} for {want}");
        }
    }

    /// Values of TensorFlow 2.21.
    #[test]
    fn values_and_gradients() {
        let image = pixel(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let lrn = |name| OpRun::new(name).attr_type("T", DType::Float).attr_int("depth_radius", 2);
        let expected =
            [0.0, 0.258_198_9, 0.359_210_6, 0.400_891_84, 0.419_313_94, 0.428_746_46, 0.532_413_9, 0.664_410_6];
        assert_near(&run(lrn("LRN"), vec![image.clone()]).unwrap(), &expected);
        let op = OpRun::new("LRN").attr_int("depth_radius", 1).attr_float("beta", 1.0).attr_float("alpha", 0.1);
        let first = run(op.attr_float("bias", 2.0), vec![image.clone()]).unwrap();
        assert_near(
            &first,
            &[0.0, 0.4, 0.588_235_3, 0.612_244_84, 0.571_428_54, 0.515_463_9, 0.461_538_5, 0.666_666_7],
        );
        let ones = pixel(&[1.0; 8]);
        let gradient = run(lrn("LRNGrad"), vec![ones.clone(), image.clone(), image.clone()]).unwrap();
        let expected = [0.408_248_3, 0.073_444_66, -0.277_815_22, -0.662_794_3];
        assert_near(&gradient, &expected);
        assert!(run(lrn("LRN").attr_int("depth_radius", -2), vec![image]).is_err());
        assert!(run(lrn("LRNGrad"), vec![ones.clone(), pixel(&[1.0; 7]), ones]).is_err());
    }
}
