//! Copying elements between positions that are linear in an index: what transposing, slicing, broadcasting and padding share.

use graphmill_runtime::Context;
use graphmill_tensor::{Mover, Result, Shape, Tensor, internal};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// One number for each dimension.
pub(crate) type Dims<T> = SmallVec<[T; 6]>;

/// Edge of the square in which a transposed pair of dimensions is copied.
const TILE: usize = 8;
/// Pieces to split a dense target into, at least, where several threads can share the work.
const PIECES: usize = 64;

/// A block of indices, and where in the source and in the target the element of an index is: a start plus the sum of index times
/// stride over the dimensions. Target positions of different indices must differ.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    dims: Dims<usize>,
    from: Dims<isize>,
    to: Dims<isize>,
    from_start: usize,
    to_start: usize,
    /// Whether the target is filled from its start on in order.
    dense: bool,
}

impl Walk {
    /// Fills a row-major target of sizes `dims` from a source with strides.
    pub(crate) fn gather(dims: &[usize], from: &[isize], from_start: usize) -> Walk {
        let to = row_major(dims);
        let mut walk = Walk { dims: dims.into(), from: from.into(), to, from_start, to_start: 0, dense: true };
        walk.merge();
        walk
    }

    /// Copies a row-major source of sizes `dims` to positions of a target with strides.
    pub(crate) fn scatter(dims: &[usize], to: &[isize], to_start: usize) -> Walk {
        let from = row_major(dims);
        let mut walk = Walk { dims: dims.into(), from, to: to.into(), from_start: 0, to_start, dense: false };
        walk.merge();
        walk
    }

    /// The general form.
    pub(crate) fn new(dims: &[usize], from: &[isize], from_start: usize, to: &[isize], to_start: usize) -> Walk {
        let mut walk = Walk { dims: dims.into(), from: from.into(), to: to.into(), from_start, to_start, dense: false };
        walk.merge();
        walk
    }

    /// Drops dimensions of size 1 and joins neighbours that both sides step through as one.
    fn merge(&mut self) {
        let mut kept = 0;
        for axis in 0..self.dims.len() {
            let (dim, from, to) = (self.dims[axis], self.from[axis], self.to[axis]);
            if dim == 1 {
                continue;
            }
            if kept > 0
                && Some(self.from[kept - 1]) == from.checked_mul(dim as isize)
                && Some(self.to[kept - 1]) == to.checked_mul(dim as isize)
            {
                self.dims[kept - 1] *= dim;
                (self.from[kept - 1], self.to[kept - 1]) = (from, to);
                continue;
            }
            (self.dims[kept], self.from[kept], self.to[kept]) = (dim, from, to);
            kept += 1;
        }
        self.dims.truncate(kept);
        self.from.truncate(kept);
        self.to.truncate(kept);
    }

    /// Copies, on several threads where that is worth it.
    ///
    /// # Errors
    /// `INTERNAL` if a position lies outside of its tensor, types differ, or the target is shared.
    pub(crate) fn copy(&self, ctx: &Context<'_>, source: &Tensor, target: &mut Tensor) -> Result<()> {
        if self.dims.contains(&0) {
            return Ok(());
        }
        self.check(&self.from, self.from_start, source.num_elements())?;
        self.check(&self.to, self.to_start, target.num_elements())?;
        target.move_from(&[source], WalkMover { walk: self, ctx })
    }

    fn check(&self, strides: &[isize], start: usize, length: usize) -> Result<()> {
        let outside = || internal!("elements to copy are out of range");
        let mut low = isize::try_from(start).map_err(|_| outside())?;
        let mut high = low;
        for (&dim, &stride) in self.dims.iter().zip(strides) {
            let span = isize::try_from(dim - 1).ok().and_then(|n| n.checked_mul(stride)).ok_or_else(outside)?;
            let end = if span < 0 { &mut low } else { &mut high };
            *end = end.checked_add(span).ok_or_else(outside)?;
        }
        if low < 0 || high.unsigned_abs() >= length { Err(outside()) } else { Ok(()) }
    }
}

