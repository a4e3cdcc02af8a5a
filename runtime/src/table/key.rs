//! Keys of tables.

use crate::{hash64, hash64_combine};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};

/// A key: an integer, a string, or several of either.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Key {
    Int(i64),
    Text(Bytes),
    Many(Box<[Key]>),
}

impl Key {
    /// TensorFlow's hash, on which the buckets of dense tables depend.
    pub fn hash(&self) -> u64 {
        match self {
            Key::Int(value) => *value as u64,
            Key::Text(text) => hash64(text),
            Key::Many(parts) => parts.iter().fold(0, |hash, part| hash64_combine(hash, part.hash())),
        }
    }

    fn parts(&self) -> &[Key] {
        match self {
            Key::Many(parts) => parts,
            single => std::slice::from_ref(single),
        }
    }
}

/// The elements of a tensor as keys of `size` elements each.
///
/// # Errors
/// `INVALID_ARGUMENT` for a type that cannot be a key.
pub(super) fn keys_of(tensor: &Tensor, size: usize) -> Result<Vec<Key>> {
    let singles: Vec<Key> = match tensor.dtype() {
        DType::Int32 => tensor.as_slice::<i32>()?.iter().map(|&v| Key::Int(i64::from(v))).collect(),
        DType::Int64 => tensor.as_slice::<i64>()?.iter().map(|&v| Key::Int(v)).collect(),
        DType::String => tensor.strings()?.iter().map(|v| Key::Text(v.clone())).collect(),
        other => return Err(invalid_argument!("Data type {other} not supported.")),
    };
    if size == 1 {
        return Ok(singles);
    }
    Ok(singles.chunks_exact(size.max(1)).map(|parts| Key::Many(parts.into())).collect())
}

/// Keys as a tensor.
///
/// # Errors
/// `INVALID_ARGUMENT` if keys and shape do not go together.
pub(super) fn keys_to_tensor<'a>(keys: impl Iterator<Item = &'a Key>, dtype: DType, shape: Shape) -> Result<Tensor> {
    let parts = keys.flat_map(Key::parts);
    let int = |key: &Key| if let Key::Int(value) = key { *value } else { 0 };
    let text = |key: &Key| if let Key::Text(value) = key { value.clone() } else { Bytes::new() };
    match dtype {
        DType::Int32 => Tensor::from_slice(shape, &parts.map(|key| int(key) as i32).collect::<Vec<i32>>()),
        DType::Int64 => Tensor::from_slice(shape, &parts.map(int).collect::<Vec<i64>>()),
        _ => Tensor::from_strings(shape, parts.map(text).collect()),
    }
}
