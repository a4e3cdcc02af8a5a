//! The tensor.
#![allow(unsafe_code)]

use crate::{Buffer, DType, Element, ResourceHandle, Result, Shape, Status, Variant, internal, invalid_argument};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// An element type, a shape, and shared elements in row-major order.
///
/// It is one pointer wide: executors move values along edges far more often than kernels look into them. The pointer counts no
/// weak references, so that asking whether it is alone costs a load.
#[derive(Clone)]
pub struct Tensor(triomphe::Arc<Inner>);

#[derive(Clone)]
struct Inner {
    dtype: DType,
    shape: Shape,
    storage: Storage,
}

#[derive(Clone)]
enum Storage {
    /// Elements of a fixed size, from a byte offset of a buffer on.
    Plain {
        buffer: Buffer,
        offset: usize,
    },
    Strings(Arc<Vec<Bytes>>),
    Resources(Arc<Vec<ResourceHandle>>),
    Variants(Arc<Vec<Variant>>),
}

impl Tensor {
    fn new(dtype: DType, shape: Shape, storage: Storage) -> Tensor {
        Tensor(triomphe::Arc::new(Inner { dtype, shape, storage }))
    }

    /// The storage for writing, if nobody else has this tensor.
    #[inline]
    fn storage_mut(&mut self) -> Result<&mut Storage> {
        match triomphe::Arc::get_mut(&mut self.0) {
            Some(inner) => Ok(&mut inner.storage),
            None => Err(shared()),
        }
    }

    /// A tensor to be filled: numbers are arbitrary, truth values false, strings empty, handles and variants unset.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there is not that much memory.
    pub fn alloc(dtype: DType, shape: Shape) -> Result<Tensor> {
        let n = shape.num_elements();
        let storage = match dtype {
            DType::String => Storage::Strings(Arc::new(objects(n)?)),
            DType::Resource => Storage::Resources(Arc::new(objects(n)?)),
            DType::Variant => Storage::Variants(Arc::new(objects(n)?)),
            // A reused block may hold any byte, and a bool only 0 or 1.
            DType::Bool => Storage::Plain { buffer: Buffer::zeroed(n)?, offset: 0 },
            _ => Storage::Plain { buffer: Buffer::allocate(byte_size(dtype, n)?)?, offset: 0 },
        };
        Ok(Tensor::new(dtype, shape, storage))
    }

    /// A tensor of zeros, false, or empty strings.
    ///
    /// # Errors
    /// As [`Tensor::alloc`].
    pub fn zeros(dtype: DType, shape: Shape) -> Result<Tensor> {
        let mut tensor = Tensor::alloc(dtype, shape)?;
        if let Some(bytes) = tensor.as_mut_bytes() {
            bytes.fill(0);
        }
        Ok(tensor)
    }

    /// A scalar.
    ///
    /// # Errors
    /// As [`Tensor::alloc`].
    pub fn scalar<T: Element>(value: T) -> Result<Tensor> {
        let mut tensor = Tensor::alloc(T::DTYPE, Shape::scalar())?;
        tensor.as_mut_slice::<T>()?.fill(value);
        Ok(tensor)
    }

    /// A tensor with a copy of these elements.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if their number does not fit the shape.
    pub fn from_slice<T: Element>(shape: Shape, values: &[T]) -> Result<Tensor> {
        if shape.num_elements() != values.len() {
            return Err(invalid_argument!("{} values do not make a tensor of shape {shape}", values.len()));
        }
        let mut tensor = Tensor::alloc(T::DTYPE, shape)?;
        tensor.as_mut_slice::<T>()?.copy_from_slice(values);
        Ok(tensor)
    }

    /// A vector with a copy of these elements.
    ///
    /// # Errors
    /// As [`Tensor::alloc`].
    pub fn vector<T: Element>(values: &[T]) -> Result<Tensor> {
        Tensor::from_slice(Shape::vector(values.len()), values)
    }

    /// A tensor of strings.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if their number does not fit the shape.
    pub fn from_strings(shape: Shape, values: Vec<Bytes>) -> Result<Tensor> {
        check_count(&shape, values.len())?;
        Ok(Tensor::new(DType::String, shape, Storage::Strings(Arc::new(values))))
    }

    /// A tensor of resource handles.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if their number does not fit the shape.
    pub fn from_handles(shape: Shape, values: Vec<ResourceHandle>) -> Result<Tensor> {
        check_count(&shape, values.len())?;
        Ok(Tensor::new(DType::Resource, shape, Storage::Resources(Arc::new(values))))
    }

