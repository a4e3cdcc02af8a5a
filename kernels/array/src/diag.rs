//! Diagonals and bands of matrices.

use crate::args::{integer, integers};
use crate::walk::Dims;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::DType::{self, Complex64, Complex128, Double, Float, Half, Int32, Int64};
use graphmill_tensor::{Mover, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    for op in ["MatrixDiag", "MatrixDiagV2", "MatrixDiagV3", "BatchMatrixDiag"] {
        registry.op(op).types("T", DType::NUMBERS_AND_BOOL).kernel(|c| Ok(MatrixDiag(Alignment::new(c)?)));
    }
    for op in ["MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3", "BatchMatrixDiagPart"] {
        registry.op(op).types("T", DType::NUMBERS_AND_BOOL).kernel(|c| Ok(MatrixDiagPart(Alignment::new(c)?)));
    }
    for op in ["MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3", "BatchMatrixSetDiag"] {
        registry.op(op).types("T", DType::NUMBERS_AND_BOOL).kernel(|c| Ok(MatrixSetDiag(Alignment::new(c)?)));
    }
    registry.op("MatrixBandPart").types("T", DType::NUMBERS_AND_BOOL).kernel(|_| Ok(MatrixBandPart));
    registry.op("BatchMatrixBandPart").types("T", DType::NUMBERS).kernel(|_| Ok(MatrixBandPart));
    let types: &[DType] = &[Complex128, Complex64, Double, Float, Half, Int32, Int64];
    registry.op("Diag").types("T", types).kernel(|_| Ok(Diag));
    registry.op("DiagPart").types("T", types).kernel(|_| Ok(DiagPart));
}

/// At which end diagonals that are shorter than the longest one are padded.
#[derive(Clone, Copy)]
struct Alignment {
    left_above: bool,
    left_below: bool,
}

impl Alignment {
    /// Only the third versions have a choice.
    fn new(construction: &Construction<'_>) -> Result<Alignment> {
        let align = if construction.attrs().has("align") { construction.attrs().str("align")? } else { "LEFT_LEFT" };
        Ok(Alignment {
            left_above: matches!(align, "LEFT_LEFT" | "LEFT_RIGHT"),
            left_below: matches!(align, "LEFT_LEFT" | "RIGHT_LEFT"),
        })
    }
}

/// Neighbouring diagonals of a matrix, packed into rows of the length of the longest one, uppermost first.
struct Band {
    lower: i64,
    upper: i64,
    rows: i64,
    columns: i64,
    longest: i64,
    alignment: Alignment,
}

/// One diagonal: its first place in the packed form and in the matrix, and its length.
struct Diagonal {
    packed: usize,
    matrix: usize,
    length: usize,
}

impl Band {
    fn count(&self) -> i64 {
        self.upper - self.lower + 1
    }

    fn packed_size(&self) -> usize {
        (self.count() * self.longest) as usize
    }

    fn matrix_size(&self) -> usize {
        (self.rows * self.columns) as usize
    }

    fn diagonals(&self) -> impl Iterator<Item = Diagonal> + '_ {
        (0..self.count()).map(|m| {
            let d = self.upper - m;
            let length = (self.rows + d.min(0)).min(self.columns - d.max(0)).max(0);
            let left = (d >= 0 && self.alignment.left_above) || (d <= 0 && self.alignment.left_below);
            let offset = if left { 0 } else { self.longest - length };
            Diagonal {
                packed: (m * self.longest + offset) as usize,
                matrix: ((-d).max(0) * self.columns + d.max(0)) as usize,
                length: length as usize,
            }
        })
    }
}

/// The lowest and the highest diagonal that an input asks for.
fn diagonal_range(input: &Tensor) -> Result<(i64, i64)> {
    if input.shape().rank() > 1 {
        return Err(invalid_argument!("diag_index must be a scalar or vector, received shape: {}", input.shape()));
    }
    match integers(input)?.as_slice() {
        [] => Err(invalid_argument!("Expected diag_index to have at least 1 element")),
        [both] => Ok((*both, *both)),
        [lower, upper] => Ok((*lower, *upper)),
        more => {
            Err(invalid_argument!("diag_index must have only one or two elements, received {} elements.", more.len()))
        }
    }
}

