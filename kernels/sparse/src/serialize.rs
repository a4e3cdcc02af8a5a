//! Sparse tensors as three strings or variants: `SerializeSparse`, `SerializeManySparse`, `DeserializeSparse`,
//! `DeserializeManySparse`.

use crate::coo::Coo;
use crate::stack::{Part, stack, unstack};
use crate::types::EVERY;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, Variant, invalid_argument};
use graphmill_wire::tensorflow::TensorProto;
use prost::Message;

pub(crate) fn register(registry: &mut Registry) {
    const FORMS: [DType; 2] = [DType::String, DType::Variant];
    registry.op("SerializeSparse").types("out_type", &FORMS).kernel(|_| Ok(Serialize));
    registry.op("SerializeManySparse").types("T", &EVERY).types("out_type", &FORMS).kernel(|_| Ok(SerializeMany));
    registry.op("DeserializeSparse").types("Tserialized", &FORMS).kernel(|c| Deserialize::new(c, false));
    registry.op("DeserializeManySparse").kernel(|c| Deserialize::new(c, true));
}

/// The name of a variant that is a tensor.
const TENSOR: &str = "tensorflow::Tensor";

/// Tensors in one of the two forms.
fn encode(tensors: &[Tensor], form: DType, shape: Shape) -> Result<Tensor> {
    if form == DType::String {
        let strings = tensors.iter().map(|tensor| Bytes::from(tensor.to_proto().encode_to_vec())).collect();
        return Tensor::from_strings(shape, strings);
    }
    let variant =
        |tensor: &Tensor| Variant { type_name: TENSOR.to_owned(), tensors: vec![tensor.clone()], ..Variant::default() };
    Tensor::from_variants(shape, tensors.iter().map(variant).collect())
}

struct Serialize;

impl Kernel for Serialize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (indices, values, shape) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        Coo::new(indices, values, shape)?;
        let parts = [indices.clone(), values.clone(), shape.clone()];
        ctx.set_output(0, encode(&parts, ctx.output_type(0)?, Shape::vector(3))?)
    }
}

/// A row of three for each row of a sparse tensor.
struct SerializeMany;

impl Kernel for SerializeMany {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let coo = Coo::new(ctx.input(0)?, ctx.input(1)?, ctx.input(2)?)?;
        if coo.rank() <= 1 {
            return Err(invalid_argument!("Rank of input SparseTensor should be > 1, but saw rank: {}", coo.rank()));
        }
        coo.check_indices()?;
        let rows = unstack(&coo)?;
        let mut tensors = Vec::with_capacity(rows.len() * 3);
        for row in &rows {
            tensors.extend([row.indices.clone(), row.values.clone(), Tensor::vector(&row.shape)?]);
        }
        ctx.set_output(0, encode(&tensors, ctx.output_type(0)?, Shape::from_dims(&[rows.len(), 3])?)?)
    }
}

struct Deserialize {
    dtype: DType,
    many: bool,
}

impl Deserialize {
    fn new(c: &Construction<'_>, many: bool) -> Result<Deserialize> {
        Ok(Deserialize { dtype: c.dtype("dtype")?, many })
    }
}

fn decode(text: &[u8]) -> Result<Tensor> {
    let proto = TensorProto::decode(text).map_err(|_| invalid_argument!("Could not parse serialized proto"))?;
    Tensor::from_proto(&proto).map_err(|_| invalid_argument!("Could not construct tensor from proto"))
}

/// The tensors in their strings or variants.
fn decode_all(serialized: &Tensor) -> Result<Vec<Tensor>> {
    if serialized.dtype() == DType::String {
        return serialized.strings()?.iter().map(|text| decode(text)).collect();
    }
    let tensor = |(i, variant): (usize, &Variant)| {
        let missing = || invalid_argument!("Could not get a tensor from serialized_sparse[{}, {}]", i / 3, i % 3);
        let plain = match &variant.object {
            Some(object) => object.serialize().map_err(|_| missing())?,
            None => variant.clone(),
        };
        match plain.tensors.as_slice() {
            [tensor] if plain.type_name == TENSOR => Ok(tensor.clone()),
            _ => Err(missing()),
        }
    };
    serialized.variants()?.iter().enumerate().map(tensor).collect()
}

impl Kernel for Deserialize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let serialized = ctx.input(0)?;
        let dims = serialized.shape().dims();
        let Some((&last, outer)) = dims.split_last() else {
            return Err(invalid_argument!("Serialized sparse should have non-zero rank {}", serialized.shape()));
        };
        if self.many && outer.len() != 1 {
            return Err(invalid_argument!("Serialized sparse should be a matrix, got shape {}", serialized.shape()));
        }
        if last != 3 {
            return Err(invalid_argument!(
                "Serialized sparse should have 3 as the last dimension {}",
                serialized.shape()
            ));
        }
        if serialized.num_elements() == 0 {
            return Err(invalid_argument!(
                "Serialized sparse should have at least 1 serialized tensor, but has a zero dimension {}",
                serialized.shape()
            ));
        }
        let tensors = decode_all(serialized)?;
        let mut parts = Vec::with_capacity(tensors.len() / 3);
        for (i, tensors) in tensors.chunks_exact(3).enumerate() {
            let shape = &tensors[2];
            if shape.dtype() != DType::Int64 {
                return Err(invalid_argument!(
                    "Expected serialized_sparse[{i}, 2] to be a vector of DT_INT64 but received dtype {}",
                    shape.dtype()
                ));
            }
            if !shape.shape().is_vector() {
                return Err(invalid_argument!(
                    "Expected serialized_sparse[{i}, 2] to be a shape vector but its shape is {}",
                    shape.shape()
                ));
            }
            let part = Part { indices: tensors[0].clone(), values: tensors[1].clone(), shape: shape.to_i64_vec()? };
            part.check(self.dtype, i, "serialized_sparse")?;
            parts.push(part);
        }
        let [indices, values, shape] = stack(&parts, outer, self.dtype, 0)?;
        ctx.set_output(0, indices)?;
        ctx.set_output(1, values)?;
        ctx.set_output(2, shape)
    }
}
