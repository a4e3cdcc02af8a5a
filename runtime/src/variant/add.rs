//! The sum of two tensors within variants.

use super::sum_of_variants;
use graphmill_tensor::{DType, Element, Result, Tensor, dispatch, invalid_argument};
use std::ops::Add;

/// The sum of two tensors of one type and shape; of variants, what [`sum_of_variants`] makes.
///
/// # Errors
/// `INVALID_ARGUMENT` if types or shapes differ, or the type cannot be added.
pub fn sum_of(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.dtype() != b.dtype() {
        return Err(invalid_argument!(
            "Trying to add two tensors with incompatible element types. One is {} and the other is {}",
            a.dtype(),
            b.dtype()
        ));
    }
    if a.shape() != b.shape() {
        return Err(invalid_argument!(
            "Trying to add two tensors with incompatible element shapes. One is {} and the other is {}",
            a.shape(),
            b.shape()
        ));
    }
    if a.dtype() == DType::Variant {
        let sums = a.variants()?.iter().zip(b.variants()?).map(|(a, b)| sum_of_variants(a, b));
        return Tensor::from_variants(a.shape().clone(), sums.collect::<Result<_>>()?);
    }
    if let Some(sum) = dispatch!(a.dtype(), T in integers => each::<T>(a, b, |a, b| a.wrapping_add(b))) {
        return sum;
    }
    let sum = dispatch!(a.dtype(), T in [
        f32, f64, graphmill_tensor::f16, graphmill_tensor::bf16, graphmill_tensor::Complex32, graphmill_tensor::Complex64
    ] => each::<T>(a, b, T::add));
    sum.unwrap_or_else(|| Err(invalid_argument!("Trying to add unsupported dtype {}", a.dtype())))
}

fn each<T: Element>(a: &Tensor, b: &Tensor, add: impl Fn(T, T) -> T) -> Result<Tensor> {
    let mut sum = Tensor::alloc(a.dtype(), a.shape().clone())?;
    let pairs = a.as_slice::<T>()?.iter().zip(b.as_slice::<T>()?);
    for (sum, (&a, &b)) in sum.as_mut_slice::<T>()?.iter_mut().zip(pairs) {
        *sum = add(a, b);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_added() {
        let sum = sum_of(&Tensor::vector(&[1u8, 255]).unwrap(), &Tensor::vector(&[2u8, 1]).unwrap()).unwrap();
        assert_eq!(sum.as_slice::<u8>().unwrap(), [3, 0]);
        let sum = sum_of(&Tensor::scalar(1.5f32).unwrap(), &Tensor::scalar(2f32).unwrap()).unwrap();
        assert_eq!(sum.scalar_value::<f32>().unwrap(), 3.5);
        assert!(sum_of(&Tensor::scalar(1f32).unwrap(), &Tensor::vector(&[1f32]).unwrap()).is_err());
        assert!(sum_of(&Tensor::scalar(true).unwrap(), &Tensor::scalar(true).unwrap()).is_err());
    }
}
