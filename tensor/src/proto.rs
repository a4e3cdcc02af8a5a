//! Tensors as they travel: `TensorProto` in every encoding that clients send.

use crate::{DType, Element, ResourceHandle, Result, Shape, Tensor, Variant, bf16, f16, internal, invalid_argument};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use graphmill_wire::tensorflow::tensor_shape_proto::Dim;
use graphmill_wire::tensorflow::{
    ResourceHandleProto, TensorProto, TensorShapeProto, VariantTensorDataProto, resource_handle_proto,
};
use num_complex::Complex32;
use prost::Message;

/// Deepest nesting of tensors within variants that is accepted.
const MAX_VARIANT_DEPTH: usize = 32;

/// A shape off the wire that must be fully known.
///
/// # Errors
/// `INVALID_ARGUMENT` for an unknown rank, negative sizes, too many dimensions or elements.
pub fn decode_shape(proto: &TensorShapeProto) -> Result<Shape> {
    if proto.unknown_rank {
        return Err(invalid_argument!("Shape is not fully known: <unknown>"));
    }
    let dims: Vec<i64> = proto.dim.iter().map(|d| d.size).collect();
    Shape::new(&dims)
}

/// A shape for the wire.
pub fn encode_shape(shape: &Shape) -> TensorShapeProto {
    TensorShapeProto {
        dim: shape.dims_i64().map(|size| Dim { size, name: String::new() }).collect(),
        unknown_rank: false,
    }
}

impl Tensor {
    /// A tensor off the wire, by the rules of TensorFlow: `tensor_content` wins over the typed field; of the typed field the
    /// last value repeats and surplus values are dropped; no value at all means zeros.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an invalid type or shape, or content of the wrong length; `RESOURCE_EXHAUSTED` for a tensor that
    /// does not fit into memory.
    pub fn from_proto(proto: &TensorProto) -> Result<Tensor> {
        decode(proto, 0)
    }

    /// This tensor for the wire, with `tensor_content` as TensorFlow sends it. Fixed-size elements are not copied.
    pub fn to_proto(&self) -> TensorProto {
        let content = match self.dtype() {
            DType::String => self.strings().map(encode_strings).unwrap_or_default(),
            DType::Resource => {
                let all = self.handles().unwrap_or_default();
                encode_strings(&all.iter().map(|h| Bytes::from(h.to_proto().encode_to_vec())).collect::<Vec<_>>())
            }
            DType::Variant => {
                let all = self.variants().unwrap_or_default();
                encode_strings(&all.iter().map(|v| Bytes::from(v.to_proto().encode_to_vec())).collect::<Vec<_>>())
            }
            _ => self.to_bytes().unwrap_or_default(),
        };
        TensorProto {
            dtype: self.dtype().number(),
            tensor_shape: Some(encode_shape(self.shape())),
            tensor_content: content,
            ..Default::default()
        }
    }
}

