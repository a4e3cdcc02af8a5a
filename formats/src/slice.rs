//! Blocks cut out of a tensor, as variables in several parts are stored.

use graphmill_tensor::{Result, Shape, Tensor, internal, invalid_argument};
use graphmill_wire::tensorflow::TensorSliceProto;
use graphmill_wire::tensorflow::tensor_slice_proto::{Extent, extent::HasLengthHack};
use smallvec::SmallVec;
use std::fmt;

/// Length that stands for a whole dimension.
const WHOLE: i64 = -1;

/// A block of a tensor: for each dimension where it starts and how long it is, or that it is whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorSlice(SmallVec<[(i64, i64); 4]>);

impl TensorSlice {
    /// From starts and lengths; a length of -1 is the whole dimension.
    #[cfg(test)]
    pub(crate) fn new(extents: &[(i64, i64)]) -> TensorSlice {
        TensorSlice(SmallVec::from_slice(extents))
    }

    /// The whole of a tensor of a rank.
    pub fn whole(rank: usize) -> TensorSlice {
        TensorSlice(SmallVec::from_elem((0, WHOLE), rank))
    }

    /// From its message.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for negative starts, lengths below 1, and ends that overflow.
    pub fn from_proto(proto: &TensorSliceProto) -> Result<TensorSlice> {
        let mut extents = SmallVec::with_capacity(proto.extent.len());
        for extent in &proto.extent {
            let length = match extent.has_length_hack {
                Some(HasLengthHack::Length(length)) => length,
                None => WHOLE,
            };
            if extent.start != 0 || length != WHOLE {
                check_extent(extent.start, length, || format!("extent = start: {} length: {length}", extent.start))?;
            }
            extents.push((extent.start, length));
        }
        Ok(TensorSlice(extents))
    }

    /// Its message.
    pub fn to_proto(&self) -> TensorSliceProto {
        let extent = |&(start, length): &(i64, i64)| match length {
            WHOLE => Extent::default(),
            _ => Extent { start, has_length_hack: Some(HasLengthHack::Length(length)) },
        };
        TensorSliceProto { extent: self.0.iter().map(extent).collect() }
    }

    /// From text: `start,length` or `-` for each dimension, with `:` between.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for anything else.
    pub fn parse(text: &str) -> Result<TensorSlice> {
        let mut extents = SmallVec::new();
        for item in text.split(':').filter(|item| !item.is_empty()) {
            if item == "-" {
                extents.push((0, WHOLE));
                continue;
            }
            let mut numbers = item.split(',').filter(|part| !part.is_empty()).map(|part| part.trim().parse::<i64>());
            let (Some(Ok(start)), Some(Ok(length)), None) = (numbers.next(), numbers.next(), numbers.next()) else {
                return Err(invalid_argument!("Expected a pair of numbers or '-' but got '{item}': string = {text}"));
            };
            check_extent(start, length, || format!("string = {text}"))?;
            extents.push((start, length));
        }
        Ok(TensorSlice(extents))
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Whether every dimension is marked as whole.
    pub fn is_whole(&self) -> bool {
        self.0.iter().all(|&(_, length)| length == WHOLE)
    }

    /// Whether it covers all of a shape, marked as whole or not.
    pub fn covers(&self, shape: &Shape) -> bool {
        self.is_whole() || self.shape_of(shape).is_ok_and(|slice| slice == *shape)
    }

    /// Starts and lengths as keys have them.
    pub(crate) fn stored_extents(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.0.iter().map(|&(start, length)| if length == WHOLE { (0, WHOLE) } else { (start, length) })
    }

    /// The shape of this block of a tensor of a shape.
    ///
    /// # Errors
    /// `INTERNAL`, as TensorFlow has it, if ranks differ or the block is not within the shape.
    pub fn shape_of(&self, shape: &Shape) -> Result<Shape> {
        let dims: Vec<usize> = self.ranges(shape)?.iter().map(|&(_, length)| length).collect();
        Shape::from_dims(&dims)
    }

    /// Start and length in every dimension of a shape.
    fn ranges(&self, shape: &Shape) -> Result<SmallVec<[(usize, usize); 4]>> {
        if self.rank() != shape.rank() {
            return Err(internal!("Mismatching ranks: shape = {shape}, slice = {self}"));
        }
        let mut ranges = SmallVec::with_capacity(self.rank());
        for (axis, (&(start, length), &size)) in self.0.iter().zip(shape.dims()).enumerate() {
            if length == WHOLE {
                ranges.push((0, size));
                continue;
            }
            match (usize::try_from(start), usize::try_from(length)) {
                (Ok(start), Ok(length)) if start.checked_add(length).is_some_and(|end| end <= size) => {
                    ranges.push((start, length));
                }
                _ => {
                    return Err(internal!("Extent in dimension {axis} out of bounds: shape = {shape}, slice = {self}"));
                }
            }
        }
        Ok(ranges)
    }

    /// The runs of elements that two blocks of a tensor share: where each starts in the one, in the other, and how long it is.
    ///
    /// # Errors
    /// As [`TensorSlice::shape_of`].
    pub(crate) fn common_runs(&self, other: &TensorSlice, shape: &Shape) -> Result<Vec<(usize, usize, usize)>> {
        let (mine, theirs) = (self.ranges(shape)?, other.ranges(shape)?);
        let mut runs = vec![(0usize, 0usize, 1usize)];
        // From the innermost dimension out: runs join while both blocks hold the whole of what lies inside.
        let (mut my_stride, mut their_stride) = (1usize, 1usize);
        for axis in (0..shape.rank()).rev() {
            let (my_start, my_length) = mine[axis];
            let (their_start, their_length) = theirs[axis];
            let start = my_start.max(their_start);
            let end = (my_start + my_length).min(their_start + their_length);
            if start >= end {
                return Ok(Vec::new());
            }
            let joined = match runs.as_slice() {
                [(0, 0, length)] if *length == my_stride && *length == their_stride => Some(*length),
                _ => None,
            };
            runs = match joined {
                Some(length) => {
                    vec![((start - my_start) * length, (start - their_start) * length, (end - start) * length)]
                }
                None => (start..end)
                    .flat_map(|i| runs.iter().map(move |run| (i, run)))
                    .map(|(i, &(mine, theirs, length))| {
                        (mine + (i - my_start) * my_stride, theirs + (i - their_start) * their_stride, length)
                    })
                    .collect(),
            };
            my_stride *= my_length;
            their_stride *= their_length;
        }
        Ok(runs)
    }

    /// Copies what this block of a tensor of a shape has in common with another: `from` holds this block, `to` the other.
    ///
    /// # Errors
    /// As [`TensorSlice::shape_of`].
    pub(crate) fn copy_common(&self, from: &Tensor, other: &TensorSlice, to: &mut Tensor, shape: &Shape) -> Result<()> {
        for (source, target, length) in self.common_runs(other, shape)? {
            to.copy_elements(target, from, source..source + length)?;
        }
        Ok(())
    }

    /// How many elements two blocks of a tensor of a shape share.
    pub(crate) fn common_elements(&self, other: &TensorSlice, shape: &Shape) -> Result<usize> {
        let (mine, theirs) = (self.ranges(shape)?, other.ranges(shape)?);
        let common = |(&(start, length), &(other_start, other_length)): (&(usize, usize), &(usize, usize))| {
            (start + length).min(other_start + other_length).saturating_sub(start.max(other_start))
        };
        Ok(mine.iter().zip(&theirs).map(common).product())
    }
}

fn check_extent(start: i64, length: i64, what: impl Fn() -> String) -> Result<()> {
    if start < 0 || length <= 0 {
        return Err(invalid_argument!(
            "Expected non-negative start and positive length but got start = {start}, length = {length}: {}",
            what()
        ));
    }
    match start.checked_add(length) {
        Some(_) => Ok(()),
        None => Err(invalid_argument!("Extent end exceeds the maximum possible size: {}", what())),
    }
}

/// As TensorFlow prints it: `0,2:-`.
impl fmt::Display for TensorSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (axis, &(start, length)) in self.0.iter().enumerate() {
            f.write_str(if axis == 0 { "" } else { ":" })?;
            match length {
                WHOLE => f.write_str("-")?,
                _ => write!(f, "{start},{length}")?,
            }
        }
        Ok(())
    }
}