fn check_order(lower: i64, upper: i64) -> Result<()> {
    if lower > upper {
        return Err(invalid_argument!("lower_diag_index must not be larger than upper_diag_index: {lower} > {upper}"));
    }
    Ok(())
}

/// The band of diagonals within matrices of this shape, and the shape of the packed form.
/// `stop` ends the sentence on a lower bound, which not every kernel does.
fn band_of(shape: &Shape, (lower, upper): (i64, i64), alignment: Alignment, stop: &str) -> Result<(Band, Shape)> {
    let Some([outer @ .., rows, columns]) = Some(shape.dims()).filter(|d| d.len() >= 2) else {
        return Err(invalid_argument!("input must be at least 2-dim, received shape: {shape}"));
    };
    let (rows, columns) = (*rows as i64, *columns as i64);
    let inside = |d: i64| (-rows < d && d < columns) || d == 0;
    if !inside(lower) {
        return Err(invalid_argument!(
            "lower_diag_index is out of bound: {lower}{stop} It must be between {} and {columns}",
            -rows
        ));
    }
    if !inside(upper) {
        return Err(invalid_argument!(
            "upper_diag_index is out of bound: {upper} It must be between {} and {columns}",
            -rows
        ));
    }
    check_order(lower, upper)?;
    let longest = (rows + upper.min(0)).min(columns - lower.max(0));
    let band = Band { lower, upper, rows, columns, longest, alignment };
    let mut dims = Dims::from_slice(outer);
    if band.count() > 1 {
        dims.push(band.count() as usize);
    }
    dims.push(longest as usize);
    Ok((band, Shape::from_dims(&dims)?))
}

/// Copies diagonals between the packed form and matrices.
struct Exchange<'a, 'b> {
    ctx: &'a Context<'b>,
    band: &'a Band,
    unpack: bool,
    /// Whether the last source is what to fill the target with before.
    filled: bool,
}

impl Mover for Exchange<'_, '_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let band = self.band;
        let (packed, matrix) = (band.packed_size(), band.matrix_size());
        let step = band.columns as usize + 1;
        let (unit, source_unit) = if self.unpack { (matrix, packed) } else { (packed, matrix) };
        self.ctx.parallel_chunks(target, unit, unit as f64, |range, part| {
            if self.filled
                && let Some(value) = sources.get(1).and_then(|s| s.first())
            {
                part.fill(value.clone());
            }
            for (batch, target) in range.zip(part.chunks_exact_mut(unit)) {
                let source = &sources[0][batch * source_unit..(batch + 1) * source_unit];
                for diagonal in band.diagonals() {
                    for n in 0..diagonal.length {
                        let (p, m) = (diagonal.packed + n, diagonal.matrix + n * step);
                        if self.unpack {
                            target[m] = source[p].clone();
                        } else {
                            target[p] = source[m].clone();
                        }
                    }
                }
            }
        });
    }
}

/// Matrices with given diagonals, and a padding value elsewhere.
struct MatrixDiag(Alignment);