fn decode(proto: &TensorProto, depth: usize) -> Result<Tensor> {
    let Some(dtype) = DType::from_number(proto.dtype) else {
        return Err(invalid_argument!("{} is not the data type of a tensor", proto.dtype));
    };
    let shape = match &proto.tensor_shape {
        Some(shape) => decode_shape(shape)?,
        None => Shape::scalar(),
    };
    if shape.num_elements() == 0 {
        return Tensor::alloc(dtype, shape);
    }
    if !proto.tensor_content.is_empty() {
        return decode_content(dtype, shape, proto.tensor_content.clone(), depth);
    }
    use DType::*;
    match dtype {
        Float => fill(shape, &proto.float_val, |&v| v),
        Double => fill(shape, &proto.double_val, |&v| v),
        Int32 => fill(shape, &proto.int_val, |&v| v),
        UInt8 => fill(shape, &proto.int_val, |&v| v as u8),
        Int16 => fill(shape, &proto.int_val, |&v| v as i16),
        Int8 => fill(shape, &proto.int_val, |&v| v as i8),
        UInt16 => fill(shape, &proto.int_val, |&v| v as u16),
        QInt8 => fill(shape, &proto.int_val, |&v| crate::QInt8(v as i8)),
        QUInt8 => fill(shape, &proto.int_val, |&v| crate::QUInt8(v as u8)),
        QInt32 => fill(shape, &proto.int_val, |&v| crate::QInt32(v)),
        QInt16 => fill(shape, &proto.int_val, |&v| crate::QInt16(v as i16)),
        QUInt16 => fill(shape, &proto.int_val, |&v| crate::QUInt16(v as u16)),
        Int4 => fill(shape, &proto.int_val, |&v| crate::Int4::new(v as i8)),
        UInt4 => fill(shape, &proto.int_val, |&v| crate::UInt4::new(v as u8)),
        Int2 => fill(shape, &proto.int_val, |&v| crate::Int2::new(v as i8)),
        UInt2 => fill(shape, &proto.int_val, |&v| crate::UInt2::new(v as u8)),
        Int64 => fill(shape, &proto.int64_val, |&v| v),
        UInt32 => fill(shape, &proto.uint32_val, |&v| v),
        UInt64 => fill(shape, &proto.uint64_val, |&v| v),
        Bool => fill(shape, &proto.bool_val, |&v| v),
        Half => fill(shape, &proto.half_val, |&v| f16::from_bits(v as u16)),
        BFloat16 => fill(shape, &proto.half_val, |&v| bf16::from_bits(v as u16)),
        Complex64 => {
            let (pairs, _) = proto.scomplex_val.as_chunks::<2>();
            fill(shape, pairs, |&[re, im]| Complex32::new(re, im))
        }
        Complex128 => {
            let (pairs, _) = proto.dcomplex_val.as_chunks::<2>();
            fill(shape, pairs, |&[re, im]| num_complex::Complex64::new(re, im))
        }
        Float8E5M2 => fill(shape, &proto.float8_val, |&v| crate::Float8E5M2::from_bits(v)),
        Float8E4M3FN => fill(shape, &proto.float8_val, |&v| crate::Float8E4M3FN::from_bits(v)),
        Float8E4M3FNUZ => fill(shape, &proto.float8_val, |&v| crate::Float8E4M3FNUZ::from_bits(v)),
        Float8E4M3B11FNUZ => fill(shape, &proto.float8_val, |&v| crate::Float8E4M3B11FNUZ::from_bits(v)),
        Float8E5M2FNUZ => fill(shape, &proto.float8_val, |&v| crate::Float8E5M2FNUZ::from_bits(v)),
        Float4E2M1FN => fill(shape, &proto.float8_val, |&v| crate::Float4E2M1FN::from_bits(v)),
        String => {
            let mut values = limited(&shape, &proto.string_val)?;
            let last = values.last().cloned().unwrap_or_default();
            values.resize(shape.num_elements(), last);
            Tensor::from_strings(shape, values)
        }
        Resource => {
            let given = limited(&shape, &proto.resource_handle_val)?;
            let mut values = given.iter().map(ResourceHandle::from_proto).collect::<Result<Vec<_>>>()?;
            values.resize(shape.num_elements(), ResourceHandle::default());
            Tensor::from_handles(shape, values)
        }
        Variant => {
            let given = limited(&shape, &proto.variant_val)?;
            let mut values = given.iter().map(|v| decode_variant(v, depth)).collect::<Result<Vec<_>>>()?;
            values.resize(shape.num_elements(), crate::Variant::default());
            Tensor::from_variants(shape, values)
        }
    }
}

/// The first values, as many as the shape has room for, in a vector that will not be resized past what memory can hold.
fn limited<V: Clone>(shape: &Shape, values: &[V]) -> Result<Vec<V>> {
    let n = shape.num_elements();
    let mut kept = Vec::new();
    kept.try_reserve_exact(n)
        .map_err(|_| crate::resource_exhausted!("Out of memory: a tensor of shape {shape} does not fit into memory"))?;
    kept.extend_from_slice(&values[..values.len().min(n)]);
    Ok(kept)
}

