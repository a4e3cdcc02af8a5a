//! `SparseMatrixTranspose`.

use super::{Csr, Part, Rows, VALUES};
use crate::number::Number;
use graphmill_runtime::{Construction, Context, Kernel, Registry, Stored};
use graphmill_tensor::{Complex32, Complex64, DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SparseMatrixTranspose").types("type", &VALUES).kernel(Transpose::new);
}

/// How an operand is taken.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub transposed: bool,
    pub conjugated: bool,
}

impl View {
    /// What the attributes `transpose_X` and `adjoint_X` say.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if both are set.
    pub fn new(c: &Construction<'_>, operand: &str) -> Result<View> {
        let adjoint = c.attrs().bool(&format!("adjoint_{operand}"))?;
        let transpose = c.attrs().bool(&format!("transpose_{operand}"))?;
        if adjoint && transpose {
            return Err(invalid_argument!("Only one of adjoint_{operand} and transpose_{operand} may be true."));
        }
        Ok(View { transposed: adjoint || transpose, conjugated: adjoint })
    }

    /// Rows and columns as they are seen.
    pub fn sizes(self, rows: usize, columns: usize) -> (usize, usize) {
        if self.transposed { (columns, rows) } else { (rows, columns) }
    }

    /// The rows of a matrix as they are seen; it has `sizes` itself.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the machine does not have memory for as many rows.
    pub fn rows<T: Number>(self, part: Part<'_, T>, (rows, columns): (usize, usize)) -> Result<Rows<T>> {
        let value = |value: T| if self.conjugated { value.conjugate() } else { value };
        if !self.transposed {
            let row = |row| part.row(row).map(|(column, v)| (column, value(v))).collect();
            return Ok((0..rows).map(row).collect());
        }
        // A matrix without entries may claim any number of columns, which are rows here: the tensor's allocation is checked.
        Tensor::alloc(DType::Complex128, Shape::from_dims(&[columns, 2])?)?;
        let mut result: Rows<T> = vec![Vec::new(); columns];
        for row in 0..rows {
            for (column, v) in part.row(row) {
                result[column].push((row, value(v)));
            }
        }
        Ok(result)
    }
}

struct Transpose {
    dtype: DType,
    conjugate: bool,
}

impl Transpose {
    fn new(c: &Construction<'_>) -> Result<Transpose> {
        Ok(Transpose { dtype: c.dtype("type")?, conjugate: c.attrs().bool("conjugate")? })
    }
}

impl Kernel for Transpose {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let matrix = Csr::of_input(ctx, 0)?;
        if matrix.dtype() != self.dtype {
            return Err(invalid_argument!(
                "dtype of input is not equal to 'type': {} vs. {}",
                matrix.dtype(),
                self.dtype
            ));
        }
        let (batch, rows, columns) = matrix.sizes();
        let view = View { transposed: true, conjugated: self.conjugate };
        let transposed = dispatch!(self.dtype, T in [f32, f64, Complex32, Complex64] => {
            let parts = (0..batch).map(|b| view.rows(matrix.part::<T>(b)?, (rows, columns)));
            Csr::from_rows(matrix.shape_with(columns, rows)?, &parts.collect::<Result<Vec<_>>>()?)
        });
        let transposed = transposed.unwrap_or_else(|| Err(internal!("a matrix cannot be of type {}", self.dtype)))?;
        ctx.set_output(0, transposed.into_tensor()?)
    }
}
