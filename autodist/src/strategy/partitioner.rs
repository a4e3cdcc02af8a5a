//! How a variable is cut.

use graphmill_tensor::{Result, invalid_argument};
use std::fmt;

/// A number of parts along one axis. Its text lists the parts of every axis: `1,3` cuts a matrix into three along axis 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partitioner {
    rank: usize,
    axis: usize,
    parts: usize,
}

/// The stretch of an axis that a part holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartRange {
    /// The first index.
    pub offset: u64,
    /// How many indices.
    pub size: u64,
}

impl Partitioner {
    /// Cuts `axis` of a variable of this rank into `parts`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` unless the axis exists and there are at least two parts.
    pub fn new(rank: usize, axis: usize, parts: usize) -> Result<Partitioner> {
        if axis >= rank {
            return Err(invalid_argument!("axis {axis} cannot be split in a variable of rank {rank}"));
        }
        if parts < 2 {
            return Err(invalid_argument!("a variable cannot be split into {parts} parts; leave it whole"));
        }
        Ok(Partitioner { rank, axis, parts })
    }

    /// Reads `2,1`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` unless every entry is a number from 1 up and exactly one is above 1.
    pub fn parse(text: &str) -> Result<Partitioner> {
        let mut active = None;
        let mut rank = 0;
        for (axis, entry) in text.split(',').enumerate() {
            rank = axis + 1;
            let parts: u32 = entry
                .trim()
                .parse()
                .map_err(|_| invalid_argument!("partitioner \"{text}\": \"{entry}\" is not a number of parts"))?;
            match parts {
                0 => return Err(invalid_argument!("partitioner \"{text}\": an axis cannot have 0 parts")),
                1 => {}
                _ if active.is_some() => {
                    return Err(invalid_argument!("partitioner \"{text}\": only one axis can be split"));
                }
                _ => active = Some((axis, parts as usize)),
            }
        }
        let Some((axis, parts)) = active else {
            return Err(invalid_argument!("partitioner \"{text}\": no axis is split; leave the text empty instead"));
        };
        Partitioner::new(rank, axis, parts)
    }

    /// The rank of the variable.
    pub fn rank(self) -> usize {
        self.rank
    }

    /// The axis that is split.
    pub fn axis(self) -> usize {
        self.axis
    }

    /// The number of parts.
    pub fn parts(self) -> usize {
        self.parts
    }

    /// What each part holds of an axis of this size: all the same, or one index more in the first ones.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if there are fewer indices than parts.
    pub fn ranges(self, size: u64) -> Result<Vec<PartRange>> {
        let parts = self.parts as u64;
        if size < parts {
            return Err(invalid_argument!("axis {} of size {size} cannot be split into {parts} parts", self.axis));
        }
        let (quotient, excess) = (size / parts, size % parts);
        let range = |i: u64| PartRange { offset: i * quotient + i.min(excess), size: quotient + u64::from(i < excess) };
        Ok((0..parts).map(range).collect())
    }
}

/// One number an axis, with commas between.
impl fmt::Display for Partitioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for axis in 0..self.rank {
            let separator = if axis == 0 { "" } else { "," };
            write!(f, "{separator}{}", if axis == self.axis { self.parts } else { 1 })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for text in ["2", "2,1", "1,3,1"] {
            assert_eq!(Partitioner::parse(text).unwrap().to_string(), text);
        }
        for (text, problem) in [
            ("1,1", "no axis is split"),
            ("2,2", "only one axis"),
            ("0,2", "0 parts"),
            ("2,x", "not a number"),
            ("", "not a number"),
        ] {
            let error = Partitioner::parse(text).unwrap_err();
            assert!(error.message().contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn the_excess_goes_to_the_first_parts() {
        let sizes = |size, parts| -> Vec<u64> {
            Partitioner::new(1, 0, parts).unwrap().ranges(size).unwrap().iter().map(|r| r.size).collect()
        };
        assert_eq!(sizes(10_000, 3), [3334, 3333, 3333]);
        assert_eq!(sizes(16, 3), [6, 5, 5]);
        let offsets: Vec<u64> =
            Partitioner::new(1, 0, 3).unwrap().ranges(10).unwrap().iter().map(|r| r.offset).collect();
        assert_eq!(offsets, [0, 4, 7]);
        assert!(Partitioner::new(1, 0, 3).unwrap().ranges(2).is_err());
    }
}