fn fill<V, T: Element>(shape: Shape, values: &[V], convert: impl Fn(&V) -> T) -> Result<Tensor> {
    let mut tensor = Tensor::alloc(T::DTYPE, shape)?;
    let elements = tensor.as_mut_slice::<T>()?;
    let given = values.len().min(elements.len());
    for (element, value) in elements.iter_mut().zip(values) {
        *element = convert(value);
    }
    let last = values.get(..given).and_then(<[V]>::last).map_or_else(T::default, convert);
    elements[given..].fill(last);
    Ok(tensor)
}

fn decode_content(dtype: DType, shape: Shape, content: Bytes, depth: usize) -> Result<Tensor> {
    if dtype.is_fixed_size() {
        return Tensor::from_bytes(dtype, shape, content);
    }
    let parts = decode_strings(content, shape.num_elements())?;
    match dtype {
        DType::String => Tensor::from_strings(shape, parts),
        DType::Resource => {
            let values = parts.into_iter().map(|part| {
                let proto = ResourceHandleProto::decode(part);
                ResourceHandle::from_proto(&proto.map_err(|e| invalid_argument!("Invalid resource handle: {e}"))?)
            });
            Tensor::from_handles(shape, values.collect::<Result<_>>()?)
        }
        DType::Variant => {
            let values = parts.into_iter().map(|part| {
                let proto = VariantTensorDataProto::decode(part);
                decode_variant(&proto.map_err(|e| invalid_argument!("Invalid variant: {e}"))?, depth)
            });
            Tensor::from_variants(shape, values.collect::<Result<_>>()?)
        }
        other => Err(internal!("{other} has no list form")),
    }
}

/// `n` lengths as varints, then the bytes of all strings one after the other.
fn decode_strings(mut content: Bytes, n: usize) -> Result<Vec<Bytes>> {
    let bad = || invalid_argument!("Malformed tensor_content of a string tensor");
    if content.len() < n {
        return Err(bad());
    }
    let mut lengths = Vec::with_capacity(n);
    for _ in 0..n {
        let length = prost::encoding::decode_varint(&mut content).map_err(|_| bad())?;
        lengths.push(u32::try_from(length).map_err(|_| bad())? as usize);
    }
    let mut values = Vec::with_capacity(n);
    for length in lengths {
        if content.remaining() < length {
            return Err(bad());
        }
        values.push(content.split_to(length));
    }
    if content.has_remaining() { Err(bad()) } else { Ok(values) }
}

fn encode_strings(values: &[Bytes]) -> Bytes {
    let total: usize = values.iter().map(|v| v.len() + prost::encoding::encoded_len_varint(v.len() as u64)).sum();
    let mut out = BytesMut::with_capacity(total);
    for value in values {
        prost::encoding::encode_varint(value.len() as u64, &mut out);
    }
    for value in values {
        out.put_slice(value);
    }
    out.freeze()
}

impl ResourceHandle {
    /// A handle off the wire.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an unknown type or an impossible shape.
    pub fn from_proto(proto: &ResourceHandleProto) -> Result<ResourceHandle> {
        let mut dtypes_and_shapes = Vec::new();
        for entry in &proto.dtypes_and_shapes {
            let Some(dtype) = DType::from_number(entry.dtype) else {
                return Err(invalid_argument!("Invalid resource handle: {} is not a data type", entry.dtype));
            };
            let known = entry.shape.as_ref().filter(|s| !s.unknown_rank && s.dim.iter().all(|d| d.size != -1));
            dtypes_and_shapes.push((dtype, known.map(decode_shape).transpose()?));
        }
        Ok(ResourceHandle {
            device: proto.device.clone(),
            container: proto.container.clone(),
            name: proto.name.clone(),
            hash_code: proto.hash_code,
            type_name: proto.maybe_type_name.clone(),
            dtypes_and_shapes,
        })
    }

