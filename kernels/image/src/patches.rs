//! Patches of images as channels.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument, out_of_range, unimplemented_op};

pub(crate) fn register(registry: &mut Registry) {
    let complex = [&crate::real::REALS[..], &[DType::Complex64, DType::Complex128]].concat();
    registry.op("ExtractImagePatches").types("T", &complex).kernel(|c| Patches::new(c, 2));
    registry.op("ExtractVolumePatches").types("T", &crate::real::REALS).kernel(|c| Patches::new(c, 3));
}

/// Puts the patch around each place, in steps, into the channels there.
struct Patches {
    sizes: Vec<usize>,
    strides: Vec<usize>,
    rates: Vec<usize>,
    same: bool,
}

impl Patches {
    fn new(c: &Construction<'_>, axes: usize) -> Result<Patches> {
        let spatial = |name: &str| {
            let values = c.attrs().int_list(name)?;
            let [first, inner @ .., last] = values else {
                return Err(invalid_argument!("{name} must have {} elements", axes + 2));
            };
            if inner.len() != axes {
                return Err(invalid_argument!("{name} must have {} elements", axes + 2));
            }
            if *first != 1 || *last != 1 {
                return Err(unimplemented_op!("Only support {name} across space."));
            }
            let inner: Option<Vec<usize>> = inner
                .iter()
                .map(|&v| i32::try_from(v).ok().and_then(|v| usize::try_from(v).ok()).filter(|&v| v >= 1))
                .collect();
            inner.ok_or_else(|| out_of_range!("{name} is out of range."))
        };
        let rates = if axes == 2 { spatial("rates")? } else { vec![1; axes] };
        let same = c.attrs().str("padding")? == "SAME";
        Ok(Patches { sizes: spatial("ksizes")?, strides: spatial("strides")?, rates, same })
    }

    /// Along one axis: how many places there are, and how far the first patch reaches over the edge.
    fn window(&self, axis: usize, input: usize) -> Result<(usize, usize)> {
        let (size, stride) = (self.sizes[axis], self.strides[axis]);
        let reach = (size - 1).saturating_mul(self.rates[axis]).saturating_add(1);
        if self.same {
            let places = input.div_ceil(stride);
            let needed = places.saturating_sub(1).saturating_mul(stride).saturating_add(reach);
            return Ok((places, needed.saturating_sub(input) / 2));
        }
        match (input + stride).checked_sub(reach) {
            Some(room) => Ok((room / stride, 0)),
            None => Err(invalid_argument!(
                "Computed output size would be negative: {} [input_size: {input}, effective_filter_size: {reach}, stride: {stride}]",
                (input as i64 + stride as i64 - reach as i64).div_euclid(stride as i64)
            )),
        }
    }
}

impl Kernel for Patches {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let axes = self.sizes.len();
        let dims = input.shape().dims();
        if dims.len() != axes + 2 {
            return Err(invalid_argument!("input must be {}-dimensional{}", axes + 2, input.shape()));
        }
        let (batch, depth) = (dims[0], dims[axes + 1]);
        let space = &dims[1..=axes];
        let mut shape = vec![batch];
        let mut offsets = Vec::with_capacity(axes);
        for (axis, &size) in space.iter().enumerate() {
            let (places, before) = self.window(axis, size)?;
            shape.push(places);
            offsets.push(before);
        }
        let taps = self.sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        let channels = taps.and_then(|taps| taps.checked_mul(depth));
        let channels = channels.ok_or_else(|| invalid_argument!("patches are too large"))?;
        shape.push(channels);
        let mut output = Tensor::zeros(input.dtype(), Shape::from_dims(&shape)?)?;
        if output.num_elements() > 0 {
            self.fill(input, space, depth, &shape, &offsets, &mut output)?;
        }
        ctx.set_output(0, output)
    }
}

impl Patches {
    fn fill(
        &self,
        input: &Tensor,
        space: &[usize],
        depth: usize,
        shape: &[usize],
        offsets: &[usize],
        output: &mut Tensor,
    ) -> Result<()> {
        let pixels: usize = space.iter().product();
        let places = &shape[1..shape.len() - 1];
        let mut to = 0;
        for b in 0..shape[0] {
            let mut place = vec![0; space.len()];
            loop {
                let mut tap = vec![0; space.len()];
                loop {
                    // Where the tap is in the image, if it is within.
                    let mut at = Some(0usize);
                    for axis in 0..space.len() {
                        let position = place[axis] * self.strides[axis] + tap[axis] * self.rates[axis];
                        let position = position.checked_sub(offsets[axis]).filter(|&p| p < space[axis]);
                        at = at.zip(position).map(|(at, position)| at * space[axis] + position);
                    }
                    if let Some(at) = at {
                        let from = (b * pixels + at) * depth;
                        output.copy_elements(to, input, from..from + depth)?;
                    }
                    to += depth;
                    if !advance(&mut tap, &self.sizes) {
                        break;
                    }
                }
                if !advance(&mut place, places) {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The next position in row-major order; false behind the last one.
fn advance(position: &mut [usize], sizes: &[usize]) -> bool {
    for (at, &size) in position.iter_mut().zip(sizes).rev() {
        *at += 1;
        if *at < size {
            return true;
        }
        *at = 0;
    }
    false
}
