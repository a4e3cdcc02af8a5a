//! Tensors put together and taken apart along their first dimension.

use graphmill_tensor::{Result, Tensor, internal, invalid_argument, resource_exhausted};

/// All rows of `parts`, in order.
///
/// # Errors
/// `INVALID_ARGUMENT` if ranks or dimensions after the first differ, or there are no parts.
pub(crate) fn concat(parts: &[Tensor]) -> Result<Tensor> {
    let first = parts.first().ok_or_else(|| invalid_argument!("Empty batch."))?;
    let shape = first.shape();
    let mut rows = 0_usize;
    for (i, part) in parts.iter().enumerate() {
        if part.shape().rank() != shape.rank() || shape.is_scalar() {
            return Err(invalid_argument!(
                "Ranks of all input tensors should match: shape[0] = {shape} vs. shape[{i}] = {}",
                part.shape()
            ));
        }
        if part.shape().dims().get(1..) != shape.dims().get(1..) {
            return Err(invalid_argument!(
                "Dimensions of inputs should match: shape[0] = {shape} vs. shape[{i}] = {}",
                part.shape()
            ));
        }
        rows = rows.checked_add(part.shape().dim(0)).ok_or_else(|| resource_exhausted!("A batch is too large"))?;
    }
    if let [only] = parts {
        return Ok(only.clone());
    }
    let mut whole = Tensor::alloc(first.dtype(), shape.with_dim(0, rows)?)?;
    let mut at = 0;
    for part in parts {
        whole.copy_elements(at, part, 0..part.num_elements())?;
        at += part.num_elements();
    }
    Ok(whole)
}

/// Consecutive rows of `tensor`, as many in each part as `sizes` says. Rows may be left over.
///
/// # Errors
/// `INVALID_ARGUMENT` if there are too few rows.
pub(crate) fn split(tensor: &Tensor, sizes: &[usize]) -> Result<Vec<Tensor>> {
    let total = sizes.iter().try_fold(0_usize, |sum, &size| sum.checked_add(size));
    let shape = tensor.shape();
    if shape.is_scalar() {
        return Err(internal!("a scalar has no rows"));
    }
    if total.is_none_or(|total| total > shape.dim(0)) {
        return Err(invalid_argument!("Sum of split sizes must not exceed dim0-size of input tensor"));
    }
    let mut start = 0;
    let mut part = |&size: &usize| {
        let part = tensor.rows(start, size);
        start += size;
        part
    };
    sizes.iter().map(&mut part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::{DType, Shape};

    #[test]
    fn what_is_put_together_comes_apart() {
        let x = Tensor::from_slice(Shape::new(&[3, 2]).unwrap(), &[1, 2, 3, 4, 5, 6]).unwrap();
        let y = Tensor::zeros(DType::Int32, Shape::new(&[0, 2]).unwrap()).unwrap();
        let whole = concat(&[x.clone(), y.clone(), x.clone()]).unwrap();
        assert_eq!(whole.shape().dims(), [6, 2]);
        let parts = split(&whole, &[3, 0, 2]).unwrap();
        assert_eq!(parts[0].as_slice::<i32>().unwrap(), x.as_slice::<i32>().unwrap());
        assert_eq!(parts[1].shape().dims(), [0, 2]);
        assert_eq!(parts[2].as_slice::<i32>().unwrap(), &[1, 2, 3, 4]);
        assert!(split(&whole, &[4, 3]).is_err() && split(&whole, &[usize::MAX, 2]).is_err());
        let narrow = Tensor::zeros(DType::Int32, Shape::new(&[3, 1]).unwrap()).unwrap();
        let error = concat(&[x, narrow]).err().unwrap();
        assert_eq!(error.message(), "Dimensions of inputs should match: shape[0] = [3,2] vs. shape[1] = [3,1]");
    }
}
