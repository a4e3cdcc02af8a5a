//! Memory for buffers: 64-byte aligned blocks in size classes, kept for reuse.
//!
//! A fresh block is zeroed and a reused one keeps what it held, so the bytes of a block are always initialised. Large blocks come
//! back without page faults, which on 1 MB cost a hundred times what handing out a kept block does; small ones come from a list
//! of the thread without a lock.
#![allow(unsafe_code)]

use crate::{Result, resource_exhausted};
use parking_lot::Mutex;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Alignment of every block: a cache line, and the width of an AVX-512 register.
pub(crate) const ALIGNMENT: usize = 64;

/// Blocks up to this size are kept by the thread that frees them.
const SMALL_LIMIT: usize = 1024;
const SMALL_CLASSES: usize = SMALL_LIMIT / ALIGNMENT;
const SMALL_KEPT: usize = 64;

/// Blocks from this size on are kept for all threads; those in between are left to the allocator.
const LARGE_LIMIT: usize = 16 << 10;
/// Four classes to each power of two.
const LARGE_CLASSES: usize = 4 * (usize::BITS as usize);
/// Bytes of large blocks kept at most.
const LARGE_KEPT_BYTES: usize = 512 << 20;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static LARGE_KEPT: AtomicUsize = AtomicUsize::new(0);
static LARGE: [Mutex<Vec<Block>>; LARGE_CLASSES] = [const { Mutex::new(Vec::new()) }; LARGE_CLASSES];

thread_local! {
    static SMALL: RefCell<SmallLists> = const { RefCell::new(SmallLists([const { Vec::new() }; SMALL_CLASSES])) };
}

struct SmallLists([Vec<Block>; SMALL_CLASSES]);

impl Drop for SmallLists {
    fn drop(&mut self) {
        for (class, list) in self.0.iter_mut().enumerate() {
            for block in list.drain(..) {
                release(block.0, (class + 1) * ALIGNMENT);
            }
        }
    }
}

struct Block(NonNull<u8>);

// SAFETY: a kept block is owned by the list that holds it and by nobody else.
unsafe impl Send for Block {}

/// Bytes of large tensor memory in use by the process: what the tensors that are alive hold in blocks of 16 KiB and more.
pub fn memory_in_use() -> usize {
    IN_USE.load(Relaxed)
}

/// The class size that a request is rounded up to.
fn class_size(bytes: usize) -> Option<usize> {
    if bytes <= SMALL_LIMIT {
        return Some(bytes.max(1).next_multiple_of(ALIGNMENT));
    }
    let step = (bytes.checked_next_power_of_two()? / 8).max(ALIGNMENT);
    bytes.checked_next_multiple_of(step)
}

fn large_class(size: usize) -> usize {
    let top = size.ilog2();
    let quarter = (size >> (top.saturating_sub(2))) & 3;
    (top as usize * 4 + quarter).min(LARGE_CLASSES - 1)
}

/// Memory beyond which an allocation is refused instead of bringing the machine down: what the machine has.
pub(crate) fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        // SAFETY: sysconf has no preconditions.
        let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
        match (usize::try_from(pages), usize::try_from(page)) {
            (Ok(pages), Ok(page)) if pages > 0 && page > 0 => pages.saturating_mul(page),
            _ => usize::MAX,
        }
    })
}

/// A block of at least `bytes` initialised bytes, and its true size.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` if the machine does not have that much memory.
pub(crate) fn allocate(bytes: usize) -> Result<(NonNull<u8>, usize)> {
    let too_much = || resource_exhausted!("Out of memory: cannot allocate {bytes} bytes for a tensor");
    let size = class_size(bytes).ok_or_else(too_much)?;
    if size <= SMALL_LIMIT {
        let class = size / ALIGNMENT - 1;
        let kept = SMALL.try_with(|lists| lists.borrow_mut().0[class].pop()).ok().flatten();
        if let Some(block) = kept {
            return Ok((block.0, size));
        }
    } else if size >= LARGE_LIMIT {
        let before = IN_USE.fetch_add(size, Relaxed);
        if before.saturating_add(size) > limit() {
            IN_USE.fetch_sub(size, Relaxed);
            return Err(too_much());
        }
        if let Some(block) = LARGE[large_class(size)].lock().pop() {
            LARGE_KEPT.fetch_sub(size, Relaxed);
            return Ok((block.0, size));
        }
    }
    let layout = Layout::from_size_align(size, ALIGNMENT).map_err(|_| too_much())?;
    // SAFETY: the size is not zero.
    match NonNull::new(unsafe { alloc_zeroed(layout) }) {
        Some(block) => Ok((block, size)),
        None => {
            if size >= LARGE_LIMIT {
                IN_USE.fetch_sub(size, Relaxed);
            }
            Err(too_much())
        }
    }
}

/// Takes back a block that [`allocate`] gave out with this true size.
pub(crate) fn free(block: NonNull<u8>, size: usize) {
    if size <= SMALL_LIMIT {
        let class = size / ALIGNMENT - 1;
        let kept = SMALL.try_with(|lists| {
            let list = &mut lists.borrow_mut().0[class];
            let room = list.len() < SMALL_KEPT;
            if room {
                list.push(Block(block));
            }
            room
        });
        if kept == Ok(true) {
            return;
        }
    } else if size >= LARGE_LIMIT {
        IN_USE.fetch_sub(size, Relaxed);
        if LARGE_KEPT.fetch_add(size, Relaxed) + size <= LARGE_KEPT_BYTES {
            LARGE[large_class(size)].lock().push(Block(block));
            return;
        }
        LARGE_KEPT.fetch_sub(size, Relaxed);
    }
    release(block, size);
}

fn release(block: NonNull<u8>, size: usize) {
    if let Ok(layout) = Layout::from_size_align(size, ALIGNMENT) {
        // SAFETY: the block came from `alloc_zeroed` with this very layout and nobody refers to it any more.
        unsafe { dealloc(block.as_ptr(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_little_and_are_told_apart() {
        for bytes in [1, 63, 64, 65, 1000, 1024, 1025, 5000, 16384, 100_000, 1 << 20, (1 << 20) + 1] {
            let size = class_size(bytes).unwrap();
            assert!(size >= bytes && size.is_multiple_of(ALIGNMENT));
            assert!(size - bytes < (bytes / 4).max(ALIGNMENT), "{bytes} -> {size}");
        }
        let mut seen = std::collections::HashMap::new();
        for bytes in (LARGE_LIMIT..4 << 20).step_by(4096) {
            let size = class_size(bytes).unwrap();
            assert_eq!(*seen.entry(large_class(size)).or_insert(size), size);
        }
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(allocate(usize::MAX).is_err());
        assert!(allocate(1 << 60).is_err());
    }
}
