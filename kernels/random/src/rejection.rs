//! Distributions whose values take an unknown number of draws: gamma, Poisson and binomial. Each value has a stretch of the
//! stream to itself, so that it does not depend on the others.

use crate::distribution::Real;
use crate::fill::shape_input;
use crate::stateless::{stream_of_key, stream_of_seed};
use crate::variable::{PHILOX_STATE, state_variable};
use graphmill_runtime::philox::{DRAWS_PER_OUTPUT, Generator, Philox};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    Broadcast, DType, Element, Result, Shape, Tensor, bf16, dispatch, f16, internal, invalid_argument,
};

/// Draws set aside for a value that is found by inverting the binomial distribution.
const INVERSION_DRAWS: u64 = 42;
/// Proposals after which a value is given up: parameters for which TensorFlow would go on for ever.
const MOST_PROPOSALS: usize = 100_000;

/// A type of parameters and values.
pub(crate) trait Value: Element {
    /// The largest finite value.
    const HIGHEST: f64;
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
    /// `self * other`, rounded to this type.
    fn times(self, other: Self) -> Self;
    /// `1 - self`, rounded to this type.
    fn complement(self) -> Self;
}

macro_rules! values {
    ($($t:ty: $highest:expr, $to:expr, $from:expr;)*) => {$(
        impl Value for $t {
            const HIGHEST: f64 = $highest;
            fn to_f64(self) -> f64 {
                let to: fn($t) -> f64 = $to;
                to(self)
            }
            fn from_f64(value: f64) -> $t {
                let from: fn(f64) -> $t = $from;
                from(value)
            }
            fn times(self, other: $t) -> $t {
                Self::from_f64(self.to_f64() * other.to_f64())
            }
            fn complement(self) -> $t {
                Self::from_f64(1.0 - self.to_f64())
            }
        }
    )*};
}

values! {
    f32: f32::MAX as f64, f64::from, |v| v as f32;
    f64: f64::MAX, |v| v, |v| v;
    f16: 65504.0, |v| f64::from(v.to_f32()), |v| f16::from_f32(v as f32);
    bf16: 3.3895313892515355e38, |v| f64::from(v.to_f32()), |v| bf16::from_f32(v as f32);
    i32: i32::MAX as f64, f64::from, |v| v as i32;
    i64: i64::MAX as f64, |v| v as f64, |v| v as i64;
}

/// The pairs of doubles that draws give, each pair from its end.
struct Pairs {
    values: [f64; 2],
    left: usize,
}

impl Pairs {
    fn new() -> Pairs {
        Pairs { values: [0.0; 2], left: 0 }
    }

    fn next(&mut self, stream: &mut Philox, draw: fn(Philox, &mut [f64])) -> f64 {
        if self.left == 0 {
            draw(*stream, &mut self.values);
            *stream = stream.at(1);
            self.left = 2;
        }
        self.left -= 1;
        self.values[self.left]
    }
}

/// A gamma distributed value of scale 1 (Marsaglia and Tsang 2000).
fn gamma(alpha: f64, mut stream: Philox) -> f64 {
    let (mut normals, mut uniforms) = (Pairs::new(), Pairs::new());
    if alpha == 1.0 {
        return -(-uniforms.next(&mut stream, f64::uniform)).ln_1p();
    }
    let below_one = alpha < 1.0;
    let d = alpha + if below_one { 2.0 / 3.0 } else { -1.0 / 3.0 };
    let c = 1.0 / 3.0 / d.sqrt();
    for _ in 0..MOST_PROPOSALS {
        let x = normals.next(&mut stream, f64::normal);
        let mut v = 1.0 + c * x;
        if v <= 0.0 {
            continue;
        }
        v = v * v * v;
        let u = uniforms.next(&mut stream, f64::uniform);
        if u < 1.0 - 0.0331 * (x * x) * (x * x) || u.ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
            let value = d * v;
            if below_one {
                return value * uniforms.next(&mut stream, f64::uniform).powf(1.0 / alpha);
            }
            return value;
        }
    }
    f64::NAN
}

