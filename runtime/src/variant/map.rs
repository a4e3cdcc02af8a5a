//! Maps from tensors to tensors.

use super::{Stored, sum_of};
use graphmill_tensor::{DType, Result, Tensor, Variant, VariantObject, invalid_argument};
use std::collections::BTreeMap;

/// Tensors by the type, shape and elements of other tensors.
#[derive(Clone, Debug, Default)]
pub struct TensorMap(BTreeMap<Key, (Tensor, Tensor)>);

/// What makes keys equal: the type's number, the sizes, and the elements' bytes.
type Key = (i32, Vec<usize>, Vec<u8>);

/// # Errors
/// `INVALID_ARGUMENT` for a type whose elements cannot be compared.
fn key(tensor: &Tensor) -> Result<Key> {
    let bytes = match tensor.as_bytes() {
        Some(bytes) => bytes.to_vec(),
        None if tensor.dtype() == DType::String => {
            let mut bytes = Vec::new();
            for text in tensor.strings()? {
                bytes.extend((text.len() as u64).to_le_bytes());
                bytes.extend_from_slice(text);
            }
            bytes
        }
        None => return Err(invalid_argument!("A tensor of type {} cannot be the key of a map", tensor.dtype())),
    };
    Ok((tensor.dtype().number(), tensor.shape().dims().to_vec(), bytes))
}

impl TensorMap {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a type that cannot be a key.
    pub fn get(&self, at: &Tensor) -> Result<Option<&Tensor>> {
        Ok(self.0.get(&key(at)?).map(|(_, value)| value))
    }

    /// Puts a value in, over an earlier one.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a type that cannot be a key.
    pub fn insert(&mut self, at: Tensor, value: Tensor) -> Result<()> {
        self.0.insert(key(&at)?, (at, value));
        Ok(())
    }

    /// Takes a value out.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a type that cannot be a key.
    pub fn remove(&mut self, at: &Tensor) -> Result<Option<Tensor>> {
        Ok(self.0.remove(&key(at)?).map(|(_, value)| value))
    }

    /// The keys, in an order that depends on them alone.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.0.values().map(|(key, _)| key)
    }
}

impl VariantObject for TensorMap {
    fn type_name(&self) -> &str {
        TensorMap::TYPE_NAME
    }

    fn serialize(&self) -> Result<Variant> {
        Ok(Variant {
            type_name: TensorMap::TYPE_NAME.to_owned(),
            tensors: self.0.values().flat_map(|(key, value)| [key.clone(), value.clone()]).collect(),
            ..Variant::default()
        })
    }

    fn zeros_like(&self) -> Result<Variant> {
        Ok(Variant::of(TensorMap::default()))
    }

    fn add(&self, other: &Variant) -> Result<Variant> {
        let Some(other) = TensorMap::of(other)? else {
            return Err(invalid_argument!("A map of tensors cannot be added to a {}", other.type_name));
        };
        let mut sum = self.clone();
        for (id, (key, value)) in &other.0 {
            let value = match self.0.get(id) {
                Some((_, own)) => sum_of(own, value)?,
                None => value.clone(),
            };
            sum.0.insert(id.clone(), (key.clone(), value));
        }
        Ok(Variant::of(sum))
    }
}

impl Stored for TensorMap {
    const TYPE_NAME: &'static str = "tensorflow::TensorMap";

    fn decode(serialized: &Variant) -> Result<TensorMap> {
        let mut map = TensorMap::default();
        let pairs = serialized.tensors.chunks_exact(2);
        if !pairs.remainder().is_empty() {
            return Err(invalid_argument!("A map of tensors is malformed"));
        }
        for pair in pairs {
            map.insert(pair[0].clone(), pair[1].clone())?;
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_by_type_shape_and_elements() {
        let mut map = TensorMap::default();
        let keys = [Tensor::scalar(1i32), Tensor::scalar(1i64), Tensor::vector(&[1i32]), Tensor::scalar(2i32)];
        for (i, key) in keys.iter().enumerate() {
            map.insert(key.clone().unwrap(), Tensor::scalar(i as i32).unwrap()).unwrap();
        }
        assert_eq!(map.len(), 4);
        let value = |map: &TensorMap, key: Tensor| map.get(&key).unwrap().map(|v| v.scalar_value::<i32>().unwrap());
        assert_eq!(value(&map, Tensor::vector(&[1i32]).unwrap()), Some(2));
        let again = TensorMap::of(&map.serialize().unwrap()).unwrap().unwrap().into_owned();
        assert_eq!(value(&again, Tensor::scalar(2i32).unwrap()), Some(3));
        let sum = map.add(&Variant::of(again)).unwrap();
        assert_eq!(value(sum.get::<TensorMap>().unwrap(), Tensor::scalar(2i32).unwrap()), Some(6));
        assert!(map.remove(&Tensor::scalar(1i32).unwrap()).unwrap().is_some());
        assert_eq!(value(&map, Tensor::scalar(1i32).unwrap()), None);
    }
}
