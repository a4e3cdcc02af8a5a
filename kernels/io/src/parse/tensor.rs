//! Tensors as strings.

use crate::inputs::{first, set_string, text};
use crate::summary::tensor_message;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};
use graphmill_wire::tensorflow::TensorProto;
use prost::Message;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ParseTensor").kernel(ParseTensor::new);
    registry.op("SerializeTensor").types("T", DType::COMMON).kernel(|_| Ok(SerializeTensor));
}

/// The tensor that a serialized `TensorProto` describes.
struct ParseTensor(DType);

impl ParseTensor {
    fn new(c: &Construction<'_>) -> Result<ParseTensor> {
        Ok(ParseTensor(c.dtype("out_type")?))
    }
}

impl Kernel for ParseTensor {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let serialized = ctx.input(0)?;
        if !serialized.shape().is_scalar() {
            return Err(invalid_argument!("Expected `serialized` to be a scalar, got shape: {}", serialized.shape()));
        }
        let serialized = first(serialized)?;
        let proto = TensorProto::decode(serialized.clone())
            .map_err(|_| invalid_argument!("Could not parse `serialized` as TensorProto: '{}'", text(serialized)))?;
        let tensor = Tensor::from_proto(&proto)?;
        if tensor.dtype() != self.0 {
            return Err(invalid_argument!(
                "Type mismatch between parsed tensor ({}) and dtype ({})",
                tensor.dtype(),
                self.0
            ));
        }
        ctx.set_output(0, tensor)
    }
}

/// The serialized `TensorProto` of a tensor.
struct SerializeTensor;

impl Kernel for SerializeTensor {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let message = tensor_message(ctx.input(0)?).encode_to_vec();
        set_string(ctx, 0, message)
    }
}