impl MatrixDiag {
    fn band(&self, ctx: &Context<'_>) -> Result<(Band, Shape)> {
        let shape = ctx.input(0)?.shape();
        let (mut lower, mut upper) = (0, 0);
        let mut sizes = [-1; 2];
        if ctx.num_inputs() > 1 {
            (lower, upper) = diagonal_range(ctx.input(1)?)?;
            for (k, name) in ["num_rows", "num_cols"].into_iter().enumerate() {
                let size = ctx.input(2 + k)?;
                if !size.shape().is_scalar() {
                    return Err(invalid_argument!("{name} must be a scalar"));
                }
                sizes[k] = integer(size)?;
            }
            if !ctx.input(4)?.shape().is_scalar() {
                return Err(invalid_argument!("padding_value must be a scalar"));
            }
        }
        let Some((&longest, outer)) = shape.dims().split_last() else {
            return Err(invalid_argument!("diagonal must be at least 1-dim, received shape: {shape}"));
        };
        check_order(lower, upper)?;
        let count = upper - lower + 1;
        if lower != upper && outer.last().is_none_or(|&d| d as i64 != count) {
            return Err(invalid_argument!(
                "The number of diagonals provided in the input does not match the lower_diag_index and upper_diag_index range."
            ));
        }
        let longest = longest as i64;
        let least = [longest - upper.min(0), longest + lower.max(0)];
        for (k, name) in ["rows", "columns"].into_iter().enumerate() {
            if sizes[k] != -1 && sizes[k] < least[k] {
                return Err(invalid_argument!("The number of {name} is too small."));
            }
        }
        let [rows, columns] = match sizes {
            [-1, -1] => [least[0].max(least[1]); 2],
            [-1, columns] => [least[0], columns],
            [rows, -1] => [rows, least[1]],
            both => both,
        };
        if rows != least[0] && columns != least[1] {
            return Err(invalid_argument!(
                "The number of rows or columns is not consistent with the specified d_lower, d_upper, and diagonal."
            ));
        }
        let outer = if count == 1 { outer } else { &outer[..outer.len() - 1] };
        let mut dims: Dims<i64> = outer.iter().map(|&d| d as i64).collect();
        dims.extend([rows, columns]);
        Ok((Band { lower, upper, rows, columns, longest, alignment: self.0 }, Shape::new(&dims)?))
    }
}

impl Kernel for MatrixDiag {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (band, shape) = self.band(ctx)?;
        let diagonal = ctx.input(0)?;
        let mut output = Tensor::zeros(diagonal.dtype(), shape)?;
        if ctx.num_inputs() > 1 {
            let exchange = Exchange { ctx, band: &band, unpack: true, filled: true };
            output.move_from(&[diagonal, ctx.input(4)?], exchange)?;
        } else {
            output.move_from(&[diagonal], Exchange { ctx, band: &band, unpack: true, filled: false })?;
        }
        ctx.set_output(0, output)
    }
}

/// Diagonals of matrices; what is missing of the shorter ones is a padding value.
struct MatrixDiagPart(Alignment);

impl Kernel for MatrixDiagPart {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let padded = ctx.num_inputs() > 1;
        let range = if padded { diagonal_range(ctx.input(1)?)? } else { (0, 0) };
        if padded && ctx.input(2)?.num_elements() != 1 {
            return Err(invalid_argument!("Padding must be scalar."));
        }
        let (band, shape) = band_of(input.shape(), range, self.0, ".")?;
        let mut output = Tensor::zeros(input.dtype(), shape)?;
        let exchange = Exchange { ctx, band: &band, unpack: false, filled: padded };
        if padded {
            output.move_from(&[input, ctx.input(2)?], exchange)?;
        } else {
            output.move_from(&[input], exchange)?;
        }
        ctx.set_output(0, output)
    }
}

/// Matrices with some diagonals replaced.
struct MatrixSetDiag(Alignment);

impl Kernel for MatrixSetDiag {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, diagonal) = (ctx.input(0)?, ctx.input(1)?.clone());
        let (lower, upper) = if ctx.num_inputs() > 2 { diagonal_range(ctx.input(2)?)? } else { (0, 0) };
        if input.shape().rank() >= 2 && diagonal.shape().is_scalar() {
            return Err(invalid_argument!("diagonal must be at least 1-dim, received shape: {}", diagonal.shape()));
        }
        let (band, expected) = band_of(input.shape(), (lower, upper), self.0, "")?;
        let given = diagonal.shape();
        let several = lower != upper;
        if several
            && (given.rank() < input.shape().rank() || given.dim(input.shape().rank() - 2) as i64 != band.count())
        {
            return Err(invalid_argument!(
                "The number of diagonals provided in `diag` is not consistent with `lower_diag_index` and `upper_diag_index`"
            ));
        }
        if *given != expected {
            return Err(invalid_argument!(
                "Either first dimensions of diagonal don't match input.shape[:-2], or diagonal.shape[:-1] is not equal to the longests diagonal in range [lower_diag_index:upper_diag_index].\nInput shape: {}\nDiagonal shape: {given}\nExpected diagonal shape: {expected}",
                input.shape()
            ));
        }
        let mut output = ctx.take_input(0)?.into_unique()?;
        output.move_from(&[&diagonal], Exchange { ctx, band: &band, unpack: true, filled: false })?;
        ctx.set_output(0, output)
    }
}

