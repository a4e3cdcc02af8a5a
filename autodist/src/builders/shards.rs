//! Into how many parts to split an axis.

use graphmill_tensor::{Result, invalid_argument};

/// No variable is split into more parts.
pub const MAX_SHARDS: u64 = 1000;

/// The most parts that a builder makes of one variable. Where the divisors of a size lead to more, as with large primes, it makes
/// this many instead, of unequal sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShardLimit {
    /// So many for each device that parameter servers may use.
    PerDestination(u64),
    /// So many whatever the cluster.
    Total(u64),
    /// What the divisors say; more than [`MAX_SHARDS`] is an error.
    Divisors,
}

impl Default for ShardLimit {
    /// Four for each device.
    fn default() -> ShardLimit {
        ShardLimit::PerDestination(4)
    }
}

impl ShardLimit {
    /// What is made of `shards` parts of the variable.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for more than [`MAX_SHARDS`].
    pub(super) fn apply(self, shards: u64, destinations: usize, variable: &str) -> Result<usize> {
        let limit = match self {
            ShardLimit::PerDestination(each) => each.saturating_mul(destinations as u64),
            ShardLimit::Total(limit) => limit,
            ShardLimit::Divisors => u64::MAX,
        };
        let shards = shards.min(limit.max(1));
        if shards > MAX_SHARDS {
            return Err(invalid_argument!(
                "Variable \"{variable}\" would be split into {shards} parts; set a shard limit of at most {MAX_SHARDS}"
            ));
        }
        Ok(shards as usize)
    }
}

/// The smallest number from 2 that divides `size`; 1 for sizes below 2.
pub fn smallest_divisor(size: u64) -> u64 {
    if size < 2 {
        return 1;
    }
    let mut candidates = (2..).take_while(|i: &u64| i.checked_mul(*i).is_some_and(|square| square <= size));
    candidates.find(|i| size.is_multiple_of(*i)).unwrap_or(size)
}

/// The smallest number from 2 to `size - 1` that does not divide `size`, else `size`; 1 for sizes below 2.
pub fn smallest_non_divisor(size: u64) -> u64 {
    if size < 2 {
        return 1;
    }
    (2..size).find(|i| !size.is_multiple_of(*i)).unwrap_or(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_follow_the_divisors() {
        let sizes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 28, 60, 97, 128, 784, 10_000, 10_007, 793_471];
        let even = [1, 1, 2, 3, 2, 5, 2, 7, 2, 3, 2, 2, 2, 2, 97, 2, 2, 2, 10_007, 7];
        let uneven = [1, 1, 2, 2, 3, 2, 4, 2, 3, 2, 5, 3, 3, 7, 2, 3, 3, 3, 2, 2];
        assert_eq!(sizes.map(smallest_divisor), even);
        assert_eq!(sizes.map(smallest_non_divisor), uneven);
    }

    #[test]
    fn limits_cut_the_number() {
        let apply = |limit: ShardLimit, shards| limit.apply(shards, 2, "v:0");
        assert_eq!(apply(ShardLimit::default(), 7).unwrap(), 7);
        assert_eq!(apply(ShardLimit::default(), 10_007).unwrap(), 8);
        assert_eq!(apply(ShardLimit::Total(3), 97).unwrap(), 3);
        assert_eq!(apply(ShardLimit::Divisors, 97).unwrap(), 97);
        let error = apply(ShardLimit::Divisors, 10_007).unwrap_err();
        assert!(error.message().contains("\"v:0\" would be split into 10007 parts"), "{error}");
    }
}
