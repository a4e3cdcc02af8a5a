//! Columns of features, of which crosses are made: rows of integers or strings, sparse, ragged or dense.

use graphmill_tensor::{Bytes, DType, Result, Tensor, invalid_argument};
use std::ops::Range;

/// A feature.
#[derive(Clone, Debug)]
pub(crate) enum Feature {
    Int(i64),
    Text(Bytes),
}

impl Feature {
    /// As text.
    pub fn text(&self) -> Bytes {
        match self {
            Feature::Int(value) => Bytes::from(value.to_string()),
            Feature::Text(text) => text.clone(),
        }
    }

    /// As a number: itself, or the fingerprint of a string.
    pub fn number(&self) -> u64 {
        match self {
            Feature::Int(value) => *value as u64,
            Feature::Text(text) => farmhash::fingerprint64(text),
        }
    }
}

/// The features of a column by row.
pub(crate) struct Column {
    features: Vec<Feature>,
    /// Where each row's features begin, and where the last one's end.
    starts: Vec<usize>,
    /// Whether the column came as a dense tensor.
    pub dense: bool,
}

fn features(values: &Tensor) -> Result<Vec<Feature>> {
    match values.dtype() {
        DType::Int64 => Ok(values.as_slice::<i64>()?.iter().map(|&v| Feature::Int(v)).collect()),
        DType::String => Ok(values.strings()?.iter().cloned().map(Feature::Text).collect()),
        other => Err(invalid_argument!("Unexpected dtype for input: {other}")),
    }
}

impl Column {
    /// From values and splits, which have been checked to have one row for each of the batch.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the splits do not fit the values.
    pub fn ragged(values: &Tensor, splits: &Tensor) -> Result<Column> {
        let features = features(values)?;
        let mut starts = Vec::with_capacity(splits.num_elements());
        let mut last = 0;
        for split in splits.to_i64_vec()? {
            let split = usize::try_from(split).ok().filter(|&s| s >= last && s <= features.len());
            last = split.ok_or_else(|| invalid_argument!("Invalid RaggedTensor"))?;
            starts.push(last);
        }
        Ok(Column { features, starts, dense: false })
    }

    /// From sorted indices and values.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a type that is not one of features.
    pub fn sparse(indices: &Tensor, values: &Tensor, rows: usize) -> Result<Column> {
        let features = features(values)?;
        let row_of: Vec<i64> =
            indices.as_slice::<i64>()?.iter().step_by(indices.shape().dim(1).max(1)).copied().collect();
        let (mut starts, mut at) = (vec![0], 0);
        for row in 0..rows as i64 {
            while at < features.len() && row_of.get(at).is_some_and(|&r| r <= row) {
                at += 1;
            }
            starts.push(at);
        }
        Ok(Column { features, starts, dense: false })
    }

    /// From a matrix.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a type that is not one of features.
    pub fn dense(values: &Tensor) -> Result<Column> {
        let (rows, width) = (values.shape().dim(0), values.shape().dim(1));
        Ok(Column { features: features(values)?, starts: (0..=rows).map(|row| row * width).collect(), dense: true })
    }

    fn range(&self, row: usize) -> Range<usize> {
        match (self.starts.get(row), self.starts.get(row + 1)) {
            (Some(&start), Some(&end)) => start..end,
            _ => 0..0,
        }
    }

    fn row(&self, row: usize) -> &[Feature] {
        self.features.get(self.range(row)).unwrap_or_default()
    }
}

/// The number of combinations of features in a row.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is too large to count.
pub(crate) fn combinations(columns: &[Column], row: usize) -> Result<usize> {
    let product = columns.iter().try_fold(1usize, |n, column| n.checked_mul(column.row(row).len()));
    product.filter(|&n| n <= 1 << 40).ok_or_else(|| invalid_argument!("There are too many crosses in row {row}"))
}

/// Calls `visit` for each combination of features in a row, the last column changing fastest.
pub(crate) fn for_each_combination(columns: &[Column], row: usize, mut visit: impl FnMut(&[&Feature])) {
    let rows: Vec<&[Feature]> = columns.iter().map(|column| column.row(row)).collect();
    if rows.iter().any(|row| row.is_empty()) {
        return;
    }
    let mut chosen = vec![0usize; rows.len()];
    loop {
        let features: Vec<&Feature> = rows.iter().zip(&chosen).map(|(row, &i)| &row[i]).collect();
        visit(&features);
        let mut column = rows.len();
        loop {
            if column == 0 {
                return;
            }
            column -= 1;
            chosen[column] += 1;
            if chosen[column] < rows[column].len() {
                break;
            }
            chosen[column] = 0;
        }
    }
}

/// Two fingerprints as one.
pub(crate) fn fingerprint_cat(a: u64, b: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |value: u64| value ^ (value >> 47);
    let result = (a ^ MULTIPLIER) ^ mix(b.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    mix(mix(result.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER))
}

/// The bucket of a fingerprint; without buckets, a non-negative number.
pub(crate) fn bucket(fingerprint: u64, buckets: i64) -> i64 {
    let modulus = if buckets > 0 { buckets as u64 } else { i64::MAX as u64 };
    (fingerprint % modulus) as i64
}

/// Features joined by a separator.
pub(crate) fn joined_text(features: &[&Feature], separator: &[u8]) -> Bytes {
    let texts: Vec<Bytes> = features.iter().map(|feature| feature.text()).collect();
    Bytes::from(texts.join(separator))
}
