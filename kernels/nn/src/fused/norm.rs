//! Batch normalisation with what follows it.

use super::{of_type, shared, take_all};
use graphmill_runtime::{Construction, Context, Kernel, Part, Registry, Value};
use graphmill_tensor::{DType, Result, internal, invalid_argument};

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

pub(super) fn register(registry: &mut Registry) {
    registry
        .op("_FusedBatchNormEx")
        .types("T", &[DType::BFloat16, DType::Float])
        .types("U", &[DType::Float])
        .kernel(BatchNormEx::new);
}