/// A Poisson distributed value up to `highest`: by Knuth's method below 10, else by Hörmann's transformed rejection (1993).
fn poisson(rate: f64, highest: f64, mut stream: Philox) -> f64 {
    let mut uniforms = Pairs::new();
    let mut uniform = || uniforms.next(&mut stream, f64::uniform);
    if rate.is_nan() || rate == f64::INFINITY {
        return rate;
    }
    if rate < 10.0 {
        let limit = (-rate).exp();
        let (mut product, mut x) = (1.0, 0.0);
        loop {
            product *= uniform();
            if product <= limit {
                return x;
            }
            x += 1.0;
        }
    }
    let log_rate = rate.ln();
    let b = 0.931 + 2.53 * rate.sqrt();
    let a = -0.059 + 0.02483 * b;
    let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    for _ in 0..MOST_PROPOSALS {
        let u = uniform() - 0.5;
        let v = uniform();
        let shifted = 0.5 - u.abs();
        let k = ((2.0 * a / shifted + b) * u + rate + 0.43).floor();
        if k > highest {
            continue;
        }
        if shifted >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2.0) {
            return k;
        }
        if k < 0.0 || (shifted < 0.013 && v > shifted) {
            continue;
        }
        let s = (v * inverse_alpha / (a / (shifted * shifted) + b)).ln();
        if s <= -rate + k * log_rate - libm::lgamma(k + 1.0) {
            return k;
        }
    }
    highest
}

/// What Stirling's formula for the logarithm of a factorial leaves out.
fn stirling_tail(k: f64) -> f64 {
    const TAILS: [f64; 10] = [
        0.0810614667953272,
        0.0413406959554092,
        0.0276779256849983,
        0.02079067210376509,
        0.0166446911898211,
        0.0138761288230707,
        0.0118967099458917,
        0.0104112652619720,
        0.00925546218271273,
        0.00833056343336287,
    ];
    if k <= 9.0 {
        return TAILS.get(k as usize).copied().unwrap_or(0.0);
    }
    let square = (k + 1.0) * (k + 1.0);
    (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / square) / square) / (k + 1.0)
}

/// A binomial value by counting geometric ones, for a small mean.
fn binomial_by_inversion(count: f64, probability: f64, mut stream: Philox) -> f64 {
    let mut uniforms = Pairs::new();
    let (mut sum, mut found) = (0.0, 0.0);
    for _ in 0..MOST_PROPOSALS {
        let u = uniforms.next(&mut stream, f64::uniform);
        sum += (u.ln() / (-probability).ln_1p()).ceil();
        if sum > count || sum.is_nan() {
            break;
        }
        found += 1.0;
    }
    found
}

/// A binomial value by Hörmann's transformed rejection (1993), for a mean of 10 and more.
fn binomial_by_rejection(count: f64, probability: f64, mut stream: Philox) -> f64 {
    let mut uniforms = Pairs::new();
    let deviation = (count * probability * (1.0 - probability)).sqrt();
    let b = 1.15 + 2.53 * deviation;
    let a = -0.0873 + 0.0248 * b + 0.01 * probability;
    let c = count * probability + 0.5;
    let v_r = 0.92 - 4.2 / b;
    let r = probability / (1.0 - probability);
    let alpha = (2.83 + 5.1 / b) * deviation;
    let m = ((count + 1.0) * probability).floor();
    for _ in 0..MOST_PROPOSALS {
        let u = uniforms.next(&mut stream, f64::uniform) - 0.5;
        let v = uniforms.next(&mut stream, f64::uniform);
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + c).floor();
        if us >= 0.07 && v <= v_r {
            return k;
        }
        if k < 0.0 || k > count {
            continue;
        }
        let v = (v * alpha / (a / (us * us) + b)).ln();
        let bound = (m + 0.5) * ((m + 1.0) / (r * (count - m + 1.0))).ln()
            + (count + 1.0) * ((count - m + 1.0) / (count - k + 1.0)).ln()
            + (k + 0.5) * (r * (count - k + 1.0) / (k + 1.0)).ln()
            + stirling_tail(m)
            + stirling_tail(count - m)
            - stirling_tail(k)
            - stirling_tail(count - k);
        if v <= bound {
            return k;
        }
    }
    f64::NAN
}

fn binomial<T: Value>(count: T, probability: T, stream: Philox, index: u64) -> f64 {
    let (n, p) = (count.to_f64(), probability.to_f64());
    let sample = |p: T| {
        if count.times(p).to_f64() >= 10.0 {
            binomial_by_rejection(n, p.to_f64(), stream.at(index.wrapping_mul(DRAWS_PER_OUTPUT)))
        } else {
            binomial_by_inversion(n, p.to_f64(), stream.at(index.wrapping_mul(INVERSION_DRAWS)))
        }
    };
    if n.is_nan() || p.is_nan() {
        f64::NAN
    } else if n <= 0.0 || p <= 0.0 {
        0.0
    } else if p >= 1.0 {
        n
    } else if p <= 0.5 {
        sample(probability)
    } else {
        n - sample(probability.complement())
    }
}

