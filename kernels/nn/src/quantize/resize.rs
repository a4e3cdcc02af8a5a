//! `QuantizedResizeBilinear`.

use super::range::{Range, set_range};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, QInt32, QUInt8, Result, Shape, dispatch, internal, invalid_argument};

/// Nanoseconds for an element.
const COST: f64 = 3.0;

/// Between which two elements of a line an element of the result lies, and how far from the first.
#[derive(Clone, Copy)]
struct Place {
    lower: usize,
    upper: usize,
    lerp: f32,
}

/// An element that can be interpolated: levels of bytes in fixed-point numbers of 7 bits, those of 32 bits in such of 30.
trait Interpolated: Element {
    /// Between the corners top left, top right, bottom left, bottom right.
    fn between(corners: [Self; 4], x: f32, y: f32) -> Self;
}

impl Interpolated for f32 {
    fn between([top_left, top_right, bottom_left, bottom_right]: [f32; 4], x: f32, y: f32) -> f32 {
        let top = top_left + (top_right - top_left) * x;
        let bottom = bottom_left + (bottom_right - bottom_left) * x;
        top + (bottom - top) * y
    }
}

/// Interpolation with numbers of so many bits behind the point.
fn fixed_point<const BITS: u32>([top_left, top_right, bottom_left, bottom_right]: [i64; 4], x: f32, y: f32) -> i64 {
    let one = 1i64 << BITS;
    let (x, y) = ((x * one as f32) as i64, (y * one as f32) as i64);
    let top = top_left * one + (top_right - top_left).wrapping_mul(x);
    let bottom = bottom_left * one + (bottom_right - bottom_left).wrapping_mul(x);
    let value = top.wrapping_add((bottom.wrapping_sub(top) / one).wrapping_mul(y));
    value.wrapping_add(one / 2) / one
}

impl Interpolated for QUInt8 {
    fn between(corners: [QUInt8; 4], x: f32, y: f32) -> QUInt8 {
        QUInt8(fixed_point::<7>(corners.map(|c| i64::from(c.0)), x, y) as u8)
    }
}

impl Interpolated for QInt32 {
    fn between(corners: [QInt32; 4], x: f32, y: f32) -> QInt32 {
        // TensorFlow's levels of 32 bits go through single precision here.
        QInt32(fixed_point::<30>(corners.map(|c| (c.0 as f32) as i64), x, y) as i32)
    }
}

/// `QuantizedResizeBilinear(images, size, min, max) -> (resized_images, out_min, out_max)`.
struct Resize {
    align_corners: bool,
    half_pixels: bool,
}

impl Resize {
    fn new(c: &Construction<'_>) -> Result<Resize> {
        let attrs = c.attrs();
        Ok(Resize { align_corners: attrs.bool("align_corners")?, half_pixels: attrs.bool("half_pixel_centers")? })
    }

    fn places(&self, from: usize, to: usize) -> Vec<Place> {
        let scale =
            if self.align_corners && to > 1 { (from - 1) as f32 / (to - 1) as f32 } else { from as f32 / to as f32 };
        let place = |at: usize| {
            let position = if self.half_pixels { (at as f32 + 0.5) * scale - 0.5 } else { at as f32 * scale };
            let floor = position.floor();
            // The cast takes what is below the first element to it.
            let upper = (position.ceil() as usize).min(from - 1);
            Place { lower: (floor as usize).min(upper), upper, lerp: position - floor }
        };
        (0..to).map(place).collect()
    }

    fn run<T: Interpolated>(&self, ctx: &mut Context<'_>, shape: Shape) -> Result<()> {
        let input = ctx.input(0)?;
        let from = input.shape();
        let (rows, columns, depth) = (from.dim(1), from.dim(2), from.dim(3));
        if *from == shape {
            let same = input.clone();
            return ctx.set_output(0, same);
        }
        if shape.num_elements() == 0 {
            return ctx.set_output(0, ctx.alloc_output(0, shape)?);
        }
        let (across, down) = (self.places(columns, shape.dim(2)), self.places(rows, shape.dim(1)));
        let x = input.as_slice::<T>()?;
        let line = columns * depth;
        let mut output = ctx.alloc_output(0, shape.clone())?;
        let row = shape.dim(2) * depth;
        ctx.parallel_chunks(output.as_mut_slice::<T>()?, row.max(1), row as f64 * COST, |range, part| {
            for (index, to_row) in range.zip(part.chunks_exact_mut(row.max(1))) {
                let (image, y) = (index / down.len(), down[index % down.len()]);
                let image = &x[image * rows * line..(image + 1) * rows * line];
                for (x, to) in across.iter().zip(to_row.chunks_exact_mut(depth)) {
                    for (channel, to) in to.iter_mut().enumerate() {
                        let at = |row: usize, column: usize| image[row * line + column * depth + channel];
                        let top = [at(y.lower, x.lower), at(y.lower, x.upper)];
                        let corners = [top[0], top[1], at(y.upper, x.lower), at(y.upper, x.upper)];
                        *to = T::between(corners, x.lerp, y.lerp);
                    }
                }
            }
        });
        ctx.set_output(0, output)
    }
}

impl Kernel for Resize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let mut range = [0.0; 2];
        for (i, name) in ["min", "max"].into_iter().enumerate() {
            range[i] = match ctx.input(2 + i)?.as_slice::<f32>()? {
                [value] => *value,
                _ => return Err(invalid_argument!("{name} must be a scalar")),
            };
        }
        let (images, size) = (ctx.input(0)?.shape(), ctx.input(1)?);
        if images.rank() != 4 {
            return Err(invalid_argument!("input must be 4-dimensional{images}"));
        }
        if !size.shape().is_vector() {
            return Err(invalid_argument!("shape_t must be 1-dimensional{}", size.shape()));
        }
        let [height, width] = size.to_i64_vec()?[..] else {
            return Err(invalid_argument!("shape_t must have two elements{}", size.shape()));
        };
        if height <= 0 || width <= 0 {
            return Err(invalid_argument!("output dimensions must be positive"));
        }
        if images.dim(3) == 0 {
            return Err(invalid_argument!("image must have at least one channel"));
        }
        if images.dim(1) == 0 || images.dim(2) == 0 {
            return Err(invalid_argument!("input image must be of non-zero size"));
        }
        let shape = Shape::new(&[images.dim(0) as i64, height, width, images.dim(3) as i64])?;
        dispatch!(ctx.input(0)?.dtype(), T in [f32, QInt32, QUInt8] => self.run::<T>(ctx, shape))
            .ok_or_else(|| internal!("no resizing of this type"))??;
        set_range(ctx, Range { low: range[0], high: range[1] })
    }
}

pub(super) fn register(registry: &mut Registry) {
    let types = &[DType::Float, DType::QInt32, DType::QUInt8];
    registry.op("QuantizedResizeBilinear").types("T", types).kernel(Resize::new);
}
