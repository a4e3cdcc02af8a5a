//! `QuantizedBatchNormWithGlobalNormalization`, in fixed-point arithmetic.

use super::range::{Range, range, set_range};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, QInt32, QUInt8, Result, Tensor, invalid_argument};

/// Nanoseconds for an element.
const COST: f64 = 3.0;
/// The range of the result.
const RESULT: Range = Range { low: -1_048_576.0, high: 1_048_576.0 };

/// `QuantizedBatchNormWithGlobalNormalization(t, t_min, t_max, m, m_min, m_max, v, v_min, v_max, beta, beta_min, beta_max, gamma,
/// gamma_min, gamma_max) -> (result, result_min, result_max)`: `(t - m) / sqrt(v + epsilon) * gamma + beta` for each channel.
struct BatchNorm {
    epsilon: f32,
    scale: bool,
}

impl BatchNorm {
    fn new(c: &Construction<'_>) -> Result<BatchNorm> {
        let attrs = c.attrs();
        Ok(BatchNorm { epsilon: attrs.float("variance_epsilon")?, scale: attrs.bool("scale_after_normalization")? })
    }
}

/// A quantised vector, input `i` with its range behind it, as numbers.
fn numbers(vector: &Tensor, range: Range) -> Result<Vec<f32>> {
    Ok(vector.as_slice::<QUInt8>()?.iter().map(|x| range.number::<QUInt8>(i64::from(x.0))).collect())
}

fn check_shapes(input: &Tensor, vectors: [&Tensor; 4]) -> Result<()> {
    let shape = input.shape();
    if shape.rank() != 4 {
        return Err(invalid_argument!("input must be 4-dimensional{shape}"));
    }
    for (vector, name) in vectors.iter().zip(["mean", "var", "beta", "gamma"]) {
        if !vector.shape().is_vector() {
            return Err(invalid_argument!("{name} must be 1-dimensional{}", vector.shape()));
        }
    }
    let mean = vectors[0].shape();
    if mean.num_elements() <= 1 {
        return Err(invalid_argument!("Must have at least a mean value{}", vectors[3].shape()));
    }
    if mean.dim(0) != shape.dim(3) {
        return Err(invalid_argument!(
            "Must provide as many means as the last dimension of the input tensor: {mean} vs. {shape}"
        ));
    }
    for (vector, name) in vectors.iter().zip(["mean", "variance", "beta", "gamma"]).skip(1) {
        if vector.shape() != mean {
            return Err(invalid_argument!(
                "Mean and {name} tensors must have the same shape: {mean} vs. {}",
                vector.shape()
            ));
        }
    }
    Ok(())
}

impl Kernel for BatchNorm {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input_range = range(ctx, 1, ["input_min", "input_max"])?;
        let names =
            [["mean_min", "mean_max"], ["var_min", "var_max"], ["beta_min", "beta_max"], ["gamma_min", "gamma_max"]];
        let mut ranges = [input_range; 4];
        for (at, names) in names.into_iter().enumerate() {
            ranges[at] = range(ctx, 4 + 3 * at, names)?;
        }
        let input = ctx.input(0)?;
        let vectors = [ctx.input(3)?, ctx.input(6)?, ctx.input(9)?, ctx.input(12)?];
        check_shapes(input, vectors)?;
        let mut given = Vec::with_capacity(4);
        for (vector, range) in vectors.iter().zip(ranges) {
            given.push(numbers(vector, range)?);
        }
        let channels = given[0].len();
        let level = |x: f32| RESULT.level::<QInt32>(x) as i32;
        let terms: Vec<[i32; 2]> = (0..channels)
            .map(|c| {
                let inverse = 1.0 / (given[1][c] + self.epsilon).sqrt();
                let scale = if self.scale { inverse * given[3][c] } else { inverse };
                [level(scale), level(-given[0][c] * scale + given[2][c])]
            })
            .collect();
        let one = level(1.0).max(1);
        let levels: Vec<i32> = (0..256).map(|x| level(input_range.number::<QUInt8>(x))).collect();
        let x = input.as_slice::<QUInt8>()?;
        let mut output = ctx.alloc_output(0, input.shape().clone())?;
        ctx.parallel_chunks(output.as_mut_slice::<QInt32>()?, 1, COST, |range, part| {
            for (to, at) in part.iter_mut().zip(range) {
                let [scale, offset] = terms[at % channels];
                *to = QInt32((levels[usize::from(x[at].0)].wrapping_mul(scale) / one).wrapping_add(offset));
            }
        });
        ctx.set_output(0, output)?;
        set_range(ctx, RESULT)
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry
        .op("QuantizedBatchNormWithGlobalNormalization")
        .types("Tinput", &[DType::QUInt8])
        .types("out_type", &[DType::QInt32])
        .kernel(BatchNorm::new);
}
