//! Values that may be missing.

use super::{Stored, sum_of, zeros_of};
use graphmill_tensor::{Result, Tensor, Variant, VariantObject, invalid_argument};
use prost::bytes::Bytes;

/// Some tensors, or nothing: what a dataset gives at its end.
#[derive(Clone, Debug, Default)]
pub struct Optional(pub Option<Vec<Tensor>>);

impl VariantObject for Optional {
    fn type_name(&self) -> &str {
        Optional::TYPE_NAME
    }

    fn serialize(&self) -> Result<Variant> {
        Ok(Variant {
            type_name: Optional::TYPE_NAME.to_owned(),
            metadata: Bytes::copy_from_slice(&[u8::from(self.0.is_some())]),
            tensors: self.0.clone().unwrap_or_default(),
            object: None,
        })
    }

    fn zeros_like(&self) -> Result<Variant> {
        let zeros = self.0.as_ref().map(|tensors| tensors.iter().map(zeros_of).collect::<Result<_>>());
        Ok(Variant::of(Optional(zeros.transpose()?)))
    }

    fn add(&self, other: &Variant) -> Result<Variant> {
        let Some(other) = Optional::of(other)? else {
            return Err(invalid_argument!("An optional cannot be added to a {}", other.type_name));
        };
        let sum = match (&self.0, &other.0) {
            (None, None) => None,
            (Some(a), Some(b)) if a.len() == b.len() => {
                Some(a.iter().zip(b).map(|(a, b)| sum_of(a, b)).collect::<Result<_>>()?)
            }
            (Some(a), Some(b)) => {
                return Err(invalid_argument!(
                    "Cannot add optionals because they have different numbers of components ({} vs. {}).",
                    a.len(),
                    b.len()
                ));
            }
            _ => {
                return Err(invalid_argument!("Cannot add optionals because one has a value and the other doesn't."));
            }
        };
        Ok(Variant::of(Optional(sum)))
    }
}

impl Stored for Optional {
    const TYPE_NAME: &'static str = "tensorflow::data::Optional";

    fn decode(serialized: &Variant) -> Result<Optional> {
        match (&serialized.metadata[..], serialized.tensors.as_slice()) {
            ([0], []) => Ok(Optional(None)),
            ([1], tensors) => Ok(Optional(Some(tensors.to_vec()))),
            _ => Err(invalid_argument!("An optional is malformed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optionals_come_back_and_are_added() {
        let some = Optional(Some(vec![Tensor::scalar(2f32).unwrap()]));
        for optional in [some.clone(), Optional(None)] {
            let serialized = optional.serialize().unwrap();
            let again = Optional::of(&serialized).unwrap().unwrap().into_owned();
            assert_eq!(again.0.map(|t| t.len()), optional.0.map(|t| t.len()));
        }
        let sum = some.add(&Variant::of(some.clone())).unwrap();
        let sum = sum.get::<Optional>().unwrap().0.as_ref().unwrap()[0].scalar_value::<f32>().unwrap();
        assert_eq!(sum, 4.0);
        assert!(some.add(&Variant::of(Optional(None))).is_err());
        assert!(Optional::decode(&Variant::default()).is_err());
    }
}
