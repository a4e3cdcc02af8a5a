//! What to take out of examples.

use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};

/// A feature with as many values in every example, or a multiple of a stride of them.
#[derive(Clone, Debug)]
pub struct Dense {
    /// Its name.
    pub key: Bytes,
    /// Its element type.
    pub dtype: DType,
    /// The shape of its value; without the first dimension if that varies.
    pub shape: Shape,
    /// Whether the first dimension varies.
    pub variable: bool,
    /// What stands in for a missing value, or fills up one that varies; a tensor without elements if the feature has to be there.
    pub default: Tensor,
}

/// A feature with any number of values, to become a sparse tensor.
#[derive(Clone, Debug)]
pub struct Sparse {
    /// Its name.
    pub key: Bytes,
    /// Its element type.
    pub dtype: DType,
}

/// A feature with any number of values, to become a ragged tensor.
#[derive(Clone, Debug)]
pub struct Ragged {
    /// Its name.
    pub key: Bytes,
    /// Its element type.
    pub dtype: DType,
    /// `int32` or `int64`: the type of the positions at which rows end.
    pub splits: DType,
}

/// All features to take out of examples.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Dense ones.
    pub dense: Vec<Dense>,
    /// Sparse ones.
    pub sparse: Vec<Sparse>,
    /// Ragged ones.
    pub ragged: Vec<Ragged>,
}

impl Dense {
    /// Splits a declared shape, in which -1 is unknown, into the shape of a value (or of a stride) and whether the first dimension
    /// varies.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the rank or any other dimension is unknown.
    pub fn split_shape(dims: Option<&[i64]>, position: usize) -> Result<(Shape, bool)> {
        let bad = || {
            let shape = match dims {
                Some(dims) => {
                    let sizes: Vec<String> =
                        dims.iter().map(|&d| if d < 0 { "?".to_owned() } else { d.to_string() }).collect();
                    format!("[{}]", sizes.join(","))
                }
                None => "<unknown>".to_owned(),
            };
            invalid_argument!("dense_shapes[{position}] has unknown rank or unknown inner dimensions: {shape}")
        };
        let dims = dims.ok_or_else(bad)?;
        let variable = dims.first().is_some_and(|&size| size < 0);
        let inner = if variable { dims.get(1..).unwrap_or_default() } else { dims };
        if inner.iter().any(|&size| size < 0) {
            return Err(bad());
        }
        Ok((Shape::new(inner)?, variable))
    }

    /// The declared shape, as errors show it.
    pub(crate) fn declared(&self) -> String {
        if !self.variable {
            return self.shape.to_string();
        }
        let sizes: Vec<String> =
            std::iter::once("?".to_owned()).chain(self.shape.dims().iter().map(usize::to_string)).collect();
        format!("[{}]", sizes.join(","))
    }

    /// Checks a default against the declared shape and type; `position` is that of the feature among the dense ones.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it does not fit.
    pub fn check_default(&self, position: usize) -> Result<()> {
        let (default, declared) = (&self.default, self.declared());
        let count = default.num_elements();
        if self.variable {
            if count != 1 {
                return Err(invalid_argument!(
                    "dense_shape[{position}] is a variable length shape: {declared}, therefore def_value[{position}] must contain \
                     a single element (the padding element).  But its shape is: {}",
                    default.shape()
                ));
            }
        } else if count > 0 && *default.shape() != self.shape {
            return Err(invalid_argument!(
                "def_value[{position}].shape() == {} is not compatible with dense_shapes_[{position}] == {declared}",
                default.shape()
            ));
        }
        if default.dtype() != self.dtype {
            return Err(invalid_argument!(
                "dense_defaults[{position}].dtype() == {} != dense_types_[{position}] == {}",
                default.dtype(),
                self.dtype
            ));
        }
        Ok(())
    }
}