/// Reads a specification `dim dim ... slice`: the shape of the whole tensor, the block of it, and the block's shape.
///
/// # Errors
/// `INVALID_ARGUMENT` for text of another form, `INTERNAL` for a block outside of the shape.
pub fn parse_shape_and_slice(text: &str) -> Result<(Shape, TensorSlice, Shape)> {
    let Some((dims, slice)) = text.rsplit_once(' ') else {
        return Err(invalid_argument!("Need least two elements in shape_and_slice specification: {text}"));
    };
    let slice = TensorSlice::parse(slice)?;
    let sizes = dims.split(' ').map(str::parse::<i64>).collect::<Result<Vec<_>, _>>();
    let sizes = sizes.map_err(|_| invalid_argument!("Non numerical dimension in shape_and_slice: {text}"))?;
    let shape = Shape::new(&sizes)?;
    let slice_shape = slice.shape_of(&shape)?;
    Ok((shape, slice, slice_shape))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;

    #[test]
    fn specifications_are_read() {
        let (shape, slice, part) = parse_shape_and_slice("4 3 0,2:-").unwrap();
        assert_eq!((shape.dims(), part.dims()), (&[4, 3][..], &[2, 3][..]));
        assert_eq!(slice.to_string(), "0,2:-");
        assert_eq!(TensorSlice::from_proto(&slice.to_proto()).unwrap(), slice);
        for bad in ["4", "4 0,2:-", "4 x 0,2:-", "4 3 1,2,3:-", "4 3 -1,2:-", "4 3 1,0:-", "-4 -"] {
            assert!(parse_shape_and_slice(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_shape_and_slice("4 3,2").unwrap_err().code(), Code::Internal);
        assert_eq!(parse_shape_and_slice("4 9223372036854775807,1").unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn blocks_overlap() {
        let shape = Shape::from_dims(&[4, 6]).unwrap();
        let whole = TensorSlice::whole(2);
        let top = TensorSlice::new(&[(1, 2), (0, -1)]);
        assert_eq!(top.common_runs(&whole, &shape).unwrap(), [(0, 6, 12)]);
        assert_eq!(whole.common_runs(&whole, &shape).unwrap(), [(0, 0, 24)]);
        let middle = TensorSlice::new(&[(0, 2), (2, 3)]);
        assert_eq!(middle.common_runs(&top, &shape).unwrap(), [(3, 2, 3)]);
        assert_eq!(middle.common_runs(&whole, &shape).unwrap(), [(0, 2, 3), (3, 8, 3)]);
        assert_eq!(middle.common_elements(&whole, &shape).unwrap(), 6);
        let last = TensorSlice::new(&[(3, 1), (0, -1)]);
        assert!(last.common_runs(&middle, &shape).unwrap().is_empty());
        assert_eq!(last.common_elements(&middle, &shape).unwrap(), 0);
        let scalar = TensorSlice::whole(0);
        assert_eq!(scalar.common_runs(&scalar, &Shape::scalar()).unwrap(), [(0, 0, 1)]);
    }
}
