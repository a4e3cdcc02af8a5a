//! Elements of any type, for kernels that only move them.
#![allow(unsafe_code)]

use crate::{Result, Tensor, internal};
use smallvec::SmallVec;

/// Work on elements whose type does not matter: it can only clone elements it is given, so it fits every element type.
///
/// [`Tensor::move_from`] runs it with plain integers in place of fixed-size elements, so that one body is compiled for each
/// element size instead of each type.
pub trait Mover {
    /// What the work yields.
    type Output;

    /// Does the work. `sources` are the elements of the source tensors, `target` those of the tensor to be filled.
    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) -> Self::Output;
}

impl Tensor {
    /// Runs `mover` on the elements of `sources` and of this tensor, all of the same type.
    ///
    /// # Errors
    /// `INTERNAL` if types differ or this tensor is shared.
    pub fn move_from<M: Mover>(&mut self, sources: &[&Tensor], mover: M) -> Result<M::Output> {
        let dtype = self.dtype();
        if let Some(other) = sources.iter().find(|source| source.dtype() != dtype) {
            return Err(internal!("cannot move {} elements to a {dtype} tensor", other.dtype()));
        }
        match dtype.size() {
            0 => move_objects(self, sources, mover),
            1 => move_plain::<u8, M>(self, sources, mover),
            2 => move_plain::<u16, M>(self, sources, mover),
            4 => move_plain::<u32, M>(self, sources, mover),
            8 => move_plain::<u64, M>(self, sources, mover),
            16 => move_plain::<[u64; 2], M>(self, sources, mover),
            size => Err(internal!("no element type has {size} bytes")),
        }
    }
}

/// Types without padding for which every bit pattern is a value.
///
/// # Safety
/// As said.
unsafe trait Plain: Copy + Send + Sync {}
// SAFETY: plain integers.
unsafe impl Plain for u8 {}
// SAFETY: plain integers.
unsafe impl Plain for u16 {}
// SAFETY: plain integers.
unsafe impl Plain for u32 {}
// SAFETY: plain integers.
unsafe impl Plain for u64 {}
// SAFETY: plain integers.
unsafe impl Plain for [u64; 2] {}

fn move_plain<U: Plain, M: Mover>(target: &mut Tensor, sources: &[&Tensor], mover: M) -> Result<M::Output> {
    let bad = || internal!("a tensor's elements are not aligned");
    let mut views = SmallVec::<[&[U]; 4]>::with_capacity(sources.len());
    for source in sources {
        let bytes = source.as_bytes().ok_or_else(bad)?;
        // SAFETY: every pattern is a value of U.
        let (head, elements, tail) = unsafe { bytes.align_to::<U>() };
        if !head.is_empty() || !tail.is_empty() {
            return Err(bad());
        }
        views.push(elements);
    }
    let bytes = target.as_mut_bytes().ok_or_else(|| internal!("a shared tensor cannot be written to"))?;
    // SAFETY: every pattern is a value of U. What is written are clones of elements of tensors of the same type, as the mover
    // cannot make others, so booleans stay 0 and 1.
    let (head, elements, tail) = unsafe { bytes.align_to_mut::<U>() };
    if !head.is_empty() || !tail.is_empty() {
        return Err(bad());
    }
    Ok(mover.run(&views, elements))
}

fn move_objects<M: Mover>(target: &mut Tensor, sources: &[&Tensor], mover: M) -> Result<M::Output> {
    use crate::DType;
    match target.dtype() {
        DType::String => {
            let views = sources.iter().map(|s| s.strings()).collect::<Result<SmallVec<[_; 4]>>>()?;
            Ok(mover.run(&views, target.strings_mut()?))
        }
        DType::Resource => {
            let views = sources.iter().map(|s| s.handles()).collect::<Result<SmallVec<[_; 4]>>>()?;
            Ok(mover.run(&views, target.handles_mut()?))
        }
        _ => {
            let views = sources.iter().map(|s| s.variants()).collect::<Result<SmallVec<[_; 4]>>>()?;
            Ok(mover.run(&views, target.variants_mut()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Complex64, DType, Shape};

    struct Reversed;

    impl Mover for Reversed {
        type Output = usize;

        fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) -> usize {
            let all = sources.iter().flat_map(|s| s.iter());
            target.iter_mut().rev().zip(all).map(|(t, s)| *t = s.clone()).count()
        }
    }

    #[test]
    fn every_type_moves() {
        for &dtype in DType::ALL {
            let a = Tensor::zeros(dtype, Shape::vector(2)).unwrap();
            let mut target = Tensor::alloc(dtype, Shape::vector(4)).unwrap();
            assert_eq!(target.move_from(&[&a, &a], Reversed).unwrap(), 4);
            let other = if dtype == DType::Float { DType::Int32 } else { DType::Float };
            assert!(target.move_from(&[&Tensor::zeros(other, Shape::vector(1)).unwrap()], Reversed).is_err());
        }
    }

    #[test]
    fn values_arrive() {
        let source = Tensor::vector(&[Complex64::new(1.0, 2.0), Complex64::new(3.0, 4.0)]).unwrap();
        let mut target = Tensor::alloc(DType::Complex128, Shape::vector(2)).unwrap();
        target.move_from(&[&source], Reversed).unwrap();
        assert_eq!(target.as_slice::<Complex64>().unwrap()[0], Complex64::new(3.0, 4.0));
        let source = Tensor::from_strings(Shape::vector(2), vec![Bytes::from("a"), Bytes::from("b")]).unwrap();
        let mut target = Tensor::alloc(DType::String, Shape::vector(2)).unwrap();
        target.move_from(&[&source], Reversed).unwrap();
        assert_eq!(target.strings().unwrap(), ["b", "a"]);
        let shared = target.clone();
        assert!(target.move_from(&[&source], Reversed).is_err());
        drop(shared);
    }
}