    /// A tensor of variants.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if their number does not fit the shape.
    pub fn from_variants(shape: Shape, values: Vec<Variant>) -> Result<Tensor> {
        check_count(&shape, values.len())?;
        Ok(Tensor::new(DType::Variant, shape, Storage::Variants(Arc::new(values))))
    }

    /// A tensor of fixed-size elements over bytes in native order; shares them where their alignment allows.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the length does not fit, or for a type without a fixed size.
    pub fn from_bytes(dtype: DType, shape: Shape, bytes: Bytes) -> Result<Tensor> {
        if !dtype.is_fixed_size() || byte_size(dtype, shape.num_elements())? != bytes.len() {
            return Err(invalid_argument!("{} bytes do not make a {dtype} tensor of shape {shape}", bytes.len()));
        }
        let aligned = (bytes.as_ptr() as usize).is_multiple_of(dtype.size().min(16));
        if aligned && dtype != DType::Bool && bytes.len() >= 4096 {
            let storage = Storage::Plain { buffer: Buffer::from_bytes(bytes)?, offset: 0 };
            return Ok(Tensor::new(dtype, shape, storage));
        }
        let mut tensor = Tensor::alloc(dtype, shape)?;
        if let Some(target) = tensor.as_mut_bytes() {
            if dtype == DType::Bool {
                target.iter_mut().zip(bytes.iter()).for_each(|(t, &b)| *t = u8::from(b != 0));
            } else {
                target.copy_from_slice(&bytes);
            }
        }
        Ok(tensor)
    }

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The number of elements.
    #[inline]
    pub fn num_elements(&self) -> usize {
        self.0.shape.num_elements()
    }

