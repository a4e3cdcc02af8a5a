//! Shared, aligned memory of tensors.
#![allow(unsafe_code)]

use crate::{Result, pool};
use bytes::Bytes;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// A reference-counted block of initialised bytes: from the pool, or borrowed from a foreign owner such as a received message.
///
/// Count and data share one allocation, so that a small tensor costs one block of the pool.
pub struct Buffer(NonNull<Header>);

#[repr(C, align(64))]
struct Header {
    references: AtomicUsize,
    data: NonNull<u8>,
    length: usize,
    /// True size of the block from the pool that holds header and, unless foreign, data.
    block: usize,
    foreign: Option<Bytes>,
}

// SAFETY: the bytes are only written through a `&mut Buffer` that is the sole owner; the count is atomic; `Bytes` is Send and Sync.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A block of `length` bytes, 64-byte aligned. The content is initialised but arbitrary.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the machine does not have that much memory.
    pub fn allocate(length: usize) -> Result<Buffer> {
        let wanted = length.saturating_add(size_of::<Header>());
        let (block, size) = pool::allocate(wanted)?;
        // SAFETY: the block is at least header plus length long, so the offset stays within it.
        let data = unsafe { block.add(size_of::<Header>()) };
        Ok(Buffer::with_header(block, size, data, length, None))
    }

    /// A buffer of zeros.
    ///
    /// # Errors
    /// As [`Buffer::allocate`].
    pub fn zeroed(length: usize) -> Result<Buffer> {
        let mut buffer = Buffer::allocate(length)?;
        if let Some(bytes) = buffer.as_mut_slice() {
            bytes.fill(0);
        }
        Ok(buffer)
    }

    /// A buffer that shares a message's memory instead of copying it. It is never written to.
    ///
    /// # Errors
    /// As [`Buffer::allocate`].
    pub fn from_bytes(bytes: Bytes) -> Result<Buffer> {
        let (block, size) = pool::allocate(size_of::<Header>())?;
        let data = NonNull::from(bytes.as_ref()).cast::<u8>();
        let length = bytes.len();
        Ok(Buffer::with_header(block, size, data, length, Some(bytes)))
    }

    fn with_header(
        block: NonNull<u8>,
        size: usize,
        data: NonNull<u8>,
        length: usize,
        foreign: Option<Bytes>,
    ) -> Buffer {
        let header = block.cast::<Header>();
        // SAFETY: the block is ours alone, aligned to 64 and at least as long as a header.
        unsafe { header.write(Header { references: AtomicUsize::new(1), data, length, block: size, foreign }) };
        Buffer(header)
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the header lives as long as any `Buffer` refers to it.
        unsafe { self.0.as_ref() }
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        let header = self.header();
        // SAFETY: data points to `length` initialised bytes that nobody writes while this borrow of a shared owner lives: writing
        // takes a `&mut Buffer` that is the only owner.
        unsafe { std::slice::from_raw_parts(header.data.as_ptr(), header.length) }
    }

    /// The bytes for writing, if this is the only owner and the memory is our own.
    #[inline]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        if !self.is_unique() {
            return None;
        }
        let header = self.header();
        // SAFETY: the count is 1 and we hold `&mut self`, so nobody else can reach the bytes.
        Some(unsafe { std::slice::from_raw_parts_mut(header.data.as_ptr(), header.length) })
    }

    /// Whether this is the only owner of memory that may be written.
    #[inline]
    pub fn is_unique(&self) -> bool {
        let header = self.header();
        header.foreign.is_none() && header.references.load(Ordering::Acquire) == 1
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        // Relaxed suffices: a new reference is made from one that exists (as in `Arc`).
        self.header().references.fetch_add(1, Ordering::Relaxed);
        Buffer(self.0)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.header().references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let size = self.header().block;
        // SAFETY: this was the last reference, so the header is dropped once and its block returned once.
        unsafe { self.0.drop_in_place() };
        pool::free(self.0.cast(), size);
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_buffer_is_not_writable() {
        let mut a = Buffer::zeroed(100).unwrap();
        assert_eq!(a.as_slice().as_ptr() as usize % 64, 0);
        let b = a.clone();
        assert!(a.as_mut_slice().is_none());
        drop(b);
        a.as_mut_slice().unwrap()[99] = 7;
        assert_eq!(a.as_slice()[99], 7);
    }

    #[test]
    fn foreign_memory_is_shared_and_never_written() {
        let bytes = Bytes::from(vec![1u8, 2, 3]);
        let mut buffer = Buffer::from_bytes(bytes.clone()).unwrap();
        assert_eq!(buffer.as_slice().as_ptr(), bytes.as_ptr());
        assert!(buffer.as_mut_slice().is_none());
    }

    #[test]
    fn buffers_cross_threads() {
        let buffer = Buffer::zeroed(1 << 20).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mine = buffer.clone();
                scope.spawn(move || assert!(mine.as_slice().iter().all(|&b| b == 0)));
            }
        });
        assert!(buffer.is_unique());
    }

    #[test]
    fn empty_buffers_work() {
        let mut buffer = Buffer::allocate(0).unwrap();
        assert!(buffer.as_slice().is_empty());
        assert!(buffer.as_mut_slice().unwrap().is_empty());
    }
}
