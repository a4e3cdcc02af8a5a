//! Shapes of tensors.

use crate::{Result, invalid_argument};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// TensorFlow's limit on the number of dimensions.
pub const MAX_RANK: usize = 254;

/// Dimensions that a shape holds without memory of its own.
const FEW: usize = 4;

/// A fully known shape whose element count is known to fit. Cloning copies a few words, whatever the number of dimensions.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: Dims,
    elements: usize,
}

/// The shape of a scalar, where one is only looked at.
pub static SCALAR: Shape = Shape { dims: Dims::Few { rank: 0, sizes: [0; FEW] }, elements: 1 };

/// The sizes. There is one form for each number of them, so that equal shapes are equal in form.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Dims {
    /// Up to [`FEW`]; those past the rank are 0.
    Few {
        rank: u8,
        sizes: [usize; FEW],
    },
    Many(Arc<[usize]>),
}

impl Dims {
    #[inline]
    fn as_slice(&self) -> &[usize] {
        match self {
            Dims::Few { rank, sizes } => sizes.get(..usize::from(*rank)).unwrap_or(sizes),
            Dims::Many(sizes) => sizes,
        }
    }
}

impl From<&[usize]> for Dims {
    fn from(dims: &[usize]) -> Dims {
        let mut sizes = [0; FEW];
        match (sizes.get_mut(..dims.len()), u8::try_from(dims.len())) {
            (Some(few), Ok(rank)) => {
                few.copy_from_slice(dims);
                Dims::Few { rank, sizes }
            }
            _ => Dims::Many(dims.into()),
        }
    }
}

impl Shape {
    /// The shape of a scalar: no dimensions, one element.
    pub fn scalar() -> Shape {
        Shape { dims: Dims::Few { rank: 0, sizes: [0; FEW] }, elements: 1 }
    }

    /// The shape of a vector of `length` elements. `length` comes from something in memory, so it fits.
    pub fn vector(length: usize) -> Shape {
        Shape { dims: Dims::Few { rank: 1, sizes: [length, 0, 0, 0] }, elements: length }
    }

    /// A shape from signed sizes as they stand on the wire and in shape tensors.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a negative size, more than 254 dimensions, or 2^63 elements and more.
    pub fn new(dims: &[i64]) -> Result<Shape> {
        let mut sizes = SmallVec::<[usize; 4]>::with_capacity(dims.len());
        for (axis, &dim) in dims.iter().enumerate() {
            match usize::try_from(dim) {
                Ok(size) => sizes.push(size),
                Err(_) => {
                    return Err(invalid_argument!(
                        "Expected shape dimensions to be non-negative, got {dim} at index {axis}"
                    ));
                }
            }
        }
        Shape::from_dims(&sizes)
    }

    /// A shape from sizes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for more than 254 dimensions, or 2^63 elements and more.
    pub fn from_dims(dims: &[usize]) -> Result<Shape> {
        if dims.len() > MAX_RANK {
            return Err(invalid_argument!("Shape has {} dimensions; the limit is {MAX_RANK}", dims.len()));
        }
        let fits = |n: &usize| i64::try_from(*n).is_ok();
        // TensorFlow multiplies in order and rejects an overflow even if a later dimension is 0.
        match dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d).filter(fits)) {
            Some(elements) => Ok(Shape { dims: dims.into(), elements }),
            None => {
                let sizes: Vec<String> = dims.iter().map(usize::to_string).collect();
                Err(invalid_argument!(
                    "Shape [{}] results in overflow when computing number of elements",
                    sizes.join(",")
                ))
            }
        }
    }

    /// The sizes, outermost first.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        self.dims.as_slice()
    }

    /// The sizes as TensorFlow's shape tensors hold them.
    pub fn dims_i64(&self) -> impl ExactSizeIterator<Item = i64> + '_ {
        self.dims().iter().map(|&d| d as i64)
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims().len()
    }

    /// The size of a dimension; 1 past the last one.
    pub fn dim(&self, axis: usize) -> usize {
        self.dims().get(axis).copied().unwrap_or(1)
    }

    /// The number of elements.
    #[inline]
    pub fn num_elements(&self) -> usize {
        self.elements
    }

    /// Whether this is the shape of a scalar.
    #[inline]
    pub fn is_scalar(&self) -> bool {
        self.dims().is_empty()
    }

    /// Whether there is exactly one dimension.
    pub fn is_vector(&self) -> bool {
        self.dims().len() == 1
    }

    /// Whether there are exactly two dimensions.
    pub fn is_matrix(&self) -> bool {
        self.dims().len() == 2
    }

    /// Elements from one index of `axis` to the next in row-major order: the product of the sizes behind it.
    pub fn stride(&self, axis: usize) -> usize {
        self.dims().iter().skip(axis + 1).product()
    }

    /// The shape with dimension `axis` replaced.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the axis does not exist or the element count overflows.
    pub fn with_dim(&self, axis: usize, size: usize) -> Result<Shape> {
        let mut dims = SmallVec::<[usize; FEW]>::from_slice(self.dims());
        match dims.get_mut(axis) {
            Some(dim) => *dim = size,
            None => {
                return Err(invalid_argument!("Axis {axis} is out of range for shape {self}"));
            }
        }
        Shape::from_dims(&dims)
    }

    /// The row-major strides, in elements.
    pub fn strides(&self) -> SmallVec<[usize; 4]> {
        let mut strides = SmallVec::from_elem(1, self.rank());
        for axis in (0..self.rank().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * self.dims()[axis + 1];
        }
        strides
    }
}

/// As TensorFlow prints shapes: `[2,3]`, `[]`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, dim) in self.dims().iter().enumerate() {
            write!(f, "{}{dim}", if axis == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_off_the_wire_are_checked() {
        assert_eq!(Shape::new(&[2, 0, 3]).unwrap().num_elements(), 0);
        assert!(Shape::new(&[2, -1]).is_err());
        assert!(Shape::new(&[1 << 32, 1 << 31]).is_err());
        assert!(Shape::new(&[1 << 32, 1 << 32, 0]).is_err());
        assert!(Shape::new(&[1; 254]).is_ok());
        assert!(Shape::new(&[1; 255]).is_err());
        assert_eq!(Shape::new(&[0, i64::MAX]).unwrap().num_elements(), 0);
    }

    #[test]
    fn strides_are_row_major() {
        let shape = Shape::new(&[2, 3, 4]).unwrap();
        assert_eq!(shape.strides().as_slice(), &[12, 4, 1]);
        assert_eq!((0..3).map(|a| shape.stride(a)).collect::<Vec<_>>(), [12, 4, 1]);
        assert_eq!(shape.to_string(), "[2,3,4]");
        assert_eq!(Shape::scalar().to_string(), "[]");
    }
}
