//! `ImageProjectiveTransformV2` and `V3`: each place of the output is looked up where a projective transform takes it.

use crate::real::Real;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, bf16, dispatch, f16, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    let types = [DType::BFloat16, DType::Double, DType::Float, DType::Half, DType::Int32, DType::Int64, DType::UInt8];
    for op in ["ImageProjectiveTransformV2", "ImageProjectiveTransformV3"] {
        registry.op(op).types("dtype", &types).kernel(Transform::new);
    }
}

/// What is beyond the edges of an image.
#[derive(Clone, Copy)]
enum Beyond {
    Reflected,
    Wrapped,
    Constant,
    Nearest,
}

impl Beyond {
    /// The place within the image that stands for a place along an axis.
    fn place(self, at: f32, length: usize) -> f32 {
        let size = length as f32;
        let clamped = |at: f32| at.max(0.0).min(size - 1.0);
        // A part of the line that repeats is left out as often as it goes into the distance.
        let times = |distance: f32, period: f32| (distance / period) as i64 as f32;
        match self {
            Beyond::Constant => at,
            Beyond::Nearest => clamped(at),
            _ if length <= 1 && (at < 0.0 || at > size - 1.0) => clamped(0.0),
            Beyond::Reflected if at < 0.0 => {
                let period = 2.0 * size;
                let at = period * times(-at, period) + at;
                clamped(if at < -size { at + period } else { -at - 1.0 })
            }
            Beyond::Reflected if at > size - 1.0 => {
                let period = 2.0 * size;
                let at = at - period * times(at, period);
                clamped(if at >= size { period - at - 1.0 } else { at })
            }
            Beyond::Wrapped if at < 0.0 => clamped(at + size * (times(-at, size - 1.0) + 1.0)),
            Beyond::Wrapped if at > size - 1.0 => clamped(at - size * times(at, size - 1.0)),
            Beyond::Reflected | Beyond::Wrapped => clamped(at),
        }
    }
}

struct Transform {
    bilinear: bool,
    beyond: Beyond,
}

impl Transform {
    fn new(c: &Construction<'_>) -> Result<Transform> {
        let bilinear = match c.attrs().str("interpolation")? {
            "NEAREST" => false,
            "BILINEAR" => true,
            other => {
                return Err(invalid_argument!("Invalid interpolation {other}. Supported types: NEAREST, BILINEAR"));
            }
        };
        let beyond = match c.attrs().str("fill_mode")? {
            "REFLECT" => Beyond::Reflected,
            "WRAP" => Beyond::Wrapped,
            "CONSTANT" => Beyond::Constant,
            "NEAREST" => Beyond::Nearest,
            other => {
                return Err(invalid_argument!(
                    "Invalid mode {other}. Supported types: REFLECT, WRAP, CONSTANT, NEAREST"
                ));
            }
        };
        Ok(Transform { bilinear, beyond })
    }
}

impl Kernel for Transform {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (images, transforms, size) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let &[batch, ..] = images.shape().dims() else {
            return Err(invalid_argument!("Input images must have rank 4"));
        };
        if images.shape().rank() != 4 {
            return Err(invalid_argument!("Input images must have rank 4"));
        }
        let fits = matches!(*transforms.shape().dims(), [count, 8] if count == batch || count == 1);
        if !fits {
            return Err(invalid_argument!("Input transform should be num_images x 8 or 1 x 8"));
        }
        if !size.shape().is_vector() {
            return Err(invalid_argument!("output shape must be 1-dimensional{}", size.shape()));
        }
        let &[height, width] = size.as_slice::<i32>()? else {
            return Err(invalid_argument!("output shape must have two elements{}", size.shape()));
        };
        if height <= 0 || width <= 0 {
            return Err(invalid_argument!("output dimensions must be positive"));
        }
        let fill = if ctx.num_inputs() > 3 {
            let fill = ctx.input(3)?;
            if !fill.shape().is_scalar() {
                return Err(invalid_argument!("fill_value must be a scalar{}", fill.shape()));
            }
            fill.scalar_value::<f32>()?
        } else {
            0.0
        };
        let shape = images.shape().with_dim(1, height as usize)?.with_dim(2, width as usize)?;
        let mut output = Tensor::alloc(images.dtype(), shape)?;
        let done = dispatch!(images.dtype(), T in [u8, i32, i64, f16, bf16, f32, f64] => {
            let transforms = transforms.as_slice::<f32>()?;
            self.run::<T>(ctx, images, transforms, output.as_mut_slice()?, (width as usize, T::from_f32(fill)))
        });
        done.unwrap_or_else(|| Err(internal!("images cannot be of type {}", images.dtype())))?;
        ctx.set_output(0, output)
    }
}

/// One image being looked at.
struct Image<'a, T> {
    pixels: &'a [T],
    height: usize,
    width: usize,
    depth: usize,
    fill: T,
}

impl<T: Real> Image<'_, T> {
    fn pixel(&self, y: f32, x: f32, channel: usize) -> T {
        let within = |at: f32, length: usize| (at >= 0.0 && at < length as f32).then_some(at as usize);
        match (within(y, self.height), within(x, self.width)) {
            (Some(y), Some(x)) => self.pixels[(y * self.width + x) * self.depth + channel],
            _ => self.fill,
        }
    }

    fn bilinear(&self, y: f32, x: f32, channel: usize) -> T {
        let (top, left) = (y.floor(), x.floor());
        let (bottom, right) = (top + 1.0, left + 1.0);
        let row = |at: f32| {
            (right - x) * self.pixel(at, left, channel).to_f32() + (x - left) * self.pixel(at, right, channel).to_f32()
        };
        T::from_f32((bottom - y) * row(top) + (y - top) * row(bottom))
    }
}

impl Transform {
    fn run<T: Real>(
        &self,
        ctx: &Context<'_>,
        images: &Tensor,
        transforms: &[f32],
        output: &mut [T],
        (columns, fill): (usize, T),
    ) -> Result<()> {
        let &[batch, height, width, depth] = images.shape().dims() else { return Ok(()) };
        let pixels = images.as_slice::<T>()?;
        let (size, run) = (height * width * depth, columns * depth);
        if output.is_empty() {
            return Ok(());
        }
        let rows = output.len() / run / batch;
        ctx.parallel_chunks(output, run, 20.0 * run as f64, |range, part| {
            for (row, out) in range.zip(part.chunks_exact_mut(run)) {
                let (b, y) = (row / rows, row % rows);
                let t = &transforms[if transforms.len() == 8 { 0 } else { b * 8 }..][..8];
                let image = Image { pixels: &pixels[b * size..(b + 1) * size], height, width, depth, fill };
                for (x, out) in out.chunks_exact_mut(depth).enumerate() {
                    self.place(&image, t, (y as f32, x as f32), out);
                }
            }
        });
        Ok(())
    }

    /// One place of the output, with all channels.
    fn place<T: Real>(&self, image: &Image<'_, T>, t: &[f32], (y, x): (f32, f32), out: &mut [T]) {
        let projection = t[6] * x + t[7] * y + 1.0;
        if projection == 0.0 {
            // A place at infinity is outside of the image.
            out.fill(image.fill);
            return;
        }
        let source_x = self.beyond.place((t[0] * x + t[1] * y + t[2]) / projection, image.width);
        let source_y = self.beyond.place((t[3] * x + t[4] * y + t[5]) / projection, image.height);
        for (channel, out) in out.iter_mut().enumerate() {
            *out = if self.bilinear {
                image.bilinear(source_y, source_x, channel)
            } else {
                image.pixel(source_y.round(), source_x.round(), channel)
            };
        }
    }
}
