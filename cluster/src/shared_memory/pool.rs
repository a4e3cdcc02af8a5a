//! The sender's segments.

use super::segment::{HEAD, Segment, State};
use crate::stream::SegmentName;
use parking_lot::Mutex;
use rand::RngCore;
use std::io;

/// Most memory in segments that receivers have not given back. Beyond it tensors go through the socket.
const MAX_GIVEN: usize = 4 << 30;
/// Most memory in segments that wait to be filled again.
const MAX_FREE: usize = 1 << 30;

/// The segments that this process has made for one receiver.
#[derive(Default)]
pub(crate) struct SegmentPool(Mutex<Vec<Owned>>);

struct Owned {
    segment: Segment,
    token: [u8; 16],
}

impl Owned {
    fn name(&self) -> Option<SegmentName> {
        let descriptor = self.segment.descriptor()?;
        let length = u64::try_from(self.segment.length()).ok()?;
        Some(SegmentName { process: std::process::id(), descriptor, token: self.token, length })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.segment.set_state(State::Retired);
    }
}

impl SegmentPool {
    /// Copies bytes into a segment and gives it away; `None` where there is no memory for it.
    pub fn give(&self, content: &[u8]) -> Option<SegmentName> {
        let mut owned = self.take_free(content.len())?;
        owned.segment.fill(content);
        owned.segment.set_state(State::Given);
        let name = owned.name();
        self.0.lock().push(owned);
        name
    }

    /// A segment with room for `length` bytes, one that was given back if there is one of about that size.
    fn take_free(&self, length: usize) -> Option<Owned> {
        let mut segments = self.0.lock();
        let fits = |owned: &Owned| {
            let capacity = owned.segment.capacity();
            owned.segment.state() == State::Free && capacity >= length && capacity / 4 <= length
        };
        if let Some(at) = segments.iter().position(fits) {
            return Some(segments.swap_remove(at));
        }
        let (mut free, mut given) = (0, 0);
        segments.retain(|owned| {
            let room = owned.segment.length();
            if owned.segment.state() == State::Free {
                free += room;
                free <= MAX_FREE
            } else {
                given += room;
                true
            }
        });
        if given.saturating_add(length) > MAX_GIVEN {
            return None;
        }
        drop(segments);
        let created = Owned::new(length);
        created.inspect_err(|error| tracing::debug!("no shared memory: {error}")).ok()
    }
}

impl Owned {
    fn new(length: usize) -> io::Result<Owned> {
        let mut token = [0; 16];
        rand::rng().fill_bytes(&mut token);
        let capacity = length.checked_next_multiple_of(HEAD).unwrap_or(length);
        Ok(Owned { segment: Segment::create(capacity, &token)?, token })
    }
}