/// Matrices with everything outside of a band around the main diagonal set to zero. A negative width keeps all of that side.
struct MatrixBandPart;

impl Kernel for MatrixBandPart {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let shape = input.shape();
        let [.., rows, columns] = *shape.dims() else {
            return Err(invalid_argument!("input must be at least 2-dim, received shape: {shape}"));
        };
        let mut widths = [0; 2];
        for (k, (name, side, size)) in
            [("num_lower", "rows", rows), ("num_upper", "columns", columns)].into_iter().enumerate()
        {
            let width = ctx.input(1 + k)?;
            if !width.shape().is_scalar() {
                return Err(invalid_argument!("{name} must be scalar, got shape {}", width.shape()));
            }
            widths[k] = integer(width)?;
            if widths[k] > size as i64 {
                return Err(invalid_argument!(
                    "{name} must be negative or less or equal to number of {side} ({size}) got: {}",
                    widths[k]
                ));
            }
        }
        let [below, above] = widths.map(|width| usize::try_from(width).unwrap_or(rows.max(columns)));
        let mut output = Tensor::zeros(input.dtype(), shape.clone())?;
        if shape.num_elements() > 0 {
            output.move_from(&[input], BandMover { ctx, rows, columns, below, above })?;
        }
        ctx.set_output(0, output)
    }
}

struct BandMover<'a, 'b> {
    ctx: &'a Context<'b>,
    rows: usize,
    columns: usize,
    below: usize,
    above: usize,
}

impl Mover for BandMover<'_, '_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let columns = self.columns;
        self.ctx.parallel_chunks(target, columns, columns as f64 * 0.3 + 2.0, |range, part| {
            for (row, place) in range.zip(part.chunks_exact_mut(columns)) {
                let at = row % self.rows;
                let start = at.saturating_sub(self.below).min(columns);
                let end = (at + self.above + 1).min(columns);
                if start < end {
                    place[start..end].clone_from_slice(&sources[0][row * columns + start..row * columns + end]);
                }
            }
        });
    }
}

/// A tensor of twice the rank with the elements on its diagonal.
struct Diag;

impl Kernel for Diag {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        if input.shape().is_scalar() {
            return Err(invalid_argument!("Input must be at least rank 1, got 0"));
        }
        let dims = input.shape().dims();
        let mut output = Tensor::zeros(input.dtype(), Shape::from_dims(&[dims, dims].concat())?)?;
        output.move_from(&[input], square(ctx, input.num_elements(), true).exchange())?;
        ctx.set_output(0, output)
    }
}

/// The diagonal of a tensor whose shape is some sizes twice.
struct DiagPart;

impl Kernel for DiagPart {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let shape = input.shape();
        let half = shape.rank() / 2;
        if shape.rank() % 2 != 0 {
            // The gap is in TensorFlow's text.
            let gap = " ".repeat(41);
            return Err(invalid_argument!(
                "The rank of the tensor should be {gap}even and positive, got shape {shape}"
            ));
        }
        if let Some(i) = (0..half).find(|&i| shape.dim(i) != shape.dim(i + half)) {
            return Err(invalid_argument!("Invalid shape {shape}: dimensions {i} and {} do not match.", i + half));
        }
        let mut output = ctx.alloc_output(0, Shape::from_dims(&shape.dims()[..half])?)?;
        let n = output.num_elements();
        output.move_from(&[input], square(ctx, n, false).exchange())?;
        ctx.set_output(0, output)
    }
}

/// The main diagonal of one square matrix.
struct Square<'a, 'b> {
    ctx: &'a Context<'b>,
    band: Band,
    unpack: bool,
}