/// Fills `out`, in which the values of all parameters lie side by side, by what `value` gives for a parameter and the number of
/// the value counted parameter by parameter.
fn fill_by_parameter<T: Element>(
    ctx: &Context<'_>,
    out: &mut [T],
    parameters: usize,
    cost: f64,
    value: impl Fn(usize, u64) -> T + Sync,
) {
    let each = out.len() / parameters.max(1);
    ctx.parallel_chunks(out, 1, cost, |range, part| {
        for (at, out) in range.zip(part) {
            let (sample, parameter) = (at / parameters, at % parameters);
            *out = value(parameter, (parameter * each + sample) as u64);
        }
    });
}

/// Where the stream comes from, and the position of the parameters among the inputs.
enum Stream {
    /// The kernel's own; the values' shape is that of the samples with the parameters' behind.
    Own(Generator),
    /// A seed among the inputs.
    Seed,
    /// Key, counter and algorithm among the inputs.
    Key,
}

impl Stream {
    fn parameters(&self) -> usize {
        match self {
            Stream::Own(_) => 1,
            Stream::Seed => 2,
            Stream::Key => 4,
        }
    }

    /// The shape of the values, given the parameters'.
    fn shape(&self, ctx: &Context<'_>, parameters: &Shape) -> Result<Shape> {
        let shape = shape_input(ctx, 0)?;
        if let Stream::Own(_) = self {
            return Shape::from_dims(&[shape.dims(), parameters.dims()].concat());
        }
        if !shape.dims().ends_with(parameters.dims()) {
            return Err(invalid_argument!("Shape passed in must end with broadcasted shape."));
        }
        Ok(shape)
    }

    fn take(&self, ctx: &Context<'_>, values: usize) -> Result<Philox> {
        match self {
            Stream::Own(generator) => Ok(generator.take((values as u64).wrapping_mul(DRAWS_PER_OUTPUT))),
            Stream::Seed => stream_of_seed(ctx.input(1)?),
            Stream::Key => stream_of_key(ctx.input(1)?, ctx.input(2)?, ctx.input(3)?),
        }
    }
}

struct RandomGamma(Stream);

impl Kernel for RandomGamma {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let alpha = ctx.input(self.0.parameters())?;
        let shape = self.0.shape(ctx, alpha.shape())?;
        if let Stream::Seed = self.0 {
            stream_of_seed(ctx.input(1)?)?;
        }
        let mut out = ctx.alloc_output(0, shape)?;
        let parameters = alpha.num_elements();
        if out.num_elements() > 0 {
            let stream = self.0.take(ctx, out.num_elements())?;
            dispatch!(alpha.dtype(), T in [f32, f64, f16, bf16] => {
                let alpha = alpha.as_slice::<T>()?;
                fill_by_parameter(ctx, out.as_mut_slice::<T>()?, parameters, 100.0, |parameter, index| {
                    let stream = stream.at(index.wrapping_mul(DRAWS_PER_OUTPUT));
                    T::from_f64(gamma(alpha[parameter].to_f64(), stream))
                });
            })
            .ok_or_else(|| internal!("no gamma distribution of {}", alpha.dtype()))?;
        }
        ctx.set_output(0, out)
    }
}

struct RandomPoisson(Stream);

impl RandomPoisson {
    fn fill<R: Value, U: Value>(ctx: &Context<'_>, stream: Philox, rates: &Tensor, out: &mut Tensor) -> Result<()> {
        let rates = rates.as_slice::<R>()?;
        fill_by_parameter(ctx, out.as_mut_slice::<U>()?, rates.len(), 100.0, |parameter, index| {
            let stream = stream.at(index.wrapping_mul(DRAWS_PER_OUTPUT));
            U::from_f64(poisson(rates[parameter].to_f64(), U::HIGHEST, stream))
        });
        Ok(())
    }
}

impl Kernel for RandomPoisson {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let rates = ctx.input(self.0.parameters())?;
        let shape = self.0.shape(ctx, rates.shape())?;
        let mut out = ctx.alloc_output(0, shape)?;
        if out.num_elements() > 0 {
            let stream = self.0.take(ctx, out.num_elements())?;
            let done = dispatch!(rates.dtype(), R in [f32, f64, f16, i32, i64] => {
                dispatch!(out.dtype(), U in [f32, f64, f16, i32, i64] => {
                    Self::fill::<R, U>(ctx, stream, rates, &mut out)
                })
            });
            done.flatten().ok_or_else(|| internal!("no Poisson distribution of these types"))??;
        }
        ctx.set_output(0, out)
    }
}