    /// This handle for the wire.
    pub fn to_proto(&self) -> ResourceHandleProto {
        let unknown = || TensorShapeProto { unknown_rank: true, ..Default::default() };
        ResourceHandleProto {
            device: self.device.clone(),
            container: self.container.clone(),
            name: self.name.clone(),
            hash_code: self.hash_code,
            maybe_type_name: self.type_name.clone(),
            dtypes_and_shapes: self
                .dtypes_and_shapes
                .iter()
                .map(|(dtype, shape)| resource_handle_proto::DtypeAndShape {
                    dtype: dtype.number(),
                    shape: Some(shape.as_ref().map_or_else(unknown, encode_shape)),
                })
                .collect(),
        }
    }
}

fn decode_variant(proto: &VariantTensorDataProto, depth: usize) -> Result<Variant> {
    if depth >= MAX_VARIANT_DEPTH {
        return Err(invalid_argument!("Variants are nested more than {MAX_VARIANT_DEPTH} deep"));
    }
    Ok(Variant {
        type_name: proto.type_name.clone(),
        metadata: proto.metadata.clone(),
        tensors: proto.tensors.iter().map(|t| decode(t, depth + 1)).collect::<Result<_>>()?,
        object: None,
    })
}

impl Variant {
    /// A value off the wire, in its serialized form.
    ///
    /// # Errors
    /// As [`Tensor::from_proto`] for the tensors within.
    pub fn from_proto(proto: &VariantTensorDataProto) -> Result<Variant> {
        decode_variant(proto, 0)
    }

