//! Shapes of which not everything need be known.

use graphmill_tensor::{MAX_RANK, Result, Shape, invalid_argument};
use graphmill_wire::tensorflow::TensorShapeProto;
use graphmill_wire::tensorflow::tensor_shape_proto::Dim;
use smallvec::SmallVec;
use std::fmt;

/// A shape as it stands in an attribute: the rank or single sizes may be unknown.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PartialShape {
    dims: Option<SmallVec<[i64; 4]>>,
}

impl PartialShape {
    /// The shape of which nothing is known.
    pub fn unknown() -> PartialShape {
        PartialShape { dims: None }
    }

    /// A shape of known rank; -1 stands for an unknown size.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for sizes below -1, more than 254 dimensions, or 2^63 elements and more.
    pub fn new(dims: &[i64]) -> Result<PartialShape> {
        let shape = PartialShape { dims: Some(SmallVec::from_slice(dims)) };
        if dims.len() > MAX_RANK {
            return Err(invalid_argument!("Shape {shape} has too many dimensions"));
        }
        if dims.iter().any(|&d| d < -1) {
            return Err(invalid_argument!(
                "Shape {shape} has dimensions with values below -1 (where -1 means unknown)"
            ));
        }
        // As TensorFlow multiplies: in order, up to the first unknown size.
        let mut known = dims.iter().take_while(|&&d| d >= 0);
        if known.try_fold(1i64, |n, &d| n.checked_mul(d)).is_none() {
            return Err(invalid_argument!("Shape {shape} is too large (more than 2**63 - 1 entries)"));
        }
        Ok(shape)
    }

    /// A shape off the wire.
    ///
    /// # Errors
    /// As [`PartialShape::new`]; also `INVALID_ARGUMENT` for an unknown rank together with dimensions.
    pub fn from_proto(proto: &TensorShapeProto) -> Result<PartialShape> {
        if !proto.unknown_rank {
            let dims: SmallVec<[i64; 8]> = proto.dim.iter().map(|d| d.size).collect();
            return PartialShape::new(&dims);
        }
        if !proto.dim.is_empty() {
            return Err(invalid_argument!("An unknown shape must not have any dimensions set."));
        }
        Ok(PartialShape::unknown())
    }

    /// This shape for the wire.
    pub fn to_proto(&self) -> TensorShapeProto {
        match &self.dims {
            None => TensorShapeProto { dim: Vec::new(), unknown_rank: true },
            Some(dims) => TensorShapeProto {
                dim: dims.iter().map(|&size| Dim { size, name: String::new() }).collect(),
                unknown_rank: false,
            },
        }
    }

    /// The number of dimensions, if known.
    pub fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(SmallVec::len)
    }

    /// The sizes, -1 where unknown; `None` if not even the rank is known.
    pub fn dims(&self) -> Option<&[i64]> {
        self.dims.as_deref()
    }

    /// The shape itself, if everything is known.
    pub fn to_shape(&self) -> Option<Shape> {
        Shape::new(self.dims()?).ok()
    }

    /// Whether every size is known.
    pub fn is_fully_defined(&self) -> bool {
        self.dims.as_ref().is_some_and(|dims| dims.iter().all(|&dim| dim >= 0))
    }

    /// What this shape and another say together.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if they contradict each other.
    pub fn merged(&self, other: &PartialShape) -> Result<PartialShape> {
        let (Some(a), Some(b)) = (&self.dims, &other.dims) else {
            return Ok(if self.dims.is_some() { self.clone() } else { other.clone() });
        };
        if a.len() != b.len() {
            return Err(invalid_argument!(
                "PartialTensorShape: Incompatible ranks during merge: {} vs. {}",
                a.len(),
                b.len()
            ));
        }
        let merge = |(&a, &b): (&i64, &i64)| match (a, b) {
            (-1, known) | (known, -1) => Some(known),
            (a, b) => (a == b).then_some(a),
        };
        match a.iter().zip(b).map(merge).collect::<Option<SmallVec<[i64; 4]>>>() {
            Some(dims) => PartialShape::new(&dims),
            None => Err(invalid_argument!("PartialTensorShape: Incompatible shapes during merge: {self} vs. {other}")),
        }
    }

    /// Whether a tensor of this shape may stand where `self` is declared.
    pub fn is_compatible_with(&self, shape: &Shape) -> bool {
        match &self.dims {
            None => true,
            Some(dims) => {
                dims.len() == shape.rank() && dims.iter().zip(shape.dims_i64()).all(|(&d, size)| d == -1 || d == size)
            }
        }
    }
}

impl From<&Shape> for PartialShape {
    fn from(shape: &Shape) -> PartialShape {
        PartialShape { dims: Some(shape.dims_i64().collect()) }
    }
}

/// As TensorFlow prints it: `[2,?]`, `<unknown>`.
impl fmt::Display for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(dims) = &self.dims else { return f.write_str("<unknown>") };
        f.write_str("[")?;
        for (axis, &dim) in dims.iter().enumerate() {
            f.write_str(if axis == 0 { "" } else { "," })?;
            if dim == -1 { f.write_str("?")? } else { write!(f, "{dim}")? }
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_off_the_wire_are_checked() {
        let proto = |dims: &[i64], unknown_rank| TensorShapeProto {
            dim: dims.iter().map(|&size| Dim { size, name: String::new() }).collect(),
            unknown_rank,
        };
        let shape = PartialShape::from_proto(&proto(&[2, -1], false)).unwrap();
        assert_eq!((shape.to_string().as_str(), shape.rank()), ("[2,?]", Some(2)));
        assert_eq!(shape.to_proto(), proto(&[2, -1], false));
        assert_eq!(PartialShape::from_proto(&proto(&[], true)).unwrap(), PartialShape::unknown());
        for (dims, unknown_rank, text) in [
            (&[1][..], true, "An unknown shape must not have any dimensions set."),
            (&[-2], false, "Shape [-2] has dimensions with values below -1 (where -1 means unknown)"),
            (&[i64::MAX, 2], false, "Shape [9223372036854775807,2] is too large (more than 2**63 - 1 entries)"),
        ] {
            assert_eq!(PartialShape::from_proto(&proto(dims, unknown_rank)).unwrap_err().message(), text);
        }
        assert!(PartialShape::new(&[-1, i64::MAX, 2]).is_ok());
        assert!(PartialShape::new(&[1; 255]).is_err());
    }

    #[test]
    fn compatibility_and_full_knowledge() {
        let shape = Shape::new(&[2, 3]).unwrap();
        assert!(PartialShape::unknown().is_compatible_with(&shape));
        assert!(PartialShape::new(&[-1, 3]).unwrap().is_compatible_with(&shape));
        assert!(!PartialShape::new(&[-1, 4]).unwrap().is_compatible_with(&shape));
        assert!(!PartialShape::new(&[-1]).unwrap().is_compatible_with(&shape));
        assert_eq!(PartialShape::from(&shape).to_shape(), Some(shape));
        assert_eq!(PartialShape::new(&[-1]).unwrap().to_shape(), None);
        let partial = |dims: &[i64]| PartialShape::new(dims).unwrap();
        assert_eq!(partial(&[-1, 3]).merged(&partial(&[2, -1])).unwrap(), partial(&[2, 3]));
        assert_eq!(partial(&[2]).merged(&PartialShape::unknown()).unwrap(), partial(&[2]));
        assert!(partial(&[2]).merged(&partial(&[3])).is_err() && partial(&[2]).merged(&partial(&[2, 1])).is_err());
        assert!(partial(&[2]).is_fully_defined() && !partial(&[-1]).is_fully_defined());
    }
}
