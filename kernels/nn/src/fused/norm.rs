//! Normalisations: that of batches with what follows it, and that of rows.

use super::{of_type, shared, take_all};
use crate::simd::Real;
use graphmill_runtime::{Construction, Context, Kernel, Part, Registry, Value};
use graphmill_tensor::{DType, Result, Tensor, bf16, dispatch, f16, internal, invalid_argument};

/// `_FusedBatchNormEx`: `FusedBatchNormV3`, then the sum with a side input, then a rectifier, as they may be.
struct BatchNormEx {
    norm: Part,
    sum: Option<Part>,
    activation: Option<Part>,
}

impl BatchNormEx {
    fn new(c: &Construction<'_>) -> Result<BatchNormEx> {
        let attrs = c.attrs();
        let dtype = c.dtype("T")?;
        let activation = match attrs.str("activation_mode")? {
            "Identity" => None,
            "Relu" => Some(c.part("Relu", of_type(dtype))?),
            other => return Err(invalid_argument!("Unsupported activation mode: {other}")),
        };
        let sum = match attrs.int("num_side_inputs")? {
            0 => None,
            1 => Some(c.part("AddV2", of_type(dtype))?),
            _ => return Err(invalid_argument!("FusedBatchNorm accepts at most one side input.")),
        };
        if sum.is_some() && activation.is_none() && attrs.bool("is_training")? {
            return Err(invalid_argument!("Identity activation is not supported with non-empty side input"));
        }
        let names = ["T", "U", "epsilon", "exponential_avg_factor", "data_format", "is_training"];
        Ok(BatchNormEx { norm: c.part("FusedBatchNormV3", shared(c, &names))?, sum, activation })
    }
}

impl Kernel for BatchNormEx {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let mut inputs = take_all(ctx)?;
        let side = if self.sum.is_some() { inputs.pop() } else { None };
        if let (Some(Value::Tensor(side)), Some(Value::Tensor(x))) = (&side, inputs.first())
            && side.shape() != x.shape()
        {
            return Err(invalid_argument!(
                "side_input shape must be equal to input shape: {} != {}",
                side.shape(),
                x.shape()
            ));
        }
        let mut outputs = self.norm.run(ctx, &mut inputs)?;
        let Some(y) = outputs.first_mut() else { return Err(internal!("a normalisation has outputs")) };
        if let (Some(sum), Some(side)) = (&self.sum, side) {
            *y = Value::Tensor(sum.run_one(ctx, &mut [std::mem::take(y), side])?);
        }
        if let Some(activation) = &self.activation {
            *y = Value::Tensor(activation.run_one(ctx, &mut [std::mem::take(y)])?);
        }
        for (i, value) in outputs.into_iter().enumerate() {
            ctx.set_value(i, value)?;
        }
        Ok(())
    }
}

/// `_MklLayerNorm(x, scale, offset)`: each row along the last dimension with mean 0 and variance 1, times `scale`, plus `offset`.
struct LayerNorm {
    epsilon: f32,
}

impl LayerNorm {
    fn run<T: Real<Wide = f32>>(&self, ctx: &Context<'_>) -> Result<Tensor> {
        let input = ctx.input(0)?;
        let x = input.as_slice::<T>()?;
        let (scale, offset) = (ctx.input(1)?.as_slice::<T>()?, ctx.input(2)?.as_slice::<T>()?);
        let mut output = ctx.alloc_output(0, input.shape().clone())?;
        let width = scale.len();
        ctx.parallel_chunks(output.as_mut_slice::<T>()?, width, width as f64 * 2.0, |range, part| {
            for (row, to) in range.zip(part.chunks_exact_mut(width)) {
                let row = &x[row * width..(row + 1) * width];
                let mean = row.iter().map(|x| x.widen()).sum::<f32>() / width as f32;
                let square = |x: &T| (x.widen() - mean) * (x.widen() - mean);
                let variance = row.iter().map(square).sum::<f32>() / width as f32;
                let factor = 1.0 / (variance + self.epsilon).sqrt();
                for ((to, x), (scale, offset)) in to.iter_mut().zip(row).zip(scale.iter().zip(offset)) {
                    *to = T::narrow((x.widen() - mean) * factor * scale.widen() + offset.widen());
                }
            }
        });
        Ok(output)
    }
}

impl Kernel for LayerNorm {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = ctx.input(0)?.shape();
        if shape.rank() == 0 {
            return Err(invalid_argument!("input must be at least 1-dimensional, got {shape}"));
        }
        let width = shape.dim(shape.rank() - 1);
        for (i, name) in [(1, "scale"), (2, "offset")] {
            let vector = ctx.input(i)?.shape();
            if !vector.is_vector() || vector.dim(0) != width {
                return Err(invalid_argument!(
                    "{name} must have an element for each of {width} features, got {vector}"
                ));
            }
        }
        let output = dispatch!(ctx.input(0)?.dtype(), T in [f32, f16, bf16] => self.run::<T>(ctx))
            .ok_or_else(|| internal!("no normalisation of this type"))??;
        ctx.set_output(0, output)
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry
        .op("_MklLayerNorm")
        .types("T", &[DType::BFloat16, DType::Float, DType::Half])
        .kernel(|c: &Construction<'_>| Ok(LayerNorm { epsilon: c.attrs().float("epsilon")? }));
    registry
        .op("_FusedBatchNormEx")
        .types("T", &[DType::BFloat16, DType::Float])
        .types("U", &[DType::Float])
        .kernel(BatchNormEx::new);
}
