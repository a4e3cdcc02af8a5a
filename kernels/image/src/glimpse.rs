//! `ExtractGlimpse` and `ExtractGlimpseV2`: a window of each image, filled up with noise where it reaches over the edge.

use graphmill_runtime::philox::{Philox, Words};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, Tensor, invalid_argument};
use std::hash::{BuildHasher, RandomState};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ExtractGlimpse").kernel(|c| Glimpse::new(c, true));
    registry.op("ExtractGlimpseV2").kernel(|c| Glimpse::new(c, false));
}

#[derive(Clone, Copy)]
enum Noise {
    Uniform,
    Gaussian,
    Zero,
}

struct Glimpse {
    /// The first version centres windows on the offsets always; the second one only if they are normalised and centred.
    first_version: bool,
    normalized: bool,
    centered: bool,
    noise: Noise,
}

impl Glimpse {
    fn new(c: &Construction<'_>, first_version: bool) -> Result<Glimpse> {
        let uniform = c.attrs().bool("uniform_noise")?;
        let noise = match (c.attrs().str("noise")?, uniform) {
            ("uniform", _) | ("", true) => Noise::Uniform,
            (_, true) => {
                return Err(invalid_argument!("The uniform_noise and noise could not be specified at the same time"));
            }
            ("gaussian" | "", false) => Noise::Gaussian,
            ("zero", false) => Noise::Zero,
            (other, false) => {
                return Err(invalid_argument!("The noise could only be uniform, gaussian, or zero, got{other}"));
            }
        };
        let (normalized, centered) = (c.attrs().bool("normalized")?, c.attrs().bool("centered")?);
        Ok(Glimpse { first_version, normalized, centered, noise })
    }

    /// Where a window starts along an axis.
    fn start(&self, offset: f32, image: usize, window: usize) -> i64 {
        let (size, window) = (image as f32, window as f32);
        let mut at = offset;
        if self.normalized {
            at *= size;
        }
        if self.centered {
            at = if self.first_version || self.normalized { at / 2.0 + size / 2.0 } else { at + size / 2.0 };
        }
        if self.first_version || (self.normalized && self.centered) {
            at -= window / 2.0;
        }
        at as i64
    }
}

/// The part of a window that lies within an image along an axis.
struct Overlap {
    from: usize,
    to: usize,
    length: usize,
    /// Whether the window reaches, or touches, an edge.
    partial: bool,
}

impl Overlap {
    fn new(start: i64, image: usize, window: usize) -> Overlap {
        let signed = window as i64;
        let (from, to, length, partial) = if start < 0 {
            let length = signed.saturating_add(start).max(0) as usize;
            (0, window - length, length, true)
        } else if start.saturating_add(signed) >= image as i64 {
            let from = usize::try_from(start).unwrap_or(usize::MAX).min(image);
            (from, 0, image - from, true)
        } else {
            (start as usize, 0, window, false)
        };
        Overlap { from, to, length: length.min(image), partial }
    }
}

impl Kernel for Glimpse {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (images, size, offsets) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let &[batch, height, width, depth] = images.shape().dims() else {
            return Err(invalid_argument!(
                "input must be 4-dimensional (batch_size, height, width, depth){}",
                images.shape()
            ));
        };
        let &[rows, columns] = (match size.shape().is_vector() {
            true => size.as_slice::<i32>()?,
            false => &[],
        }) else {
            return Err(invalid_argument!("input must be a vector of size 2 (height, width){}", size.shape()));
        };
        if rows < 0 || columns < 0 {
            return Err(invalid_argument!("Dimension {} must be >= 0", rows.min(columns)));
        }
        let (rows, columns) = (rows as usize, columns as usize);
        let shape = images.shape().with_dim(1, rows)?.with_dim(2, columns)?;
        if !offsets.shape().is_matrix() {
            return Err(invalid_argument!("input must be a matrix{}", offsets.shape()));
        }
        if offsets.shape().dim(0) != batch {
            return Err(invalid_argument!("first dimension should be batch{}", offsets.shape()));
        }
        if offsets.shape().dim(1) != 2 {
            return Err(invalid_argument!("second dimension should be of size 2 (y,x){}", offsets.shape()));
        }
        let mut output = Tensor::zeros(images.dtype(), shape)?;
        if output.num_elements() == 0 {
            return ctx.set_output(0, output);
        }
        let (source, target) = (images.as_slice::<f32>()?, output.as_mut_slice::<f32>()?);
        let image_size = height * width * depth;
        for (b, (target, offset)) in
            target.chunks_exact_mut(rows * columns * depth).zip(offsets.as_slice::<f32>()?.chunks_exact(2)).enumerate()
        {
            let image = &source[b * image_size..(b + 1) * image_size];
            let y = Overlap::new(self.start(offset[0], height, rows), height, rows);
            let x = Overlap::new(self.start(offset[1], width, columns), width, columns);
            if (y.partial || x.partial) && !image.is_empty() {
                fill(self.noise, image, target, depth);
            }
            let run = x.length * depth;
            for row in 0..y.length {
                let from = ((y.from + row) * width + x.from) * depth;
                let to = ((y.to + row) * columns + x.to) * depth;
                target[to..to + run].copy_from_slice(&image[from..from + run]);
            }
        }
        ctx.set_output(0, output)
    }
}

/// Fills a window with noise in the range of its image.
fn fill(noise: Noise, image: &[f32], target: &mut [f32], depth: usize) {
    let seeds = RandomState::new();
    let mut words = Words::new(Philox::from_seeds(seeds.hash_one(0), seeds.hash_one(1)));
    let mut uniform = || (words.next() >> 8) as f32 / (1 << 24) as f32;
    let bounds = |values: &mut dyn Iterator<Item = f32>| {
        values.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    };
    match noise {
        Noise::Zero => {}
        Noise::Uniform => {
            let (low, high) = bounds(&mut image.iter().copied());
            target.iter_mut().for_each(|value| *value = low + uniform() * (high - low));
        }
        Noise::Gaussian => {
            for channel in 0..depth {
                let values = || image.iter().skip(channel).step_by(depth).copied();
                let count = (image.len() / depth) as f32;
                let mean = values().sum::<f32>() / count;
                let deviation = (values().map(|value| (value - mean).powi(2)).sum::<f32>() / count).sqrt();
                let (low, high) = bounds(&mut values());
                for value in target.iter_mut().skip(channel).step_by(depth) {
                    // Box and Muller's transform.
                    let (radius, angle) = ((-2.0 * (1.0 - uniform()).ln()).sqrt(), uniform() * std::f32::consts::TAU);
                    *value = (mean + deviation * radius * angle.cos()).min(high).max(low);
                }
            }
        }
    }
}
