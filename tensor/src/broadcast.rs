//! Broadcasting of shapes by numpy's rules, for any number of operands.

use crate::{Result, Shape, invalid_argument};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// How operands of different shapes are walked in step to make one output.
///
/// Neighbouring dimensions that behave alike for every operand are merged, so that the innermost one is as long as it can be and
/// each operand's stride in it is 0 (repeat) or 1 (walk).
#[derive(Clone, Debug)]
pub struct Broadcast {
    output: Shape,
    /// Merged sizes, outermost first; never empty.
    dims: SmallVec<[usize; 4]>,
    /// For each operand, a stride in elements for each merged dimension; 0 where it repeats.
    strides: SmallVec<[SmallVec<[usize; 4]>; 3]>,
}

impl Broadcast {
    /// The common shape of two operands.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` `Incompatible shapes: [2,3] vs. [4]`.
    pub fn new(a: &Shape, b: &Shape) -> Result<Broadcast> {
        Broadcast::of(&[a, b]).map_err(|error| {
            let text = if error.message().starts_with("Incompatible") {
                format!("Incompatible shapes: {a} vs. {b}")
            } else {
                error.message().to_owned()
            };
            error.with_message(text)
        })
    }

    /// The common shape of any number of operands.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if two sizes of one dimension differ and neither is 1.
    pub fn of(shapes: &[&Shape]) -> Result<Broadcast> {
        let rank = shapes.iter().map(|s| s.rank()).max().unwrap_or(0);
        let size = |shape: &Shape, axis: usize| (axis + shape.rank()).checked_sub(rank).map_or(1, |a| shape.dim(a));
        let mut full: SmallVec<[usize; 4]> = smallvec![1; rank];
        for (axis, dim) in full.iter_mut().enumerate() {
            for shape in shapes {
                let this = size(shape, axis);
                if *dim == 1 {
                    *dim = this;
                } else if this != 1 && this != *dim {
                    let all: Vec<String> = shapes.iter().map(|s| s.to_string()).collect();
                    return Err(invalid_argument!("Incompatible shapes: {}", all.join(" vs. ")));
                }
            }
        }
        let output = Shape::from_dims(&full)?;
        let mut dims: SmallVec<[usize; 4]> = SmallVec::new();
        let mut walks: SmallVec<[SmallVec<[bool; 4]>; 3]> = smallvec![SmallVec::new(); shapes.len()];
        for (axis, &dim) in full.iter().enumerate() {
            if dim == 1 {
                continue;
            }
            let alike = !dims.is_empty()
                && shapes.iter().zip(&walks).all(|(shape, walk)| walk.last() == Some(&(size(shape, axis) != 1)));
            match dims.last_mut() {
                Some(last) if alike => *last *= dim,
                _ => {
                    dims.push(dim);
                    for (shape, walk) in shapes.iter().zip(&mut walks) {
                        walk.push(size(shape, axis) != 1);
                    }
                }
            }
        }
        if dims.is_empty() {
            dims.push(1);
            walks.iter_mut().for_each(|walk| walk.push(false));
        }
        let strides = walks
            .iter()
            .map(|walk| {
                let mut next = 1;
                let mut strides: SmallVec<[usize; 4]> = smallvec![0; dims.len()];
                for axis in (0..dims.len()).rev() {
                    if walk[axis] {
                        strides[axis] = next;
                        next *= dims[axis];
                    }
                }
                strides
            })
            .collect();
        Ok(Broadcast { output, dims, strides })
    }

    /// The shape of the output.
    pub fn shape(&self) -> &Shape {
        &self.output
    }

    /// Whether operand `i` is walked as the output is: element for element.
    pub fn is_identity(&self, i: usize) -> bool {
        self.dims.len() == 1 && (self.strides[i][0] == 1 || self.output.num_elements() == 1)
    }

    /// Whether operand `i` is one element repeated.
    pub fn is_scalar(&self, i: usize) -> bool {
        self.dims.len() == 1 && self.strides[i][0] == 0
    }

    /// The number of dimensions behind the merging of neighbours that behave alike.
    pub fn merged_rank(&self) -> usize {
        self.dims.len()
    }

    /// Elements in a full innermost run.
    pub fn run_length(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }

    /// The stride of operand `i` within a run: 0 or 1.
    pub fn run_stride(&self, i: usize) -> usize {
        self.strides[i].last().copied().unwrap_or(0)
    }

