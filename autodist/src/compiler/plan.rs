//! How a variable's indices are shared among its parts.

use crate::strategy::{PartRange, Partitioner};
use graphmill_tensor::{Result, invalid_argument};

/// A variable's shape, and the stretch of the split axis that each part holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionPlan {
    axis: usize,
    shape: Vec<u64>,
    ranges: Vec<PartRange>,
}

impl PartitionPlan {
    /// The plan for a variable of this shape.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the shape is not known or has another rank, or the axis is shorter than the number of parts.
    pub fn new(partitioner: Partitioner, dims: &[i64]) -> Result<PartitionPlan> {
        let shape: Option<Vec<u64>> = dims.iter().map(|&size| u64::try_from(size).ok()).collect();
        let Some(shape) = shape.filter(|shape| shape.len() == partitioner.rank()) else {
            return Err(invalid_argument!("partitioner \"{partitioner}\" does not fit the shape {dims:?}"));
        };
        let axis = partitioner.axis();
        let size = shape.get(axis).copied().unwrap_or(0);
        Ok(PartitionPlan { axis, ranges: partitioner.ranges(size)?, shape })
    }

    /// The axis that is split.
    pub fn axis(&self) -> usize {
        self.axis
    }

    /// The parts in order.
    pub fn ranges(&self) -> &[PartRange] {
        &self.ranges
    }

    /// The shape of the whole.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The shape of a part; `None` if there is no such part.
    pub fn part_shape(&self, part: usize) -> Option<Vec<u64>> {
        let size = self.ranges.get(part)?.size;
        Some(self.shape.iter().enumerate().map(|(axis, &whole)| if axis == self.axis { size } else { whole }).collect())
    }

    /// The part that holds an index of the split axis, and the index within the part; `None` beyond the end.
    pub fn locate(&self, index: u64) -> Option<(usize, u64)> {
        let part = self.ranges.partition_point(|range| range.offset <= index).checked_sub(1)?;
        let local = index - self.ranges[part].offset;
        (local < self.ranges[part].size).then_some((part, local))
    }

    /// How a checkpoint names the slice that a part is: the whole shape, then offset and length of each axis, as in
    /// `10000 16 0,5000:0,16`; `None` if there is no such part.
    pub fn slice_spec(&self, part: usize) -> Option<String> {
        let range = self.ranges.get(part)?;
        let sizes: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        let extents: Vec<String> = (self.shape.iter().enumerate())
            .map(|(axis, &size)| {
                let (offset, length) = if axis == self.axis { (range.offset, range.size) } else { (0, size) };
                format!("{offset},{length}")
            })
            .collect();
        Some(format!("{} {}", sizes.join(" "), extents.join(":")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(partitioner: &str, dims: &[i64]) -> PartitionPlan {
        PartitionPlan::new(Partitioner::parse(partitioner).unwrap(), dims).unwrap()
    }

    #[test]
    fn rows_belong_to_one_part() {
        let three = plan("3", &[10]);
        let located: Vec<(usize, u64)> = (0..10).map(|row| three.locate(row).unwrap()).collect();
        assert_eq!(located, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]);
        assert_eq!(three.locate(10), None);
        let two = plan("2", &[10]);
        assert_eq!([7, 2, 9, 0, 5].map(|row| two.locate(row).unwrap()), [(1, 2), (0, 2), (1, 4), (0, 0), (1, 0)]);
    }

    #[test]
    fn slices_are_named_as_in_checkpoints() {
        let rows = plan("2,1", &[10_000, 16]);
        assert_eq!(rows.slice_spec(0).unwrap(), "10000 16 0,5000:0,16");
        assert_eq!(rows.slice_spec(1).unwrap(), "10000 16 5000,5000:0,16");
        assert_eq!(rows.part_shape(1).unwrap(), [5000, 16]);
        assert_eq!(rows.slice_spec(2), None);
        assert_eq!(plan("1,3", &[4, 16]).slice_spec(1).unwrap(), "4 16 0,4:6,5");
    }

    #[test]
    fn shapes_must_fit() {
        let partitioner = Partitioner::parse("3,1").unwrap();
        for dims in [&[2i64, 5][..], &[10], &[-1, 4]] {
            assert!(PartitionPlan::new(partitioner, dims).is_err(), "{dims:?}");
        }
    }
}
