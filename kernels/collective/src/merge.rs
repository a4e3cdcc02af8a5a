//! Elementwise combination of sections, in place where nobody else has them.

use graphmill_tensor::{Element, Result, Tensor, bf16, dispatch, f16, internal, invalid_argument};

/// How two values become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    Add,
    Mul,
    Min,
    Max,
}

impl Merge {
    /// # Errors
    /// `INVALID_ARGUMENT` for another name.
    pub fn parse(name: &str) -> Result<Merge> {
        match name {
            "Add" => Ok(Merge::Add),
            "Mul" => Ok(Merge::Mul),
            "Min" => Ok(Merge::Min),
            "Max" => Ok(Merge::Max),
            _ => {
                Err(invalid_argument!("merge_op must be one of {{\"Min\", \"Max\", \"Mul\", \"Add\"}} but got {name}"))
            }
        }
    }

    /// The op that does the same with two tensors.
    pub fn op(self) -> &'static str {
        match self {
            Merge::Add => "Add",
            Merge::Mul => "Mul",
            Merge::Min => "Minimum",
            Merge::Max => "Maximum",
        }
    }

    /// Combines the own section with that of another device.
    ///
    /// # Errors
    /// `INTERNAL` for sections that differ in type or length, or a type that is not reduced.
    pub fn merge(self, own: &Tensor, other: Tensor) -> Result<Tensor> {
        match dispatch!(own.dtype(), T in [f32, f64, f16, bf16, i32, i64] => self.merge_as::<T>(own, other)) {
            Some(merged) => merged,
            None => Err(internal!("{} cannot be reduced", own.dtype())),
        }
    }

    fn merge_as<T: Number>(self, own: &Tensor, other: Tensor) -> Result<Tensor> {
        match self {
            Merge::Add => combine::<T>(own, other, T::plus),
            Merge::Mul => combine::<T>(own, other, T::times),
            Merge::Min => combine::<T>(own, other, |a, b| if a < b || a.is_nan() { a } else { b }),
            Merge::Max => combine::<T>(own, other, |a, b| if a > b || a.is_nan() { a } else { b }),
        }
    }
}

/// Divides a section by the size of the group.
///
/// # Errors
/// `INTERNAL` for a type that is not reduced.
pub(crate) fn divide(section: Tensor, group_size: usize) -> Result<Tensor> {
    match dispatch!(section.dtype(), T in [f32, f64, f16, bf16, i32, i64] => divide_as::<T>(section, group_size)) {
        Some(divided) => divided,
        None => Err(internal!("a tensor of this type cannot be divided")),
    }
}

fn divide_as<T: Number>(section: Tensor, group_size: usize) -> Result<Tensor> {
    let divisor = T::of_count(group_size);
    let mut quotient = section.into_unique()?;
    quotient.as_mut_slice::<T>()?.iter_mut().for_each(|value| *value = value.over(divisor));
    Ok(quotient)
}

fn combine<T: Number>(own: &Tensor, mut other: Tensor, operation: impl Fn(T, T) -> T) -> Result<Tensor> {
    let own = own.as_slice::<T>()?;
    if own.len() != other.num_elements() {
        return Err(internal!("A section has {} elements, the other's {}", own.len(), other.num_elements()));
    }
    if let Ok(values) = other.as_mut_slice::<T>() {
        values.iter_mut().zip(own).for_each(|(value, &own)| *value = operation(own, *value));
        return Ok(other);
    }
    let mut merged = Tensor::alloc(other.dtype(), other.shape().clone())?;
    let values = merged.as_mut_slice::<T>()?.iter_mut();
    let sources = own.iter().zip(other.as_slice::<T>()?);
    values.zip(sources).for_each(|(value, (&own, &other))| *value = operation(own, other));
    Ok(merged)
}

trait Number: Element + PartialOrd {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, divisor: Self) -> Self;
    fn is_nan(self) -> bool;
    fn of_count(count: usize) -> Self;
}

macro_rules! floats {
    ($($float:ty: $of_count:expr),*) => {$(
        impl Number for $float {
            fn plus(self, other: $float) -> $float {
                self + other
            }
            fn times(self, other: $float) -> $float {
                self * other
            }
            fn over(self, divisor: $float) -> $float {
                self / divisor
            }
            fn is_nan(self) -> bool {
                <$float>::is_nan(self)
            }
            fn of_count(count: usize) -> $float {
                $of_count(count)
            }
        }
    )*};
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Number for $integer {
            fn plus(self, other: $integer) -> $integer {
                self.wrapping_add(other)
            }
            fn times(self, other: $integer) -> $integer {
                self.wrapping_mul(other)
            }
            fn over(self, divisor: $integer) -> $integer {
                self.checked_div(divisor).unwrap_or(self)
            }
            fn is_nan(self) -> bool {
                false
            }
            fn of_count(count: usize) -> $integer {
                <$integer>::try_from(count).unwrap_or(<$integer>::MAX)
            }
        }
    )*};
}

floats!(
    f32: |count| count as f32,
    f64: |count| count as f64,
    f16: |count| f16::from_f32(count as f32),
    bf16: |count| bf16::from_f32(count as f32)
);
integers!(i32, i64);

#[cfg(test)]
mod tests {
    use super::*;

    fn merged<T: Element>(merge: Merge, own: &[T], other: &[T]) -> Vec<T> {
        let other = Tensor::vector(other).unwrap();
        let shared = other.clone();
        let own = Tensor::vector(own).unwrap();
        let out = merge.merge(&own, other).unwrap().as_slice::<T>().unwrap().to_vec();
        assert_eq!(merge.merge(&own, shared).unwrap().as_slice::<T>().unwrap().len(), out.len());
        out
    }

    #[test]
    fn all_combinations() {
        assert_eq!(merged(Merge::Add, &[1i32, i32::MAX], &[2, 1]), [3, i32::MIN]);
        assert_eq!(merged(Merge::Mul, &[3.0f64, 2.0], &[2.0, 0.5]), [6.0, 1.0]);
        assert_eq!(merged(Merge::Min, &[3i64, -2], &[2, 5]), [2, -2]);
        assert!(merged(Merge::Max, &[f32::NAN, 1.0], &[1.0, f32::NAN]).iter().all(|value| value.is_nan()));
        let half = |value: f32| f16::from_f32(value);
        assert_eq!(merged(Merge::Add, &[half(1.0)], &[half(2.5)]), [half(3.5)]);
        assert!(Merge::Add.merge(&Tensor::vector(&[1u8]).unwrap(), Tensor::vector(&[1u8]).unwrap()).is_err());
        assert!(Merge::parse("Sub").is_err());
    }

    #[test]
    fn integers_are_divided_towards_zero() {
        let divided = divide(Tensor::vector(&[-7i32, 7]).unwrap(), 2).unwrap();
        assert_eq!(divided.as_slice::<i32>().unwrap(), [-3, 3]);
        let divided = divide(Tensor::vector(&[bf16::from_f32(3.0)]).unwrap(), 2).unwrap();
        assert_eq!(divided.as_slice::<bf16>().unwrap(), [bf16::from_f32(1.5)]);
    }
}