/// Row-major strides of a shape with these sizes.
pub(crate) fn row_major(dims: &[usize]) -> Dims<isize> {
    let mut strides: Dims<isize> = smallvec![1; dims.len()];
    for axis in (0..dims.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1].wrapping_mul(dims[axis + 1] as isize);
    }
    strides
}

/// Row-major strides of a shape.
pub(crate) fn strides_of(shape: &Shape) -> Dims<isize> {
    row_major(shape.dims())
}

struct WalkMover<'a, 'b> {
    walk: &'a Walk,
    ctx: &'a Context<'b>,
}

impl Mover for WalkMover<'_, '_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let walk = self.walk;
        let source = sources[0];
        let (dims, from, to) = (&walk.dims, &walk.from, &walk.to);
        let Some(last) = dims.len().checked_sub(1) else {
            target[walk.to_start] = source[walk.from_start].clone();
            return;
        };
        let total: usize = dims.iter().product();
        // Measured roughly: copies run at some 10 GB/s, jumps cost a nanosecond or two.
        let cost = if from[last] == 1 && to[last] == 1 { size_of::<E>() as f64 * 0.1 } else { 1.5 };
        // The dimension along which the source is contiguous must stay within a piece to be copied in squares.
        let tile = (from[last] != 1).then(|| from.iter().position(|&stride| stride == 1)).flatten();
        let block = |range: Range<usize>, part: &mut [E], origin: usize| {
            let mut first: Dims<usize> = dims.clone();
            first[0] = range.len();
            let start = walk.from_start.wrapping_add_signed(from[0] * range.start as isize);
            Block::new(&first, from, to, tile).copy(source, start, part, origin);
        };
        if walk.dense {
            let mut split = 0;
            let mut pieces = 1;
            while split < last.min(tile.unwrap_or(last)) && pieces < PIECES {
                pieces *= dims[split];
                split += 1;
            }
            let rest: usize = dims[split..].iter().product();
            if split == 0 {
                let unit = to[0].unsigned_abs();
                self.ctx.parallel_chunks(target, unit, unit as f64 * cost, |range, part| block(range, part, 0));
                return;
            }
            let inner = Block::new(&dims[split..], &from[split..], &to[split..], tile.map(|t| t - split));
            self.ctx.parallel_chunks(target, rest, rest as f64 * cost, |range, part| {
                for (unit, part) in range.zip(part.chunks_exact_mut(rest)) {
                    let mut position = walk.from_start;
                    let mut index = unit;
                    for axis in (0..split).rev() {
                        position = position.wrapping_add_signed(from[axis] * (index % dims[axis]) as isize);
                        index /= dims[axis];
                    }
                    inner.copy(source, position, part, 0);
                }
            });
            return;
        }
        // A target with gaps can be split where each step of the outermost dimension stays within its own stretch.
        let unit = to[0].unsigned_abs();
        if to.iter().all(|&stride| stride > 0) && last > 0 {
            let origin = walk.to_start % unit;
            let reach: usize = dims[1..].iter().zip(&to[1..]).map(|(&d, &s)| (d - 1) * s.unsigned_abs()).sum();
            let begin = walk.to_start - origin;
            if origin + reach < unit
                && let Some(stretch) = target.get_mut(begin..begin + dims[0] * unit)
            {
                let work = total as f64 / dims[0] as f64 * cost;
                self.ctx.parallel_chunks(stretch, unit, work, |range, part| block(range, part, origin));
                return;
            }
        }
        block(0..dims[0], target, walk.to_start);
    }
}

/// The sequential copy of a block.
struct Block {
    dims: Dims<usize>,
    from: Dims<isize>,
    to: Dims<isize>,
    tiled: bool,
}

