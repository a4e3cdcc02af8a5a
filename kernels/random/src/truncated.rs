//! `ParameterizedTruncatedNormal` and `StatelessParameterizedTruncatedNormal`: normal values between bounds, by rejection.
//!
//! The values of one parameter, and of parameters in a row, come from one stretch of the stream; TensorFlow deals them to threads,
//! each with a stretch of its own, so that its numbers depend on the threads where there are many.

use crate::distribution::Real;
use crate::fill::shape_input;
use crate::stateless::stream_of_seed;
use graphmill_runtime::philox::{Generator, Philox};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Broadcast, DType, Element, Result, Shape, Tensor, dispatch, f16, internal, invalid_argument};
use num_traits::{Float, NumCast};

/// Proposals in a row that may be rejected.
const MOST_PROPOSALS: usize = 1000;
/// Deviations between mean and bound from which a normal proposal is the better one.
const FAR: f64 = 1.3;
/// Values of a stretch where all share their parameters.
const STRETCH: usize = 100;

/// A stream from which whole groups are drawn.
struct Groups<T> {
    stream: Philox,
    values: [T; 4],
}

impl<T: Real> Groups<T> {
    fn draw(&mut self, fill: fn(Philox, &mut [T])) -> &[T] {
        let group = &mut self.values[..T::GROUP];
        fill(self.stream, group);
        self.stream = self.stream.at(1);
        group
    }
}

/// Mean, standard deviation, and bounds.
#[derive(Clone, Copy)]
struct Parameters<T> {
    mean: T,
    deviation: T,
    low: T,
    high: T,
}

fn number<T: NumCast + Float>(value: f64) -> T {
    T::from(value).unwrap_or_else(T::nan)
}

impl<T: Real + Float> Parameters<T> {
    /// Fills `out` from a stream, and gives the stream behind what was used.
    fn fill(mut self, stream: Philox, out: &mut [&mut T]) -> Result<Philox> {
        let zero = T::zero();
        let finite = self.low.is_finite() || self.high.is_finite();
        if !(self.deviation > zero && self.low < self.high && finite) {
            return Err(invalid_argument!("Invalid parameters"));
        }
        if (self.low.is_infinite() && self.low < zero) || self.high < self.mean {
            std::mem::swap(&mut self.low, &mut self.high);
            self.deviation = -self.deviation;
        }
        let low = (self.low - self.mean) / self.deviation;
        let high = (self.high - self.mean) / self.deviation;
        let (two, four) = (number::<T>(2.0), number::<T>(4.0));
        let root = (low * low + four).sqrt();
        let cutoff = two * (number::<T>(0.5) + (low * (low - root)) / four).exp() / (low + root);
        let range = high - low;
        let far = number::<T>(FAR);
        let mut groups = Groups { stream, values: [zero; 4] };
        let mut filled = 0;
        let mut rejected = 0;
        let place = |out: &mut [&mut T], filled: &mut usize, z: T| {
            *out[*filled] = z * self.deviation + self.mean;
            *filled += 1;
        };
        if (low < -far && high >= zero) || (high > far && low <= zero) {
            while filled < out.len() {
                for &z in groups.draw(T::normal) {
                    if z >= low && z <= high {
                        place(out, &mut filled, z);
                        rejected = 0;
                        if filled == out.len() {
                            break;
                        }
                    } else {
                        rejected += 1;
                        if rejected > MOST_PROPOSALS {
                            return Err(failed("randn", ""));
                        }
                    }
                }
            }
        } else if range < cutoff {
            let plus = if low < zero { zero } else { low * low };
            while filled < out.len() {
                let mut proposals = [zero; 4];
                let size = T::GROUP;
                for (z, &u) in proposals.iter_mut().zip(groups.draw(T::uniform)) {
                    *z = u * range + low;
                }
                let chances = groups.draw(T::uniform);
                for i in 0..size {
                    let z = proposals[i];
                    if chances[i] <= ((plus - z * z) / two).exp() {
                        place(out, &mut filled, z);
                        rejected = 0;
                        if filled == out.len() {
                            break;
                        }
                    } else {
                        rejected += 1;
                        if rejected >= MOST_PROPOSALS {
                            return Err(failed("uniform", " "));
                        }
                    }
                }
            }
        } else {
            let alpha = (low + (low * low + four).sqrt()) / two;
            while filled < out.len() {
                for pair in groups.draw(T::uniform).chunks_exact(2) {
                    let z = -pair[0].ln() / alpha + low;
                    let x = if low < alpha { alpha - z } else { low - alpha };
                    if pair[1] <= (-x * x / two).exp() && z < high {
                        place(out, &mut filled, z);
                        rejected = 0;
                        if filled == out.len() {
                            break;
                        }
                    } else {
                        rejected += 1;
                        if rejected >= MOST_PROPOSALS {
                            return Err(failed("exponential distribution", ""));
                        }
                    }
                }
            }
        }
        Ok(groups.stream)
    }
}

fn failed(sampler: &str, space: &str) -> graphmill_tensor::Status {
    internal!("TruncatedNormal {sampler} rejection sampler failed to {space}accept a sample.")
}

/// `ParameterizedTruncatedNormal(shape, means, stdevs, minvals, maxvals)`: parameters are scalars, or one for each row.
struct ByRow(Generator);

