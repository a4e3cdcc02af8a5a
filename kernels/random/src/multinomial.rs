//! `Multinomial` and `StatelessMultinomial`: class numbers drawn by unnormalised log-probabilities.

use crate::distribution::uniform_f64;
use crate::stateless::stream_of_seed;
use graphmill_runtime::philox::{DRAWS_PER_OUTPUT, Generator, Philox, Words};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, bf16, dispatch, f16, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    let indices = [DType::Int32, DType::Int64];
    registry.op("Multinomial").types("T", DType::FLOATS).types("output_dtype", &indices).kernel(Multinomial::new);
    registry
        .op("StatelessMultinomial")
        .types("T", DType::FLOATS)
        .types("output_dtype", &indices)
        .kernel(|c| Ok(StatelessMultinomial { dtype: c.dtype("output_dtype")? }));
}

struct Multinomial {
    generator: Generator,
    dtype: DType,
}

impl Multinomial {
    fn new(c: &Construction<'_>) -> Result<Multinomial> {
        Ok(Multinomial { generator: Generator::new(c)?, dtype: c.dtype("output_dtype")? })
    }
}

impl Kernel for Multinomial {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        // A sample takes two words, and TensorFlow rounds their number up to whole draws.
        let advance = |batch: usize, samples: usize| {
            let words = (samples as u64).div_ceil(4) * 4 * 2;
            (batch as u64).wrapping_mul(words).wrapping_mul(DRAWS_PER_OUTPUT)
        };
        let output = sample(ctx, self.dtype, |batch, samples| self.generator.take(advance(batch, samples)))?;
        ctx.set_output(0, output)
    }
}

struct StatelessMultinomial {
    dtype: DType,
}

impl Kernel for StatelessMultinomial {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let stream = stream_of_seed(ctx.input(2)?)?;
        let output = sample(ctx, self.dtype, |_, _| stream)?;
        ctx.set_output(0, output)
    }
}

fn sample(ctx: &Context<'_>, dtype: DType, stream: impl FnOnce(usize, usize) -> Philox) -> Result<Tensor> {
    let (logits, samples) = (ctx.input(0)?, ctx.input(1)?);
    if !logits.shape().is_matrix() {
        return Err(invalid_argument!("logits should be a matrix, got shape {}", logits.shape()));
    }
    if !samples.shape().is_scalar() {
        return Err(invalid_argument!("num_samples should be a scalar, got shape {}", samples.shape()));
    }
    let samples = samples.scalar_value::<i32>()?;
    let Ok(samples) = usize::try_from(samples) else {
        return Err(invalid_argument!("num_samples should be non-negative, got {samples}"));
    };
    let (batch, classes) = (logits.shape().dim(0), logits.shape().dim(1));
    if i32::try_from(batch).is_err() || i32::try_from(classes).is_err() {
        return Err(invalid_argument!("logits.shape = {} too large for int", logits.shape()));
    }
    if classes == 0 {
        return Err(invalid_argument!("num_classes should be positive, got 0"));
    }
    let mut output = Tensor::alloc(dtype, Shape::from_dims(&[batch, samples])?)?;
    if output.num_elements() == 0 {
        return Ok(output);
    }
    let words = Words::new(stream(batch, samples));
    let drawn = dispatch!(logits.dtype(), T in [f32, f64, f16, bf16] => {
        let logits = logits.as_slice::<T>()?;
        match dtype {
            DType::Int32 => draw(logits, classes, words, output.as_mut_slice::<i32>()?, samples, |class| class as i32),
            _ => draw(logits, classes, words, output.as_mut_slice::<i64>()?, samples, |class| class as i64),
        }
    });
    drawn.ok_or_else(|| internal!("logits cannot be of type {}", logits.dtype()))?;
    Ok(output)
}

/// Rows one after the other from one stream: for each sample, the first class whose cumulative weight is beyond a random part of the
/// total. Classes with infinite or undefined logits get no weight.
fn draw<T: Element + Into<f64>, I>(
    logits: &[T],
    classes: usize,
    mut words: Words,
    output: &mut [I],
    samples: usize,
    to: fn(usize) -> I,
) {
    let mut cumulative = Vec::with_capacity(classes);
    for (logits, output) in logits.chunks_exact(classes).zip(output.chunks_exact_mut(samples)) {
        let finite = || logits.iter().map(|&logit| logit.into()).filter(|logit: &f64| logit.is_finite());
        let largest = finite().fold(f64::MIN, f64::max);
        let mut total = 0.0;
        cumulative.clear();
        for &logit in logits {
            let logit: f64 = logit.into();
            if logit.is_finite() {
                total += (logit - largest).exp();
            }
            cumulative.push(total);
        }
        for sample in output {
            let wanted = uniform_f64(words.next(), words.next()) * total;
            *sample = to(cumulative.partition_point(|&weight| weight <= wanted));
        }
    }
}