/// `StatelessRandomBinomial(shape, seed, counts, probs)`, or with a variable as state
/// `StatefulRandomBinomial(resource, algorithm, shape, counts, probs)`.
struct RandomBinomial {
    stateful: bool,
}

impl RandomBinomial {
    fn fill<T: Value, U: Value>(
        ctx: &Context<'_>,
        stream: Philox,
        parameters: [&Tensor; 2],
        plan: &Broadcast,
        out: &mut Tensor,
    ) -> Result<()> {
        let (counts, probabilities) = (parameters[0].as_slice::<T>()?, parameters[1].as_slice::<T>()?);
        let mut pairs = Vec::with_capacity(plan.shape().num_elements());
        plan.for_each_run(0..plan.shape().num_elements(), |run, at| {
            let step = |i: usize| plan.run_stride(i);
            pairs.extend((0..run.len()).map(|k| (counts[at[0] + k * step(0)], probabilities[at[1] + k * step(1)])));
        });
        fill_by_parameter(ctx, out.as_mut_slice::<U>()?, pairs.len(), 100.0, |parameter, index| {
            let (count, probability) = pairs[parameter];
            U::from_f64(binomial(count, probability, stream, index))
        });
        Ok(())
    }
}

impl Kernel for RandomBinomial {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (shape_at, first) = if self.stateful { (2, 3) } else { (0, 2) };
        let parameters = [ctx.input(first)?, ctx.input(first + 1)?];
        let (a, b) = (parameters[0].shape(), parameters[1].shape());
        let plan = Broadcast::new(a, b).map_err(|error| {
            error.with_message(format!("counts and probs must have compatible batch dimensions: {a} vs. {b}"))
        })?;
        let shape = shape_input(ctx, shape_at)?;
        if !shape.dims().ends_with(plan.shape().dims()) {
            return Err(invalid_argument!("Shape passed in must end with broadcasted shape."));
        }
        let mut out = ctx.alloc_output(0, shape)?;
        let batches = plan.shape().num_elements() as u64;
        let samples = (out.num_elements() as u64).checked_div(batches).unwrap_or(0);
        let stream = if self.stateful {
            let size = (batches * 2 * 100).wrapping_mul(samples + 3) / 4;
            state_variable(ctx, 0)?.advance(ctx.input(1)?, PHILOX_STATE, size)?
        } else {
            stream_of_seed(ctx.input(1)?)?
        };
        if out.num_elements() > 0 {
            let done = dispatch!(parameters[0].dtype(), T in [f32, f64, f16] => {
                dispatch!(out.dtype(), U in [f32, f64, f16, i32, i64] => {
                    Self::fill::<T, U>(ctx, stream, parameters, &plan, &mut out)
                })
            });
            done.flatten().ok_or_else(|| internal!("no binomial distribution of these types"))??;
        }
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(registry: &mut Registry) {
    let values = [DType::Double, DType::Float, DType::Half, DType::Int32, DType::Int64];
    let floats = [DType::Double, DType::Float, DType::Half];
    let own = |c: &Construction<'_>| Ok(Stream::Own(Generator::new(c)?));
    registry.op("RandomGamma").types("T", DType::FLOATS).kernel(move |c| Ok(RandomGamma(own(c)?)));
    registry.op("StatelessRandomGammaV2").types("dtype", DType::FLOATS).kernel(|_| Ok(RandomGamma(Stream::Seed)));
    registry.op("StatelessRandomGammaV3").types("dtype", DType::FLOATS).kernel(|_| Ok(RandomGamma(Stream::Key)));
    registry.op("RandomPoisson").types("dtype", &floats).kernel(move |c| Ok(RandomPoisson(own(c)?)));
    registry
        .op("RandomPoissonV2")
        .types("R", &values)
        .types("dtype", &values)
        .kernel(move |c| Ok(RandomPoisson(own(c)?)));
    registry
        .op("StatelessRandomPoisson")
        .types("Rtype", &values)
        .types("dtype", &values)
        .kernel(|_| Ok(RandomPoisson(Stream::Seed)));
    for (op, stateful) in [("StatelessRandomBinomial", false), ("StatefulRandomBinomial", true)] {
        registry.op(op).types("T", &floats).types("dtype", &values).kernel(move |_| Ok(RandomBinomial { stateful }));
    }
}