impl Block {
    /// `tile` is a dimension along which the source is contiguous while it is not along the last one.
    fn new(dims: &[usize], from: &[isize], to: &[isize], tile: Option<usize>) -> Block {
        let mut block = Block { dims: dims.into(), from: from.into(), to: to.into(), tiled: false };
        if let Some(axis) = tile
            && axis + 1 < dims.len()
            && dims[axis] >= TILE
            && dims.last().is_some_and(|&d| d >= TILE)
            && to.last() == Some(&1)
        {
            // The order in which indices are visited does not matter, so the pair can be made the innermost.
            let place = dims.len() - 2;
            block.dims[axis..=place].rotate_left(1);
            block.from[axis..=place].rotate_left(1);
            block.to[axis..=place].rotate_left(1);
            block.tiled = true;
        }
        block
    }

    fn copy<E: Clone>(&self, source: &[E], from: usize, target: &mut [E], to: usize) {
        self.level(0, source, from, target, to);
    }

    fn level<E: Clone>(&self, axis: usize, source: &[E], from: usize, target: &mut [E], to: usize) {
        let inner = self.dims.len() - axis;
        if inner == 1 {
            return line(self.dims[axis], source, from, self.from[axis], target, to, self.to[axis]);
        }
        if inner == 2 && self.tiled {
            return self.squares(axis, source, from, target, to);
        }
        let (mut from, mut to) = (from, to);
        for _ in 0..self.dims[axis] {
            self.level(axis + 1, source, from, target, to);
            from = from.wrapping_add_signed(self.from[axis]);
            to = to.wrapping_add_signed(self.to[axis]);
        }
    }

    /// Rows are contiguous in the source, columns in the target.
    fn squares<E: Clone>(&self, axis: usize, source: &[E], from: usize, target: &mut [E], to: usize) {
        let (rows, columns) = (self.dims[axis], self.dims[axis + 1]);
        let (step, jump) = (self.from[axis + 1], self.to[axis]);
        let whole_rows = rows - rows % TILE;
        let whole_columns = columns - columns % TILE;
        for row in (0..whole_rows).step_by(TILE) {
            for column in (0..whole_columns).step_by(TILE) {
                let read = (from + row).wrapping_add_signed(step * column as isize);
                let write = to.wrapping_add_signed(jump * row as isize) + column;
                square(source, read, step, target, write, jump);
            }
            for k in row..row + TILE {
                let read = (from + k).wrapping_add_signed(step * whole_columns as isize);
                let write = to.wrapping_add_signed(jump * k as isize) + whole_columns;
                line(columns - whole_columns, source, read, step, target, write, 1);
            }
        }
        for k in whole_rows..rows {
            line(columns, source, from + k, step, target, to.wrapping_add_signed(jump * k as isize), 1);
        }
    }
}

fn square<E: Clone>(source: &[E], from: usize, step: isize, target: &mut [E], to: usize, jump: isize) {
    let read: [&[E]; TILE] = std::array::from_fn(|k| {
        let at = from.wrapping_add_signed(step * k as isize);
        &source[at..at + TILE]
    });
    for row in 0..TILE {
        let at = to.wrapping_add_signed(jump * row as isize);
        for (place, read) in target[at..at + TILE].iter_mut().zip(&read) {
            *place = read[row].clone();
        }
    }
}