fn square<'a, 'b>(ctx: &'a Context<'b>, size: usize, unpack: bool) -> Square<'a, 'b> {
    let size = size as i64;
    let alignment = Alignment { left_above: true, left_below: true };
    Square { ctx, band: Band { lower: 0, upper: 0, rows: size, columns: size, longest: size, alignment }, unpack }
}

impl<'a, 'b> Square<'a, 'b> {
    fn exchange(&'a self) -> Exchange<'a, 'b> {
        Exchange { ctx: self.ctx, band: &self.band, unpack: self.unpack, filled: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, run, tensor};

    #[test]
    fn diagonals_of_matrices() {
        let x = counting(&[2, 3]);
        assert_ints(&run(int_op("MatrixDiagPart"), &[&x]).unwrap(), &[2], &[0, 4]);
        let part = |align: &str, range: &[i32]| {
            let op = int_op("MatrixDiagPartV3").attr_str("align", align);
            run(op, &[&x, &tensor(&[range.len() as i64], range), &tensor(&[], &[9])])
        };
        assert_ints(&part("RIGHT_LEFT", &[-1, 1]).unwrap(), &[3, 2], &[1, 5, 0, 4, 3, 9]);
        assert_ints(&part("LEFT_RIGHT", &[-1, 2]).unwrap(), &[4, 2], &[2, 9, 1, 5, 0, 4, 9, 3]);
        assert_error(part("LEFT_LEFT", &[3]), "lower_diag_index is out of bound: 3. It must be between -2 and 3");
        assert_error(part("LEFT_LEFT", &[1, 0]), "lower_diag_index must not be larger than upper_diag_index: 1 > 0");
        let y = run(int_op("MatrixSetDiag"), &[&x, &tensor(&[2], &[7, 8])]).unwrap();
        assert_ints(&y, &[2, 3], &[7, 1, 2, 3, 8, 5]);
        assert!(run(int_op("MatrixSetDiag"), &[&x, &tensor(&[3], &[7, 8, 9])]).is_err());
    }

    #[test]
    fn matrices_of_diagonals() {
        assert_ints(&run(int_op("MatrixDiag"), &[&tensor(&[2], &[1, 2])]).unwrap(), &[2, 2], &[1, 0, 0, 2]);
        let build = |rows: i32, columns: i32| {
            let op = int_op("MatrixDiagV2");
            let scalar = |v: i32| tensor(&[], &[v]);
            run(op, &[&tensor(&[2], &[1, 2]), &scalar(1), &scalar(rows), &scalar(columns), &scalar(9)])
        };
        assert_ints(&build(-1, -1).unwrap(), &[3, 3], &[9, 1, 9, 9, 9, 2, 9, 9, 9]);
        assert_ints(&build(2, -1).unwrap(), &[2, 3], &[9, 1, 9, 9, 9, 2]);
        assert_error(build(1, 3), "The number of rows is too small.");
        assert!(build(4, 5).is_err());
    }

    #[test]
    fn bands() {
        let x = counting(&[3, 3]);
        let band = |below: i32, above: i32| {
            run(
                int_op("MatrixBandPart").attr_type("Tindex", Int32),
                &[&x, &tensor(&[], &[below]), &tensor(&[], &[above])],
            )
        };
        assert_ints(&band(0, 1).unwrap(), &[3, 3], &[0, 1, 0, 0, 4, 5, 0, 0, 8]);
        assert_ints(&band(-1, 0).unwrap(), &[3, 3], &[0, 0, 0, 3, 4, 0, 6, 7, 8]);
        assert_error(band(4, 0), "num_lower must be negative or less or equal to number of rows (3) got: 4");
    }

    #[test]
    fn diagonals_of_tensors() {
        let y = run(int_op("Diag"), &[&counting(&[1, 2])]).unwrap();
        assert_ints(&y, &[1, 2, 1, 2], &[0, 0, 0, 1]);
        assert_ints(&run(int_op("DiagPart"), &[&y]).unwrap(), &[1, 2], &[0, 1]);
        assert_error(
            run(int_op("DiagPart"), &[&counting(&[3, 2])]),
            "Invalid shape [3,2]: dimensions 0 and 1 do not match.",
        );
    }
}
