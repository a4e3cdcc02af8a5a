//! Tensors as arrays of the crate `ndarray`, and back.

use graphmill_tensor::{Bytes, DType, Element, Result, Shape, Tensor, internal, invalid_argument};
use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

/// A tensor with a copy of an array's numbers, whatever the array's order in memory.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` if there is not that much memory; `INVALID_ARGUMENT` for more than 254 dimensions.
pub fn from_array<T, S, D>(array: &ArrayBase<S, D>) -> Result<Tensor>
where
    T: Element,
    S: Data<Elem = T>,
    D: Dimension,
{
    let shape = Shape::from_dims(array.shape())?;
    if let Some(values) = array.as_slice() {
        return Tensor::from_slice(shape, values);
    }
    let mut tensor = Tensor::alloc(T::DTYPE, shape)?;
    tensor.as_mut_slice::<T>()?.iter_mut().zip(array).for_each(|(to, &value)| *to = value);
    Ok(tensor)
}

/// A tensor of strings from an array of them.
///
/// # Errors
/// `INVALID_ARGUMENT` for more than 254 dimensions.
pub fn from_string_array<T, S, D>(array: &ArrayBase<S, D>) -> Result<Tensor>
where
    T: AsRef<[u8]>,
    S: Data<Elem = T>,
    D: Dimension,
{
    let strings = array.iter().map(|text| Bytes::copy_from_slice(text.as_ref())).collect();
    Tensor::from_strings(Shape::from_dims(array.shape())?, strings)
}

/// An array with a copy of a tensor's numbers.
///
/// # Errors
/// `INVALID_ARGUMENT` if the elements are of another type.
pub fn to_array<T: Element>(tensor: &Tensor) -> Result<ArrayD<T>> {
    check_type(tensor, T::DTYPE)?;
    shaped(tensor, tensor.as_slice::<T>()?.to_vec())
}

/// An array of a tensor's strings, which may be any bytes.
///
/// # Errors
/// `INVALID_ARGUMENT` if the elements are not strings.
pub fn to_string_array(tensor: &Tensor) -> Result<ArrayD<Bytes>> {
    check_type(tensor, DType::String)?;
    shaped(tensor, tensor.strings()?.to_vec())
}

fn check_type(tensor: &Tensor, wanted: DType) -> Result<()> {
    if tensor.dtype() == wanted {
        return Ok(());
    }
    Err(invalid_argument!("A tensor of type {} is no array of {wanted}", tensor.dtype()))
}

fn shaped<T>(tensor: &Tensor, values: Vec<T>) -> Result<ArrayD<T>> {
    ArrayD::from_shape_vec(IxDyn(tensor.shape().dims()), values)
        .map_err(|error| internal!("A tensor of shape {} is no array: {error}", tensor.shape()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::{Code, Complex64, bf16, f16};
    use ndarray::{Array0, Array1, Array2, arr2};

    #[test]
    fn numbers_come_back() {
        let array = arr2(&[[1i16, 2, 3], [4, 5, 6]]);
        let tensor = from_array(&array).unwrap();
        assert_eq!(tensor.shape().dims(), [2, 3]);
        assert_eq!(to_array::<i16>(&tensor).unwrap(), array.into_dyn());
        assert_eq!(to_array::<i32>(&tensor).unwrap_err().code(), Code::InvalidArgument);
        let scalar = from_array(&Array0::from_elem((), bf16::from_f32(1.5))).unwrap();
        assert_eq!((scalar.dtype(), scalar.shape().rank()), (DType::BFloat16, 0));
        let none = from_array(&Array2::<f16>::from_elem((0, 4), f16::ONE)).unwrap();
        assert_eq!(to_array::<f16>(&none).unwrap().shape(), [0, 4]);
        assert_eq!(from_array(&Array1::<Complex64>::zeros(2)).unwrap().dtype(), DType::Complex128);
        assert_eq!(from_array(&Array1::from_elem(2, true)).unwrap().dtype(), DType::Bool);
    }

    #[test]
    fn other_orders_in_memory_are_taken() {
        let array = arr2(&[[1u8, 2, 3], [4, 5, 6]]);
        let tensor = from_array(&array.t()).unwrap();
        assert_eq!(tensor.shape().dims(), [3, 2]);
        assert_eq!(tensor.as_slice::<u8>().unwrap(), [1, 4, 2, 5, 3, 6]);
    }

    #[test]
    fn strings_come_back() {
        let tensor = from_string_array(&arr2(&[["a", ""], ["\u{fc}", "d"]])).unwrap();
        let array = to_string_array(&tensor).unwrap();
        assert_eq!(array[[1, 0]], "\u{fc}".as_bytes());
        assert_eq!(array.shape(), [2, 2]);
        assert!(to_array::<f32>(&tensor).is_err() && to_string_array(&from_array(&arr2(&[[1f32]])).unwrap()).is_err());
    }
}
