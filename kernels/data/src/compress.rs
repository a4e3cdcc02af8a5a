//! `CompressElement` and `UncompressElement`: an element as one compressed variant.

use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{
    Bytes, DType, Result, Shape, Tensor, Variant, data_loss, failed_precondition, internal, invalid_argument,
};
use graphmill_wire::tensorflow::TensorProto;
use prost::Message;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("CompressElement").kernel(|_| Ok(Compress));
    registry.op("UncompressElement").kernel(|_| Ok(Uncompress));
}

/// The name of the variant's type. Its contents are this implementation's own: it does not leave the pipeline.
const TYPE_NAME: &str = "tensorflow.data.CompressedElement";

struct Compress;

impl Kernel for Compress {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let mut plain = Vec::new();
        for i in 0..ctx.num_inputs() {
            let tensor = ctx.input(i)?;
            let encoded = match tensor.dtype() {
                DType::Resource => return Err(invalid_argument!("A resource cannot be compressed")),
                _ => tensor.to_proto(),
            };
            encoded.encode_length_delimited(&mut plain).map_err(|e| internal!("cannot encode a tensor: {e}"))?;
        }
        let compressed = snap::raw::Encoder::new()
            .compress_vec(&plain)
            .map_err(|e| internal!("Failed to compress using snappy: {e}"))?;
        let variant = Variant {
            type_name: TYPE_NAME.to_owned(),
            metadata: Bytes::from(compressed),
            tensors: Vec::new(),
            object: None,
        };
        ctx.set_output(0, Tensor::from_variants(Shape::scalar(), vec![variant])?)
    }
}

struct Uncompress;

impl Kernel for Uncompress {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let compressed = match ctx.input(0)?.variants()? {
            [variant] if variant.type_name == TYPE_NAME => variant.metadata.clone(),
            _ => {
                return Err(invalid_argument!("Tensor does not contain a compressed element"));
            }
        };
        let plain = snap::raw::Decoder::new().decompress_vec(&compressed);
        let mut plain = Bytes::from(plain.map_err(|e| data_loss!("Could not perform snappy decompression: {e}"))?);
        let mut components = Vec::new();
        while !plain.is_empty() {
            let proto = TensorProto::decode_length_delimited(&mut plain);
            components
                .push(Tensor::from_proto(&proto.map_err(|e| data_loss!("A compressed element is broken: {e}"))?)?);
        }
        if components.len() != ctx.num_outputs() {
            return Err(failed_precondition!(
                "Expected {} outputs from uncompress, but got {}",
                ctx.num_outputs(),
                components.len()
            ));
        }
        for (i, component) in components.into_iter().enumerate() {
            let expected = ctx.output_type(i)?;
            if component.dtype() != expected {
                return Err(failed_precondition!(
                    "Expected a tensor of type {expected} but got a tensor of type {}",
                    component.dtype()
                ));
            }
            ctx.set_output(i, component)?;
        }
        Ok(())
    }
}