impl ByRow {
    fn run<T: Real + Float>(&self, parameters: [&Tensor; 4], out: &mut Tensor, rows: usize) -> Result<()> {
        let mut slices: [&[T]; 4] = [&[]; 4];
        for (slice, tensor) in slices.iter_mut().zip(parameters) {
            *slice = tensor.as_slice::<T>()?;
        }
        let total = out.num_elements();
        let [means, deviations, ..] = parameters.map(|p| p.shape());
        let one = |shape: &Shape| shape.is_scalar() || shape.dim(0) == 1;
        let shared = one(means) && one(deviations) && parameters[2..].iter().all(|p| p.shape().is_scalar());
        let (batches, each) =
            if shared { (total.div_ceil(STRETCH), STRETCH) } else { (rows, total.checked_div(rows).unwrap_or(0)) };
        let names = ["means", "stddevs", "minvals", "maxvals"];
        for (name, tensor) in names.iter().zip(parameters) {
            let shape = tensor.shape();
            if !shared && !one(shape) && shape.dim(0) != rows {
                return Err(invalid_argument!("Input {name} should have length 1 or shape[0], got shape: {shape}"));
            }
        }
        let draws = (batches as u64 * 2 * MOST_PROPOSALS as u64).wrapping_mul(each as u64 + 3) / 4;
        let mut stream = self.0.take(draws);
        for (batch, part) in out.as_mut_slice::<T>()?.chunks_mut(each.max(1)).enumerate() {
            let at = |slice: &[T]| slice.get(if slice.len() == 1 { 0 } else { batch }).copied();
            let [Some(mean), Some(deviation), Some(low), Some(high)] = slices.map(at) else {
                return Err(invalid_argument!("Invalid parameters"));
            };
            let mut places: Vec<&mut T> = part.iter_mut().collect();
            stream = Parameters { mean, deviation, low, high }.fill(stream, &mut places)?;
        }
        Ok(())
    }
}

impl Kernel for ByRow {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let sizes = ctx.input(0)?;
        if !sizes.shape().is_vector() {
            return Err(invalid_argument!("Input shape should be a vector, got shape: {}", sizes.shape()));
        }
        if sizes.num_elements() == 0 {
            return Err(invalid_argument!("Shape tensor must not be empty, got {}", sizes.shape()));
        }
        let shape = shape_input(ctx, 0)?;
        let rows = shape.dim(0);
        let mut out = ctx.alloc_output(0, shape)?;
        let parameters = [ctx.input(1)?, ctx.input(2)?, ctx.input(3)?, ctx.input(4)?];
        for (name, tensor) in ["means", "stddevs", "minvals", "maxvals"].iter().zip(parameters) {
            if tensor.shape().rank() > 1 {
                let shape = tensor.shape();
                return Err(invalid_argument!("Input {name} should be a scalar or vector, got shape: {shape}"));
            }
        }
        let dtype = out.dtype();
        dispatch!(dtype, T in [f32, f64, f16] => self.run::<T>(parameters, &mut out, rows))
            .ok_or_else(|| internal!("no truncated normal distribution of {dtype}"))??;
        ctx.set_output(0, out)
    }
}

/// `StatelessParameterizedTruncatedNormal(shape, seed, means, stddevs, minvals, maxvals)`: parameters broadcast, and the shape
/// ends with theirs.
struct Broadcasting;

impl Broadcasting {
    fn run<T: Real + Float + Element>(
        parameters: [&Tensor; 4],
        plan: &Broadcast,
        mut stream: Philox,
        out: &mut Tensor,
    ) -> Result<()> {
        let count = plan.shape().num_elements();
        let mut all: Vec<[T; 4]> = vec![[T::zero(); 4]; count];
        for (p, tensor) in parameters.into_iter().enumerate() {
            let values = tensor.as_slice::<T>()?;
            plan.for_each_run(0..count, |run, at| {
                for (k, target) in all[run].iter_mut().enumerate() {
                    target[p] = values[at[p] + k * plan.run_stride(p)];
                }
            });
        }
        let mut places: Vec<Vec<&mut T>> = (0..count).map(|_| Vec::new()).collect();
        for (at, value) in out.as_mut_slice::<T>()?.iter_mut().enumerate() {
            places[at % count].push(value);
        }
        for ([mean, deviation, low, high], places) in all.into_iter().zip(&mut places) {
            stream = Parameters { mean, deviation, low, high }.fill(stream, places)?;
        }
        Ok(())
    }
}

impl Kernel for Broadcasting {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let stream = stream_of_seed(ctx.input(1)?)?;
        let parameters = [ctx.input(2)?, ctx.input(3)?, ctx.input(4)?, ctx.input(5)?];
        let shapes = parameters.map(|p| p.shape());
        let plan = Broadcast::of(&shapes).map_err(|error| {
            let [a, b, c, d] = shapes;
            error.with_message(format!(
                "means, stddevs, minvals, maxvals must have compatible batch dimensions: {a} vs. {b} vs. {c} vs. {d}"
            ))
        })?;
        let shape = shape_input(ctx, 0)?;
        if !shape.dims().ends_with(plan.shape().dims()) {
            return Err(invalid_argument!("Shape passed in must end with broadcasted shape."));
        }
        let mut out = ctx.alloc_output(0, shape)?;
        let dtype = out.dtype();
        if out.num_elements() > 0 {
            dispatch!(dtype, T in [f32, f64, f16] => Self::run::<T>(parameters, &plan, stream, &mut out))
                .ok_or_else(|| internal!("no truncated normal distribution of {dtype}"))??;
        }
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(registry: &mut Registry) {
    let types = [DType::Double, DType::Float, DType::Half];
    registry
        .op("ParameterizedTruncatedNormal")
        .types("dtype", &types)
        .kernel(|c: &Construction<'_>| Ok(ByRow(Generator::new(c)?)));
    registry.op("StatelessParameterizedTruncatedNormal").types("dtype", &types).kernel(|_| Ok(Broadcasting));
}
