//! Lists of tensors.

use super::{Stored, sum_of, zeros_of};
use graphmill_graph::PartialShape;
use graphmill_tensor::{DType, Result, Tensor, Variant, VariantObject, invalid_argument};
use graphmill_wire::tensorflow::TensorShapeProto;
use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{decode_varint, encode_varint};

/// A list of tensors of one type.
#[derive(Clone, Debug)]
pub struct TensorList {
    /// The type of the elements.
    pub element_dtype: DType,
    /// What is known of the elements' shape.
    pub element_shape: PartialShape,
    /// Most elements that may be pushed, if there is a limit.
    pub max_num_elements: Option<usize>,
    /// The elements; `None` where nothing has been written yet.
    pub tensors: Vec<Option<Tensor>>,
}

impl TensorList {
    /// A list without a limit on its length.
    pub fn new(element_dtype: DType, element_shape: PartialShape, tensors: Vec<Option<Tensor>>) -> TensorList {
        TensorList { element_dtype, element_shape, max_num_elements: None, tensors }
    }
}

impl VariantObject for TensorList {
    fn type_name(&self) -> &str {
        TensorList::TYPE_NAME
    }

    /// The metadata are the number and the indices of the missing elements, the type's number, the limit, and the shape.
    fn serialize(&self) -> Result<Variant> {
        let missing = || self.tensors.iter().enumerate().filter(|(_, t)| t.is_none()).map(|(i, _)| i as u64);
        let mut metadata = BytesMut::new();
        encode_varint(missing().count() as u64, &mut metadata);
        missing().for_each(|index| encode_varint(index, &mut metadata));
        encode_varint(self.element_dtype.number() as u64, &mut metadata);
        encode_varint(self.max_num_elements.map_or(u64::MAX, |n| n as u64), &mut metadata);
        metadata.put_slice(&self.element_shape.to_proto().encode_to_vec());
        Ok(Variant {
            type_name: TensorList::TYPE_NAME.to_owned(),
            metadata: metadata.freeze(),
            tensors: self.tensors.iter().flatten().cloned().collect(),
            object: None,
        })
    }

    fn zeros_like(&self) -> Result<Variant> {
        let zeros = |tensor: &Option<Tensor>| tensor.as_ref().map(zeros_of).transpose();
        let tensors = self.tensors.iter().map(zeros).collect::<Result<_>>()?;
        Ok(Variant::of(TensorList::new(self.element_dtype, self.element_shape.clone(), tensors)))
    }

    fn add(&self, other: &Variant) -> Result<Variant> {
        let Some(other) = TensorList::of(other)? else {
            return Err(invalid_argument!("A list of tensors cannot be added to a {}", other.type_name));
        };
        if self.element_dtype != other.element_dtype {
            return Err(invalid_argument!(
                "Trying to add two lists of tensors of different dtypes. One is {} and the other is {}",
                self.element_dtype,
                other.element_dtype
            ));
        }
        let element_shape = self.element_shape.merged(&other.element_shape).map_err(|_| {
            invalid_argument!(
                "Trying to add two lists of tensors with incompatible element shapes. One is {} and the other is {}",
                self.element_shape,
                other.element_shape
            )
        })?;
        if self.tensors.len() != other.tensors.len() {
            return Err(invalid_argument!(
                "Trying to add two lists of tensors with different lengths. One is {} and the other is {}",
                self.tensors.len(),
                other.tensors.len()
            ));
        }
        let sum = |(a, b): (&Option<Tensor>, &Option<Tensor>)| match (a, b) {
            (Some(a), Some(b)) => sum_of(a, b).map(Some),
            (only, None) | (None, only) => Ok(only.clone()),
        };
        let tensors = self.tensors.iter().zip(&other.tensors).map(sum).collect::<Result<_>>()?;
        Ok(Variant::of(TensorList::new(self.element_dtype, element_shape, tensors)))
    }
}

impl Stored for TensorList {
    const TYPE_NAME: &'static str = "tensorflow::TensorList";

    fn decode(serialized: &Variant) -> Result<TensorList> {
        let bad = || invalid_argument!("A list of tensors is malformed");
        let mut metadata: Bytes = serialized.metadata.clone();
        let mut number = || decode_varint(&mut metadata).map_err(|_| bad());
        let missing = usize::try_from(number()?).map_err(|_| bad())?;
        // An index takes a byte at least, so that the message bounds the list.
        if missing > serialized.metadata.len() {
            return Err(bad());
        }
        let indices = (0..missing).map(|_| number()).collect::<Result<Vec<u64>>>()?;
        let element_dtype = i32::try_from(number()?).ok().and_then(DType::from_number).ok_or_else(bad)?;
        // -1, in 32 or 64 bits, is no limit.
        let limit = number()? as u32 as i32;
        let shape = TensorShapeProto::decode(metadata.copy_to_bytes(metadata.remaining())).map_err(|_| bad())?;
        let mut present = serialized.tensors.iter();
        let mut indices = indices.into_iter().peekable();
        let mut tensors = Vec::with_capacity(missing + serialized.tensors.len());
        for index in 0..(missing + serialized.tensors.len()) as u64 {
            if indices.next_if_eq(&index).is_some() {
                tensors.push(None);
                continue;
            }
            match present.next() {
                Some(tensor) if tensor.dtype() == element_dtype => tensors.push(Some(tensor.clone())),
                _ => return Err(bad()),
            }
        }
        Ok(TensorList {
            element_dtype,
            element_shape: PartialShape::from_proto(&shape)?,
            max_num_elements: usize::try_from(limit).ok(),
            tensors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> TensorList {
        let tensors = vec![None, Some(Tensor::vector(&[1i32, 2]).unwrap()), None];
        TensorList::new(DType::Int32, PartialShape::new(&[-1]).unwrap(), tensors)
    }

    #[test]
    fn the_serialized_form_is_tensorflows() {
        let serialized = list().serialize().unwrap();
        assert_eq!(
            &serialized.metadata[..],
            b"\x02\x00\x02\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        );
        let again = TensorList::of(&serialized).unwrap().unwrap().into_owned();
        assert_eq!(again.max_num_elements, None);
        assert_eq!(again.element_shape, list().element_shape);
        assert_eq!(again.tensors.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
        for cut in 0..serialized.metadata.len() {
            let broken = Variant { metadata: serialized.metadata.slice(..cut), ..serialized.clone() };
            // A shape may end anywhere between its dimensions; everything before must be there.
            assert!(TensorList::decode(&broken).is_err() || cut >= 14, "{cut}");
        }
        let other_type = Variant { tensors: vec![Tensor::scalar(1f32).unwrap()], ..serialized };
        assert!(TensorList::decode(&other_type).is_err());
    }

    #[test]
    fn lists_are_added_element_by_element() {
        let sum = list().add(&Variant::of(list())).unwrap();
        let sum = sum.get::<TensorList>().unwrap();
        assert_eq!(sum.tensors[1].as_ref().unwrap().as_slice::<i32>().unwrap(), [2, 4]);
        assert!(sum.tensors[0].is_none());
        let shorter = TensorList { tensors: vec![None], ..list() };
        assert!(list().add(&Variant::of(shorter)).unwrap_err().message().contains("different lengths"));
        let zeros = list().zeros_like().unwrap();
        let zeros = zeros.get::<TensorList>().unwrap();
        assert_eq!(zeros.tensors[1].as_ref().unwrap().as_slice::<i32>().unwrap(), [0, 0]);
    }
}