    /// The elements.
    ///
    /// # Errors
    /// `INTERNAL` if the tensor is of another type.
    #[inline]
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        let n = self.num_elements();
        match &self.0.storage {
            Storage::Plain { buffer, offset } if self.0.dtype == T::DTYPE => {
                let bytes = buffer.as_slice().get(*offset..*offset + n * size_of::<T>()).ok_or_else(|| broken(self))?;
                // SAFETY: the range holds n elements; constructors guarantee alignment to the element, and every pattern in the
                // buffer is a value of T (see `Element`).
                Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), n) })
            }
            _ => Err(wrong_type(self, T::DTYPE)),
        }
    }

    /// The elements for writing.
    ///
    /// # Errors
    /// `INTERNAL` if the tensor is of another type or its buffer is shared (see [`Tensor::is_unique`]).
    #[inline]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        let n = self.num_elements();
        if self.0.dtype != T::DTYPE {
            return Err(wrong_type(self, T::DTYPE));
        }
        match self.storage_mut()? {
            Storage::Plain { buffer, offset } => {
                let range = *offset..*offset + n * size_of::<T>();
                let bytes = buffer.as_mut_slice().and_then(|bytes| bytes.get_mut(range));
                let bytes = bytes.ok_or_else(shared)?;
                // SAFETY: as in `as_slice`; the slice comes from the sole owner's mutable borrow.
                Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), n) })
            }
            _ => Err(internal!("a tensor of strings, resources or variants has no plain elements")),
        }
    }

    /// The bytes of fixed-size elements; `None` for strings, resources and variants.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0.storage {
            Storage::Plain { buffer, offset } => {
                buffer.as_slice().get(*offset..*offset + self.num_elements() * self.0.dtype.size())
            }
            _ => None,
        }
    }

    /// The bytes of fixed-size elements for writing, if the buffer is not shared.
    ///
    /// The caller of this crate-internal function keeps booleans at 0 and 1.
    pub(crate) fn as_mut_bytes(&mut self) -> Option<&mut [u8]> {
        let length = self.num_elements() * self.0.dtype.size();
        match self.storage_mut().ok()? {
            Storage::Plain { buffer, offset } => buffer.as_mut_slice()?.get_mut(*offset..*offset + length),
            _ => None,
        }
    }

    /// Lets `fill` write the bytes of some elements in place, such as from a file. If it fails, those elements hold anything valid.
    ///
    /// # Errors
    /// What `fill` returns; `INTERNAL` for a type without a fixed size, elements that do not exist, or a shared tensor.
    pub fn fill_bytes(
        &mut self,
        elements: std::ops::Range<usize>,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let (dtype, size) = (self.dtype(), self.dtype().size());
        let range = elements.start.saturating_mul(size)..elements.end.saturating_mul(size);
        let bytes = self.as_mut_bytes().and_then(|bytes| bytes.get_mut(range));
        let bytes = bytes.ok_or_else(|| internal!("elements to fill are out of range or shared"))?;
        if dtype != DType::Bool {
            return fill(bytes);
        }
        // The memory of booleans holds 0 and 1 at all times.
        let mut read = vec![0; bytes.len()];
        fill(&mut read)?;
        bytes.iter_mut().zip(read).for_each(|(target, byte)| *target = u8::from(byte != 0));
        Ok(())
    }

    /// Copies the elements `from` of `source` over those starting at `to`; both tensors have the same type. This is how kernels
    /// that only move elements serve every fixed-size type at once.
    ///
    /// # Errors
    /// `INTERNAL` if types differ, a range is out of bounds, or this tensor is shared.
    pub fn copy_elements(&mut self, to: usize, source: &Tensor, from: std::ops::Range<usize>) -> Result<()> {
        let count = from.len();
        let bad = || internal!("elements to copy are out of range");
        if self.0.dtype != source.0.dtype {
            return Err(wrong_type(source, self.0.dtype));
        }
        let size = self.0.dtype.size();
        let end = to.checked_add(count).filter(|&end| end <= self.num_elements()).ok_or_else(bad)?;
        match (self.storage_mut()?, &source.0.storage) {
            (Storage::Strings(to_all), Storage::Strings(from_all)) => {
                let to_all = Arc::get_mut(to_all).ok_or_else(shared)?;
                to_all[to..end].clone_from_slice(from_all.get(from).ok_or_else(bad)?);
            }
            (Storage::Resources(to_all), Storage::Resources(from_all)) => {
                let to_all = Arc::get_mut(to_all).ok_or_else(shared)?;
                to_all[to..end].clone_from_slice(from_all.get(from).ok_or_else(bad)?);
            }
            (Storage::Variants(to_all), Storage::Variants(from_all)) => {
                let to_all = Arc::get_mut(to_all).ok_or_else(shared)?;
                to_all[to..end].clone_from_slice(from_all.get(from).ok_or_else(bad)?);
            }
            _ => {
                let from_bytes = source.as_bytes().ok_or_else(bad)?;
                let from_bytes = from_bytes.get(from.start * size..from.end * size).ok_or_else(bad)?;
                let to_bytes = self.as_mut_bytes().ok_or_else(shared)?;
                to_bytes[to * size..end * size].copy_from_slice(from_bytes);
            }
        }
        Ok(())
    }

    /// The elements as one `Bytes` without a copy; `None` for strings, resources and variants.
    pub fn to_bytes(&self) -> Option<Bytes> {
        match &self.0.storage {
            Storage::Plain { buffer, offset } => {
                let length = self.num_elements() * self.0.dtype.size();
                Some(Bytes::from_owner(buffer.clone()).slice(*offset..*offset + length))
            }
            _ => None,
        }
    }

    /// The strings.
    ///
    /// # Errors
    /// `INTERNAL` if the tensor is of another type.
    pub fn strings(&self) -> Result<&[Bytes]> {
        match &self.0.storage {
            Storage::Strings(values) => Ok(values),
            _ => Err(wrong_type(self, DType::String)),
        }
    }

    /// The strings for writing.
    ///
    /// # Errors
    /// `INTERNAL` if the tensor is of another type or shared.
    pub fn strings_mut(&mut self) -> Result<&mut [Bytes]> {
        match self.storage_mut()? {
            Storage::Strings(values) => match Arc::get_mut(values) {
                Some(values) => Ok(values),
                None => Err(shared()),
            },
            _ => Err(internal!("the tensor does not hold strings")),
        }
    }

    /// The resource handles.
    ///
    /// # Errors
    /// `INTERNAL` if the tensor is of another type.
    pub fn handles(&self) -> Result<&[ResourceHandle]> {
        match &self.0.storage {
            Storage::Resources(values) => Ok(values),
            _ => Err(wrong_type(self, DType::Resource)),
        }
    }

    /// The variants.
    ///
    /// # Errors
    /// `INTERNAL` if the tensor is of another type.
    pub fn variants(&self) -> Result<&[Variant]> {
        match &self.0.storage {
            Storage::Variants(values) => Ok(values),
            _ => Err(wrong_type(self, DType::Variant)),
        }
    }

    /// The resource handles for writing.
    ///
    /// # Errors
    /// `INTERNAL` if the tensor is of another type or shared.
    pub fn handles_mut(&mut self) -> Result<&mut [ResourceHandle]> {
        match self.storage_mut()? {
            Storage::Resources(values) => match Arc::get_mut(values) {
                Some(values) => Ok(values),
                None => Err(shared()),
            },
            _ => Err(internal!("the tensor does not hold resource handles")),
        }
    }

    /// The variants for writing.
    ///
    /// # Errors
    /// `INTERNAL` if the tensor is of another type or shared.
    pub fn variants_mut(&mut self) -> Result<&mut [Variant]> {
        match self.storage_mut()? {
            Storage::Variants(values) => match Arc::get_mut(values) {
                Some(values) => Ok(values),
                None => Err(shared()),
            },
            _ => Err(internal!("the tensor does not hold variants")),
        }
    }

    /// The value of a tensor with exactly one element.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if there is not exactly one element, `INTERNAL` if the tensor is of another type.
    #[inline]
    pub fn scalar_value<T: Element>(&self) -> Result<T> {
        match self.as_slice::<T>()? {
            [value] => Ok(*value),
            _ => Err(invalid_argument!("expected a scalar, got a tensor of shape {}", self.0.shape)),
        }
    }

    /// The elements of an int32 or int64 tensor, widened, as shape and axis inputs have them.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the tensor is of another type.
    pub fn to_i64_vec(&self) -> Result<Vec<i64>> {
        match self.0.dtype {
            DType::Int32 => Ok(self.as_slice::<i32>()?.iter().map(|&v| i64::from(v)).collect()),
            DType::Int64 => Ok(self.as_slice::<i64>()?.to_vec()),
            other => Err(invalid_argument!("expected an int32 or int64 tensor, got {other}")),
        }
    }

    /// Whether nobody else refers to the elements, so that they may be overwritten.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.0.is_unique()
            && match &self.0.storage {
                Storage::Plain { buffer, .. } => buffer.is_unique(),
                Storage::Strings(values) => Arc::strong_count(values) == 1,
                Storage::Resources(values) => Arc::strong_count(values) == 1,
                Storage::Variants(values) => Arc::strong_count(values) == 1,
            }
    }

    /// This tensor, copied if its elements are shared, so that they may be overwritten.
    ///
    /// # Errors
    /// As [`Tensor::alloc`].
    pub fn into_unique(self) -> Result<Tensor> {
        if self.is_unique() { Ok(self) } else { self.deep_copy() }
    }

    /// A copy with elements of its own.
    ///
    /// # Errors
    /// As [`Tensor::alloc`].
    pub fn deep_copy(&self) -> Result<Tensor> {
        let mut copy = Tensor::alloc(self.0.dtype, self.0.shape.clone())?;
        copy.copy_elements(0, self, 0..self.num_elements())?;
        Ok(copy)
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the shapes differ in the number of elements.
    pub fn reshaped(&self, shape: Shape) -> Result<Tensor> {
        self.clone().into_shape(shape)
    }

    /// [`Tensor::reshaped`] without touching the reference count.
    ///
    /// # Errors
    /// As [`Tensor::reshaped`].
    pub fn into_shape(mut self, shape: Shape) -> Result<Tensor> {
        check_count(&shape, self.num_elements())?;
        match triomphe::Arc::get_mut(&mut self.0) {
            Some(inner) => inner.shape = shape,
            None => return Ok(Tensor::new(self.dtype(), shape, self.0.storage.clone())),
        }
        Ok(self)
    }

    /// The same bytes as elements of another type and shape.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if sizes or alignment do not fit, or one type has no fixed size or is `bool`.
    pub fn bitcast(&self, dtype: DType, shape: Shape) -> Result<Tensor> {
        let bad = || {
            invalid_argument!("cannot bitcast {} of shape {} to {dtype} of shape {shape}", self.0.dtype, self.0.shape)
        };
        let from = self.as_bytes().ok_or_else(bad)?;
        if !dtype.is_fixed_size() || byte_size(dtype, shape.num_elements())? != from.len() {
            return Err(bad());
        }
        match self.to_bytes() {
            Some(bytes) if dtype == DType::Bool => Tensor::from_bytes(dtype, shape, bytes),
            _ if !(from.as_ptr() as usize).is_multiple_of(dtype.size().min(16)) => {
                Tensor::from_bytes(dtype, shape, Bytes::copy_from_slice(from))
            }
            _ => Ok(Tensor::new(dtype, shape, self.0.storage.clone())),
        }
    }

    /// Rows `start..start + count` of the first dimension, sharing the elements.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a scalar or rows that do not exist.
    pub fn rows(&self, start: usize, count: usize) -> Result<Tensor> {
        let fits = start.checked_add(count).is_some_and(|end| self.0.shape.rank() > 0 && end <= self.0.shape.dim(0));
        if !fits {
            return Err(invalid_argument!(
                "rows {start} to {start}+{count} are out of range for shape {}",
                self.0.shape
            ));
        }
        let shape = self.0.shape.with_dim(0, count)?;
        let row = self.0.shape.stride(0);
        match &self.0.storage {
            Storage::Plain { buffer, offset } => {
                let offset = offset + start * row * self.0.dtype.size();
                Ok(Tensor::new(self.dtype(), shape, Storage::Plain { buffer: buffer.clone(), offset }))
            }
            _ => {
                let mut part = Tensor::alloc(self.0.dtype, shape)?;
                part.copy_elements(0, self, start * row..(start + count) * row)?;
                Ok(part)
            }
        }
    }
}

