//! The receiver's view of segments.

use super::segment::{Segment, State};
use crate::stream::SegmentName;
use bytes::Bytes;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// The segments of one sender that this process has mapped.
#[derive(Default)]
pub(crate) struct Opened(HashMap<SegmentName, Arc<Segment>>);

/// Contents of a segment, which is given back when nothing refers to them any more.
struct Lease {
    segment: Arc<Segment>,
    length: usize,
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self.segment.contents(self.length)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.segment.give_back();
    }
}

impl Opened {
    /// The first `length` bytes of what a sender has put into a segment, without a copy.
    ///
    /// # Errors
    /// Of the system; `InvalidData` for a segment that is not what the sender says.
    pub fn contents(&mut self, name: &SegmentName, length: usize) -> io::Result<Bytes> {
        self.0.retain(|_, segment| segment.state() != State::Retired);
        let segment = match self.0.get(name) {
            Some(segment) => segment.clone(),
            None => {
                let segment = Arc::new(Segment::open(name)?);
                self.0.insert(*name, segment.clone());
                segment
            }
        };
        if segment.state() != State::Given || length > segment.capacity() {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Ok(Bytes::from_owner(Lease { segment, length }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::SegmentPool;
    use super::*;

    #[test]
    fn segments_are_filled_again_when_they_were_given_back() {
        let (pool, mut opened) = (SegmentPool::default(), Opened::default());
        let first = pool.give(&[1; 10_000]).unwrap();
        let contents = opened.contents(&first, 10_000).unwrap();
        assert!(contents.iter().all(|&byte| byte == 1));
        let second = pool.give(&[2; 9_000]).unwrap();
        assert_ne!(first, second);
        assert!(contents.iter().all(|&byte| byte == 1));
        drop(contents);
        let third = pool.give(&[3; 9_000]).unwrap();
        assert_eq!(first, third);
        assert_eq!(opened.contents(&third, 9_000).unwrap()[..], [3; 9_000]);
    }

    #[test]
    fn what_is_not_the_segment_is_refused() {
        let (pool, mut opened) = (SegmentPool::default(), Opened::default());
        let name = pool.give(&[1; 100]).unwrap();
        assert!(opened.contents(&name, 1 << 20).is_err());
        for other in [
            SegmentName { token: [0; 16], ..name },
            SegmentName { length: name.length + 1, ..name },
            SegmentName { descriptor: 0, ..name },
            SegmentName { process: u32::MAX, ..name },
        ] {
            assert!(opened.contents(&other, 100).is_err());
        }
        let contents = opened.contents(&name, 100).unwrap();
        drop(pool);
        assert_eq!(contents[..], [1; 100]);
        drop(contents);
        assert!(opened.contents(&name, 100).is_err());
    }
}
