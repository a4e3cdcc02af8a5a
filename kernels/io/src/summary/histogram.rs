//! How often values fall between limits that grow by a tenth.

use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::HistogramProto;
use std::sync::LazyLock;

/// Upper limits of the buckets, in order.
static LIMITS: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let mut positive = Vec::new();
    let mut limit = 1.0e-12;
    while limit < 1.0e20 {
        positive.push(limit);
        limit *= 1.1;
    }
    positive.push(f64::MAX);
    let negative = positive.iter().rev().map(|limit| -limit);
    negative.chain([0.0]).chain(positive.iter().copied()).collect()
});

/// The histogram of some values; `name` is what errors call them. Runs of empty buckets become one.
///
/// # Errors
/// `INVALID_ARGUMENT` for a value that is not finite.
pub(super) fn histogram(values: &[f64], name: &str) -> Result<HistogramProto> {
    let mut counts = vec![0.0; LIMITS.len()];
    let mut result = HistogramProto { min: f64::MAX, max: -f64::MAX, ..HistogramProto::default() };
    for &value in values {
        if value.is_nan() {
            return Err(invalid_argument!("Nan in summary histogram for: {name}"));
        }
        if value.is_infinite() {
            return Err(invalid_argument!("Infinity in summary histogram for: {name}"));
        }
        // The largest double is behind every limit; it counts in the last bucket.
        let bucket = LIMITS.partition_point(|&limit| limit <= value).min(LIMITS.len() - 1);
        if let Some(count) = counts.get_mut(bucket) {
            *count += 1.0;
        }
        result.min = result.min.min(value);
        result.max = result.max.max(value);
        result.num += 1.0;
        result.sum += value;
        result.sum_squares += value * value;
    }
    let mut buckets = LIMITS.iter().copied().zip(counts).peekable();
    while let Some((mut limit, count)) = buckets.next() {
        if count == 0.0 {
            while let Some((next, _)) = buckets.next_if(|&(_, count)| count == 0.0) {
                limit = next;
            }
        }
        result.bucket_limit.push(limit);
        result.bucket.push(count);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_buckets_are_joined() {
        let found = histogram(&[1.0, 1.0, -2.0], "x").unwrap();
        assert_eq!((found.min, found.max, found.num, found.sum, found.sum_squares), (-2.0, 1.0, 3.0, 0.0, 6.0));
        assert_eq!(found.bucket, [0.0, 1.0, 0.0, 2.0, 0.0]);
        assert_eq!(found.bucket_limit[4], f64::MAX);
        assert_eq!(histogram(&[], "x").unwrap().bucket, [0.0]);
        assert_eq!(histogram(&[f64::NAN], "x").unwrap_err().message(), "Nan in summary histogram for: x");
        assert!(histogram(&[f64::MAX], "x").is_ok());
    }
}