fn shared() -> Status {
    internal!("a shared tensor cannot be written to")
}

fn objects<T: Clone + Default>(n: usize) -> Result<Vec<T>> {
    match n.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= crate::pool::limit() => Ok(vec![T::default(); n]),
        _ => Err(crate::resource_exhausted!("Out of memory: a tensor of {n} elements is too large")),
    }
}

fn byte_size(dtype: DType, elements: usize) -> Result<usize> {
    dtype.size().checked_mul(elements).filter(|&n| isize::try_from(n).is_ok()).ok_or_else(|| {
        crate::resource_exhausted!("Out of memory: a {dtype} tensor of {elements} elements is too large")
    })
}

fn check_count(shape: &Shape, count: usize) -> Result<()> {
    if shape.num_elements() == count {
        Ok(())
    } else {
        Err(invalid_argument!("{count} elements do not make a tensor of shape {shape}"))
    }
}

fn wrong_type(tensor: &Tensor, wanted: DType) -> Status {
    internal!("expected a {wanted} tensor, got {}", tensor.dtype())
}

fn broken(tensor: &Tensor) -> Status {
    internal!("the buffer is too small for a {} tensor of shape {}", tensor.dtype(), tensor.shape())
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{} {}>", self.0.dtype, self.0.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_share_and_writers_must_be_alone() {
        let mut t = Tensor::from_slice(Shape::new(&[3, 2]).unwrap(), &[1i32, 2, 3, 4, 5, 6]).unwrap();
        let rows = t.rows(1, 2).unwrap();
        assert_eq!(rows.as_slice::<i32>().unwrap(), &[3, 4, 5, 6]);
        assert!(t.as_mut_slice::<i32>().is_err());
        drop(rows);
        t.as_mut_slice::<i32>().unwrap()[0] = 9;
        assert_eq!(t.reshaped(Shape::vector(6)).unwrap().as_slice::<i32>().unwrap()[0], 9);
        assert!(t.reshaped(Shape::vector(5)).is_err());
        assert!(t.rows(2, 2).is_err());
        assert!(t.rows(usize::MAX, 2).is_err());
        assert!(t.as_slice::<f32>().is_err());
    }

    #[test]
    fn booleans_from_bytes_are_made_valid() {
        let t = Tensor::from_bytes(DType::Bool, Shape::vector(3), Bytes::from_static(&[0, 7, 1])).unwrap();
        assert_eq!(t.as_slice::<bool>().unwrap(), &[false, true, true]);
        let ints = Tensor::vector(&[2u8, 0]).unwrap();
        assert_eq!(ints.bitcast(DType::Bool, Shape::vector(2)).unwrap().as_slice::<bool>().unwrap(), &[true, false]);
    }

    #[test]
    fn strings_copy_like_numbers() {
        let source = Tensor::from_strings(Shape::vector(2), vec![Bytes::from("a\0b"), Bytes::new()]).unwrap();
        let mut target = Tensor::zeros(DType::String, Shape::vector(3)).unwrap();
        target.copy_elements(1, &source, 0..2).unwrap();
        assert_eq!(target.strings().unwrap()[1].as_ref(), b"a\0b");
        assert!(target.copy_elements(2, &source, 0..2).is_err());
        assert_eq!(source.rows(1, 1).unwrap().strings().unwrap().len(), 1);
    }

    #[test]
    fn odd_alignment_is_copied() {
        let bytes = Bytes::from(vec![0u8; 8193]).slice(1..);
        let t = Tensor::from_bytes(DType::Float, Shape::vector(2048), bytes).unwrap();
        assert_eq!(t.as_slice::<f32>().unwrap().len(), 2048);
    }
}
