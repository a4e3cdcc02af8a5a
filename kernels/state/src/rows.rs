//! Indices that name rows or slices of a tensor, checked before anything is written.

use graphmill_tensor::{DType, Mover, Result, Shape, Tensor, internal, invalid_argument};

/// The elements of an int32 or int64 tensor, widened.
///
/// # Errors
/// `INTERNAL` if the tensor is of another type.
pub(crate) fn indices(tensor: &Tensor) -> Result<Indices<'_>> {
    match tensor.dtype() {
        DType::Int32 => Ok(Indices::Narrow(tensor.as_slice()?)),
        DType::Int64 => Ok(Indices::Wide(tensor.as_slice()?)),
        other => Err(internal!("indices cannot be of type {other}")),
    }
}

/// Indices of either type.
#[derive(Clone, Copy)]
pub(crate) enum Indices<'t> {
    Narrow(&'t [i32]),
    Wide(&'t [i64]),
}

impl Indices<'_> {
    /// How many there are.
    pub fn len(self) -> usize {
        match self {
            Indices::Narrow(values) => values.len(),
            Indices::Wide(values) => values.len(),
        }
    }

    /// The index at position `i`, which must be less than their number.
    pub fn get(self, i: usize) -> i64 {
        match self {
            Indices::Narrow(values) => i64::from(values[i]),
            Indices::Wide(values) => values[i],
        }
    }
}

/// The rows that indices name, all of them below `limit`.
///
/// # Errors
/// `INVALID_ARGUMENT` naming the first one that is not.
pub(crate) fn rows_below(tensor: &Tensor, limit: usize) -> Result<Vec<usize>> {
    let indices = indices(tensor)?;
    let mut rows = Vec::with_capacity(indices.len());
    for i in 0..indices.len() {
        let index = indices.get(i);
        match usize::try_from(index) {
            Ok(row) if row < limit => rows.push(row),
            _ => {
                return Err(invalid_argument!(
                    "indices{} = {index} is not in [0, {limit})",
                    position(tensor.shape().dims(), i)
                ));
            }
        }
    }
    Ok(rows)
}

/// Where element `i` stands in a tensor of these sizes, as TensorFlow prints it: `[1,2]`, or nothing for a scalar.
pub(crate) fn position(dims: &[usize], i: usize) -> String {
    let mut rest = i;
    let mut parts: Vec<String> = Vec::with_capacity(dims.len());
    for &dim in dims.iter().rev() {
        parts.push((rest % dim.max(1)).to_string());
        rest /= dim.max(1);
    }
    parts.reverse();
    if parts.is_empty() { String::new() } else { format!("[{}]", parts.join(",")) }
}

/// The places of slices that index vectors name: element offsets into a tensor of shape `shape`, `None` for a vector that names no
/// slice. `depth` is the length of a vector.
pub(crate) fn slice_offsets(indices: Indices<'_>, depth: usize, count: usize, shape: &Shape) -> Vec<Option<usize>> {
    let strides = shape.strides();
    let offset = |vector: usize| {
        (0..depth).try_fold(0, |offset, d| match usize::try_from(indices.get(vector * depth + d)) {
            Ok(index) if index < shape.dim(d) => Some(offset + index * strides[d]),
            _ => None,
        })
    };
    (0..count).map(offset).collect()
}

/// Index vector number `i` as TensorFlow prints it: `[0, 7]`.
pub(crate) fn vector_text(indices: Indices<'_>, depth: usize, i: usize) -> String {
    let parts: Vec<String> = (0..depth).map(|d| indices.get(i * depth + d).to_string()).collect();
    format!("[{}]", parts.join(", "))
}

/// Copies parts of the source, one after the other, to or from given offsets.
pub(crate) struct Parts<'a> {
    /// Element offsets; `None` is passed over.
    pub offsets: &'a [Option<usize>],
    /// Elements in a part.
    pub width: usize,
    /// Whether the offsets are those of the target; otherwise of the source.
    pub scatter: bool,
}

impl Mover for Parts<'_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let (Some(source), width) = (sources.first(), self.width) else { return };
        for (i, offset) in self.offsets.iter().enumerate() {
            let Some(offset) = *offset else { continue };
            let (to, from) = if self.scatter { (offset, i * width) } else { (i * width, offset) };
            match (target.get_mut(to..to + width), source.get(from..from + width)) {
                (Some([to]), Some([from])) => *to = from.clone(),
                (Some(to), Some(from)) => to.clone_from_slice(from),
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_bad_indices_are_spelled_as_tensorflow_does() {
        assert_eq!(position(&[], 0), "");
        assert_eq!(position(&[3], 2), "[2]");
        assert_eq!(position(&[2, 3], 5), "[1,2]");
        let tensor = Tensor::from_slice(Shape::new(&[1, 2]).unwrap(), &[0i32, -1]).unwrap();
        assert_eq!(rows_below(&tensor, 2).unwrap_err().message(), "indices[0,1] = -1 is not in [0, 2)");
        assert_eq!(rows_below(&Tensor::vector(&[1i64, 0]).unwrap(), 2).unwrap(), [1, 0]);
    }

    #[test]
    fn offsets_of_slices() {
        let shape = Shape::new(&[2, 3]).unwrap();
        let values = [1, 2, 0, 3, -1, 0];
        let offsets = slice_offsets(Indices::Wide(&values), 2, 3, &shape);
        assert_eq!(offsets, [Some(5), None, None]);
        assert_eq!(slice_offsets(Indices::Wide(&values[..1]), 1, 1, &shape), [Some(3)]);
        assert_eq!(vector_text(Indices::Wide(&values), 2, 1), "[0, 3]");
    }
}