    /// Visits the runs that cover the output elements `range` in order: the output positions of the run, and each operand's
    /// position of its first element. Within the run operand `i` advances by [`Broadcast::run_stride`].
    pub fn for_each_run(&self, range: Range<usize>, mut visit: impl FnMut(Range<usize>, &[usize])) {
        if range.is_empty() {
            return;
        }
        let inner = self.run_length();
        let last = self.dims.len() - 1;
        let mut index: SmallVec<[usize; 4]> = smallvec![0; self.dims.len()];
        let mut rest = range.start;
        for axis in (0..self.dims.len()).rev() {
            index[axis] = rest % self.dims[axis];
            rest /= self.dims[axis];
        }
        let mut positions: SmallVec<[usize; 3]> =
            self.strides.iter().map(|s| s.iter().zip(&index).map(|(s, i)| s * i).sum()).collect();
        let mut at = range.start;
        loop {
            let length = (inner - index[last]).min(range.end - at);
            visit(at..at + length, &positions);
            at += length;
            if at >= range.end {
                return;
            }
            for (position, strides) in positions.iter_mut().zip(&self.strides) {
                *position -= strides[last] * index[last];
            }
            index[last] = 0;
            let mut axis = last;
            while axis > 0 {
                axis -= 1;
                index[axis] += 1;
                if index[axis] < self.dims[axis] {
                    for (position, strides) in positions.iter_mut().zip(&self.strides) {
                        *position += strides[axis];
                    }
                    break;
                }
                index[axis] = 0;
                for (position, strides) in positions.iter_mut().zip(&self.strides) {
                    *position -= strides[axis] * (self.dims[axis] - 1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Operand position of each output element, by the definition of broadcasting.
    fn reference(shape: &Shape, output: &Shape) -> Vec<usize> {
        let strides = shape.strides();
        let out_strides = output.strides();
        (0..output.num_elements())
            .map(|flat| {
                (0..shape.rank())
                    .map(|axis| {
                        let out_axis = axis + output.rank() - shape.rank();
                        let index = flat / out_strides[out_axis] % output.dim(out_axis);
                        if shape.dim(axis) == 1 { 0 } else { index * strides[axis] }
                    })
                    .sum()
            })
            .collect()
    }

    fn operand() -> impl Strategy<Value = (Vec<usize>, Vec<bool>, Vec<bool>, usize, usize)> {
        proptest::collection::vec(1usize..4, 0..5).prop_flat_map(|dims| {
            let rank = dims.len();
            let flags = proptest::collection::vec(any::<bool>(), rank);
            (Just(dims), flags.clone(), flags, 0..=rank, 0..=rank)
        })
    }

    proptest! {
        #[test]
        fn runs_visit_what_the_definition_says((dims, ones_a, ones_b, cut_a, cut_b) in operand(), at in 0usize..50, len in 0usize..50) {
            let thin = |ones: &[bool], cut: usize| {
                let sizes: Vec<usize> = dims.iter().zip(ones).skip(cut).map(|(&d, &one)| if one { 1 } else { d }).collect();
                Shape::from_dims(&sizes).unwrap()
            };
            let (a, b) = (thin(&ones_a, cut_a), thin(&ones_b, cut_b));
            let plan = Broadcast::new(&a, &b).unwrap();
            let n = plan.shape().num_elements();
            let range = at.min(n)..(at + len).min(n);
            let expected = [reference(&a, plan.shape()), reference(&b, plan.shape())];
            let mut next = range.start;
            plan.for_each_run(range.clone(), |run, positions| {
                assert_eq!(run.start, next);
                next = run.end;
                for (k, flat) in run.enumerate() {
                    for (i, expected) in expected.iter().enumerate() {
                        assert_eq!(positions[i] + k * plan.run_stride(i), expected[flat]);
                    }
                }
            });
            prop_assert_eq!(next, range.end);
        }
    }

    #[test]
    fn bad_shapes_are_named() {
        let error = Broadcast::new(&Shape::new(&[2, 3]).unwrap(), &Shape::new(&[4]).unwrap()).unwrap_err();
        assert_eq!(error.message(), "Incompatible shapes: [2,3] vs. [4]");
    }

    #[test]
    fn empty_outputs_have_no_runs() {
        let plan = Broadcast::new(&Shape::new(&[0, 3]).unwrap(), &Shape::new(&[1, 3]).unwrap()).unwrap();
        assert_eq!(plan.shape().dims(), &[0, 3]);
        plan.for_each_run(0..0, |_, _| unreachable!());
    }

    #[test]
    fn equal_shapes_are_one_run() {
        let shape = Shape::new(&[2, 3, 4]).unwrap();
        let plan = Broadcast::new(&shape, &shape).unwrap();
        assert!(plan.is_identity(0) && plan.is_identity(1));
        let plan = Broadcast::new(&shape, &Shape::scalar()).unwrap();
        assert!(plan.is_identity(0) && plan.is_scalar(1));
    }
}
