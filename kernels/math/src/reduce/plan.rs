//! Which elements a reduction brings together.

use graphmill_tensor::{Result, Shape, Tensor, invalid_argument};
use smallvec::{SmallVec, smallvec};

/// A run of neighbouring dimensions that are all kept or all reduced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Group {
    /// The product of the sizes.
    pub size: usize,
    /// Elements of the input from one index to the next.
    pub stride: usize,
}

/// A reduction with neighbouring dimensions merged: kept and reduced groups, outermost first.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The shape of the output.
    pub shape: Shape,
    /// Groups that stay.
    pub kept: SmallVec<[Group; 4]>,
    /// Groups that go.
    pub reduced: SmallVec<[Group; 4]>,
}

impl Plan {
    /// For an input of a shape and an int32 or int64 tensor of axes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an axis that does not exist or stands there twice.
    pub fn new(input: &Shape, axes: &Tensor, keep_dims: bool) -> Result<Plan> {
        let rank = input.rank();
        let mut gone: SmallVec<[bool; 8]> = smallvec![false; rank];
        let mut mark = |axis: i64| {
            let index = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
            let Some(slot) = index.and_then(|i| usize::try_from(i).ok()).and_then(|i| gone.get_mut(i)) else {
                return Err(invalid_argument!(
                    "Invalid reduction dimension ({axis} for input with {rank} dimension(s)"
                ));
            };
            if std::mem::replace(slot, true) {
                return Err(invalid_argument!(
                    "Invalid reduction arguments: Axes contains duplicate dimension: {}",
                    index.unwrap_or(axis)
                ));
            }
            Ok(())
        };
        match axes.as_slice::<i32>() {
            Ok(axes) => axes.iter().try_for_each(|&axis| mark(i64::from(axis)))?,
            Err(_) => axes.as_slice::<i64>()?.iter().try_for_each(|&axis| mark(axis))?,
        }
        let mut dims: SmallVec<[usize; 8]> = SmallVec::new();
        let mut groups: SmallVec<[(bool, usize); 8]> = SmallVec::new();
        for (&dim, &gone) in input.dims().iter().zip(&gone) {
            if !gone {
                dims.push(dim);
            } else if keep_dims {
                dims.push(1);
            }
            match groups.last_mut() {
                _ if dim == 1 => (),
                Some((last, size)) if *last == gone => *size *= dim,
                _ => groups.push((gone, dim)),
            }
        }
        let mut plan = Plan { shape: Shape::from_dims(&dims)?, kept: SmallVec::new(), reduced: SmallVec::new() };
        let mut stride = 1;
        for &(gone, size) in groups.iter().rev() {
            let list = if gone { &mut plan.reduced } else { &mut plan.kept };
            list.insert(0, Group { size, stride });
            stride *= size;
        }
        Ok(plan)
    }

    /// The number of elements that go into one of the output.
    pub fn count(&self) -> usize {
        self.reduced.iter().map(|g| g.size).product()
    }
}

/// The position of combination `index` of some groups.
pub(crate) fn position(groups: &[Group], index: usize) -> usize {
    if let [group] = groups {
        return index * group.stride;
    }
    let mut rest = index;
    let mut position = 0;
    for group in groups.iter().rev() {
        position += rest % group.size * group.stride;
        rest /= group.size;
    }
    position
}

/// The number of combinations of some groups.
pub(crate) fn combinations(groups: &[Group]) -> usize {
    groups.iter().map(|g| g.size).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(dims: &[usize], axes: &[i32], keep: bool) -> Result<Plan> {
        Plan::new(&Shape::from_dims(dims).unwrap(), &Tensor::vector(axes).unwrap(), keep)
    }

    #[test]
    fn neighbours_merge_and_ones_vanish() {
        let p = plan(&[2, 1, 3, 1, 5], &[1, 4], false).unwrap();
        assert_eq!(p.shape.dims(), &[2, 3, 1]);
        assert_eq!(p.kept.as_slice(), &[Group { size: 6, stride: 5 }]);
        assert_eq!(p.reduced.as_slice(), &[Group { size: 5, stride: 1 }]);
        let p = plan(&[2, 3, 4], &[-1, 0], true).unwrap();
        assert_eq!(p.shape.dims(), &[1, 3, 1]);
        assert_eq!(p.reduced.as_slice(), &[Group { size: 2, stride: 12 }, Group { size: 4, stride: 1 }]);
        assert_eq!((p.count(), position(&p.reduced, 5)), (8, 13));
        assert!(plan(&[1, 1], &[0], false).unwrap().reduced.is_empty());
    }

    #[test]
    fn axes_are_checked() {
        assert_eq!(
            plan(&[4, 5], &[2], false).unwrap_err().message(),
            "Invalid reduction dimension (2 for input with 2 dimension(s)"
        );
        assert_eq!(
            plan(&[4, 5], &[0, -2], false).unwrap_err().message(),
            "Invalid reduction arguments: Axes contains duplicate dimension: 0"
        );
        let axes = Tensor::vector(&[i64::MIN]).unwrap();
        assert!(Plan::new(&Shape::vector(3), &axes, false).is_err());
    }
}