    /// This value for the wire. Of an object that does not leave its process only the type's name is there.
    pub fn to_proto(&self) -> VariantTensorDataProto {
        if let Some(serialized) = self.object.as_ref().and_then(|object| object.serialize().ok()) {
            return serialized.to_proto();
        }
        VariantTensorDataProto {
            type_name: self.type_name.clone(),
            metadata: self.metadata.clone(),
            tensors: self.tensors.iter().map(Tensor::to_proto).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proto(dtype: i32, dims: &[i64]) -> TensorProto {
        TensorProto {
            dtype,
            tensor_shape: Some(TensorShapeProto {
                dim: dims.iter().map(|&size| Dim { size, name: String::new() }).collect(),
                unknown_rank: false,
            }),
            ..Default::default()
        }
    }

    #[test]
    fn the_last_value_repeats_and_no_value_is_zero() {
        let t = Tensor::from_proto(&TensorProto { float_val: vec![1.0, 2.0], ..proto(1, &[2, 2]) }).unwrap();
        assert_eq!(t.as_slice::<f32>().unwrap(), &[1.0, 2.0, 2.0, 2.0]);
        let t = Tensor::from_proto(&proto(1, &[2])).unwrap();
        assert_eq!(t.as_slice::<f32>().unwrap(), &[0.0, 0.0]);
        let t = Tensor::from_proto(&TensorProto { int_val: vec![7, 8, 9], ..proto(3, &[2]) }).unwrap();
        assert_eq!(t.as_slice::<i32>().unwrap(), &[7, 8]);
        let t = Tensor::from_proto(&TensorProto { string_val: vec![Bytes::from("x")], ..proto(7, &[2]) }).unwrap();
        assert_eq!(t.strings().unwrap()[1].as_ref(), b"x");
    }

    #[test]
    fn an_absent_shape_is_a_scalar() {
        let t = Tensor::from_proto(&TensorProto { dtype: 9, int64_val: vec![5], ..Default::default() }).unwrap();
        assert_eq!(t.scalar_value::<i64>().unwrap(), 5);
        assert!(t.shape().is_scalar());
    }

    #[test]
    fn nonsense_types_shapes_and_lengths_are_refused() {
        for dtype in [0, 99, -1, 121, 34, 101] {
            for dims in [&[0][..], &[], &[3]] {
                let error = Tensor::from_proto(&proto(dtype, dims)).unwrap_err();
                assert_eq!(error.code(), crate::Code::InvalidArgument, "{dtype} {dims:?}");
            }
        }
        assert!(Tensor::from_proto(&proto(1, &[-1])).is_err());
        assert!(Tensor::from_proto(&proto(7, &[1 << 60])).is_err());
        assert!(Tensor::from_proto(&proto(1, &[1 << 50])).is_err());
        let content = |dtype, dims: &[i64], bytes: &'static [u8]| {
            Tensor::from_proto(&TensorProto { tensor_content: Bytes::from_static(bytes), ..proto(dtype, dims) })
        };
        assert!(content(1, &[2], &[0; 7]).is_err());
        assert!(content(7, &[2], &[1, 5, b'a']).is_err());
        assert!(content(7, &[2], &[1]).is_err());
        assert!(content(20, &[1], &[3, 0xff, 0xff, 0xff]).is_err());
        assert!(content(21, &[1], &[3, 0xff, 0xff, 0xff]).is_err());
        assert_eq!(content(7, &[2], &[1, 2, b'a', b'b', b'c']).unwrap().strings().unwrap()[1].as_ref(), b"bc");
    }

    #[test]
    fn every_type_survives_the_wire() {
        for &dtype in DType::ALL {
            let tensor = match dtype {
                DType::String => {
                    Tensor::from_strings(Shape::vector(2), vec![Bytes::from("a\0b"), Bytes::new()]).unwrap()
                }
                DType::Resource => {
                    let handle = ResourceHandle { name: "v".into(), container: "c".into(), ..Default::default() };
                    Tensor::from_handles(Shape::vector(1), vec![handle]).unwrap()
                }
                DType::Variant => {
                    let inner = vec![Tensor::vector(&[1i32, 2]).unwrap()];
                    let value = Variant { type_name: "T".into(), tensors: inner, ..Default::default() };
                    Tensor::from_variants(Shape::vector(1), vec![value]).unwrap()
                }
                _ => {
                    let mut tensor = Tensor::zeros(dtype, Shape::vector(3)).unwrap();
                    tensor.as_mut_bytes().unwrap()[0] = 1;
                    tensor
                }
            };
            let proto = tensor.to_proto();
            let back = Tensor::from_proto(&TensorProto::decode(proto.encode_to_vec().as_slice()).unwrap()).unwrap();
            assert_eq!(back.to_proto(), proto, "{dtype}");
        }
    }

    #[test]
    fn deeply_nested_variants_are_refused() {
        let mut variant = VariantTensorDataProto::default();
        for _ in 0..40 {
            let tensor = TensorProto { variant_val: vec![variant], ..proto(21, &[1]) };
            variant = VariantTensorDataProto { tensors: vec![tensor], ..Default::default() };
        }
        assert!(Tensor::from_proto(&TensorProto { variant_val: vec![variant], ..proto(21, &[1]) }).is_err());
    }

    #[test]
    fn mutated_messages_never_crash() {
        let tensor = Tensor::from_strings(Shape::vector(3), vec![Bytes::from("abc"), Bytes::new(), Bytes::from("de")]);
        let valid = [tensor.unwrap().to_proto(), Tensor::vector(&[1.0f32, 2.0]).unwrap().to_proto()];
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..20_000 {
            let mut bytes = valid[round % 2].encode_to_vec();
            for _ in 0..1 + random() % 3 {
                let at = random() as usize % bytes.len();
                bytes[at] ^= 1 << (random() % 8);
            }
            if let Ok(proto) = TensorProto::decode(bytes.as_slice()) {
                let small = proto.tensor_shape.as_ref().is_none_or(|s| s.dim.iter().all(|d| d.size < 1 << 20));
                if small {
                    let _ = Tensor::from_proto(&proto);
                }
            }
        }
    }
}