fn line<E: Clone>(n: usize, source: &[E], from: usize, step: isize, target: &mut [E], to: usize, jump: isize) {
    if n == 0 {
        return;
    }
    match (step, jump) {
        (1, 1) => target[to..to + n].clone_from_slice(&source[from..from + n]),
        (0, 1) => target[to..to + n].fill(source[from].clone()),
        (-1, 1) => {
            for (place, value) in target[to..to + n].iter_mut().zip(source[from + 1 - n..=from].iter().rev()) {
                *place = value.clone();
            }
        }
        (step, 1) if step > 1 => {
            for (place, value) in target[to..to + n].iter_mut().zip(source[from..].iter().step_by(step.unsigned_abs()))
            {
                *place = value.clone();
            }
        }
        _ => {
            let (mut from, mut to) = (from, to);
            for _ in 0..n {
                target[to] = source[from].clone();
                from = from.wrapping_add_signed(step);
                to = to.wrapping_add_signed(jump);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_context;
    use graphmill_tensor::DType;

    fn reference(walk: (&[usize], &[isize], usize), source: &[i32]) -> Vec<i32> {
        let (dims, from, start) = walk;
        let total: usize = dims.iter().product();
        (0..total)
            .map(|flat| {
                let mut rest = flat;
                let mut at = start as isize;
                for axis in (0..dims.len()).rev() {
                    at += from[axis] * (rest % dims[axis]) as isize;
                    rest /= dims[axis];
                }
                source[at as usize]
            })
            .collect()
    }

    #[test]
    fn gathers_as_defined() {
        let source: Vec<i32> = (0..40 * 30 * 20).collect();
        let tensor = Tensor::vector(&source).unwrap();
        let cases: [(&[usize], &[isize], usize); 9] = [
            (&[], &[], 7),
            (&[100], &[-1], 99),
            (&[100], &[3], 5),
            (&[40, 30, 20], &[600, 20, 1], 0),
            (&[20, 30, 40], &[1, 20, 600], 0),
            (&[30, 20, 40], &[20, 1, 600], 0),
            (&[30, 40, 20], &[20, 600, 1], 0),
            (&[7, 30, 40], &[0, 1, 30], 3),
            (&[40, 19, 2], &[-600, 20, 1], 39 * 600),
        ];
        with_context(|ctx| {
            for (dims, from, start) in cases {
                let mut target = Tensor::alloc(DType::Int32, Shape::from_dims(dims).unwrap()).unwrap();
                Walk::gather(dims, from, start).copy(ctx, &tensor, &mut target).unwrap();
                assert_eq!(target.as_slice::<i32>().unwrap(), reference((dims, from, start), &source), "{dims:?}");
            }
        });
    }

    #[test]
    fn scatter_undoes_gather() {
        let source: Vec<i32> = (0..24 * 50 * 9).collect();
        let tensor = Tensor::vector(&source).unwrap();
        with_context(|ctx| {
            for (dims, strides, start) in [
                (&[24, 50, 9][..], &[450, 9, 1][..], 0),
                (&[9, 24, 50], &[1, 450, 9], 0),
                (&[24, 50, 9], &[-450, -9, -1], 24 * 450 - 1),
                (&[12, 25, 3], &[900, 18, 3], 1),
                (&[24, 40, 9], &[450, 9, 1], 90),
            ] {
                let mut picked = Tensor::alloc(DType::Int32, Shape::from_dims(dims).unwrap()).unwrap();
                Walk::gather(dims, strides, start).copy(ctx, &tensor, &mut picked).unwrap();
                let mut back = Tensor::from_slice(Shape::vector(source.len()), &vec![-1; source.len()]).unwrap();
                Walk::scatter(dims, strides, start).copy(ctx, &picked, &mut back).unwrap();
                let back = back.as_slice::<i32>().unwrap();
                assert_eq!(back.iter().filter(|&&v| v != -1).count(), picked.num_elements());
                assert!(back.iter().zip(&source).all(|(&b, &s)| b == -1 || b == s), "{dims:?}");
            }
        });
    }

    #[test]
    fn positions_outside_are_refused() {
        let tensor = Tensor::vector(&[1, 2, 3]).unwrap();
        with_context(|ctx| {
            let mut target = Tensor::alloc(DType::Int32, Shape::vector(3)).unwrap();
            assert!(Walk::gather(&[3], &[1], 1).copy(ctx, &tensor, &mut target).is_err());
            assert!(Walk::gather(&[3], &[-1], 1).copy(ctx, &tensor, &mut target).is_err());
            assert!(Walk::scatter(&[3], &[2], 0).copy(ctx, &tensor, &mut target).is_err());
        });
    }
}
