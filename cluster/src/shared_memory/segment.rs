//! One segment, mapped into this process.
#![allow(unsafe_code)]

use crate::stream::SegmentName;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Length of the head, after which the contents begin.
pub(super) const HEAD: usize = 4096;
/// Where in the head the state is, behind the token.
const STATE: usize = 64;

/// Who has a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    /// The sender, which may fill it.
    Free = 0,
    /// The receiver, which may read it.
    Given = 1,
    /// Nobody any more: the sender has let go of it for good.
    Retired = 2,
}

/// A mapping of a segment.
pub(super) struct Segment {
    map: MmapRaw,
    /// Kept open by the sender, so that receivers can open it.
    file: Option<OwnedFd>,
}

impl Segment {
    /// New memory with room for `capacity` bytes.
    pub fn create(capacity: usize, token: &[u8; 16]) -> io::Result<Segment> {
        let file = memfd_create("graphmill", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let length = capacity.checked_add(HEAD).and_then(|length| u64::try_from(length).ok());
        let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        ftruncate(&file, length)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let map = MmapOptions::new().map_raw(&file)?;
        let segment = Segment { map, file: Some(file) };
        // SAFETY: the mapping is at least a head long, and no other process knows of it yet.
        unsafe { std::ptr::copy_nonoverlapping(token.as_ptr(), segment.map.as_mut_ptr(), token.len()) };
        Ok(segment)
    }

    /// The memory that another process has made.
    ///
    /// # Errors
    /// Of the system; `InvalidData` for memory of another length or with another token.
    pub fn open(name: &SegmentName) -> io::Result<Segment> {
        let path = format!("/proc/{}/fd/{}", name.process, name.descriptor);
        let file = File::options().read(true).write(true).open(path)?;
        // Only anonymous memory has seals. With this one nobody can take away what is mapped here.
        let sealed = fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        let length = file.metadata()?.len();
        if !sealed || length != name.length || length < HEAD as u64 {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let segment = Segment { map: MmapOptions::new().map_raw(&file)?, file: None };
        let mut token = [0; 16];
        // SAFETY: the mapping is at least a head long. The sender wrote the token before it told anybody the name.
        unsafe { std::ptr::copy_nonoverlapping(segment.map.as_ptr(), token.as_mut_ptr(), token.len()) };
        if token == name.token { Ok(segment) } else { Err(io::Error::from(io::ErrorKind::InvalidData)) }
    }

    /// The descriptor by which others open it.
    pub fn descriptor(&self) -> Option<i32> {
        self.file.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Length of the whole, its head included.
    pub fn length(&self) -> usize {
        self.map.len()
    }

    /// Room for contents.
    pub fn capacity(&self) -> usize {
        self.map.len().saturating_sub(HEAD)
    }

    fn state_word(&self) -> &AtomicU32 {
        // SAFETY: the word lies within the head, is aligned, and is only ever used as an atomic by either process.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(STATE).cast()) }
    }

    pub fn state(&self) -> State {
        match self.state_word().load(Ordering::Acquire) {
            0 => State::Free,
            1 => State::Given,
            _ => State::Retired,
        }
    }

    pub fn set_state(&self, state: State) {
        self.state_word().store(state as u32, Ordering::Release);
    }

    /// Gives the segment back, unless it was retired meanwhile.
    pub fn give_back(&self) {
        let (given, free) = (State::Given as u32, State::Free as u32);
        let _ = self.state_word().compare_exchange(given, free, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Fills a segment that the sender has.
    pub fn fill(&mut self, content: &[u8]) {
        let length = content.len().min(self.capacity());
        // SAFETY: the segment has room for `length` bytes, and `&mut self` of the sender's mapping in the state `Free` means that
        // nobody reads them.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), self.map.as_mut_ptr().add(HEAD), length) };
    }

    /// The first bytes of the contents of a segment that the receiver has.
    pub fn contents(&self, length: usize) -> &[u8] {
        let length = length.min(self.capacity());
        // SAFETY: the bytes are within the mapping, whose length `open` has checked against the file's. The sender does not write
        // while the state is `Given`, which it is until this mapping gives it back.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(HEAD), length) }
    }
}
