//! `SparseBincount`, `RaggedBincount`: how often each number occurs in each row.

use crate::number::Number;
use crate::types::{INDICES, NUMBERS};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, Shape, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SparseBincount").types("T", &NUMBERS).types("Tidx", &INDICES).kernel(|c| Bincount::new(c, true));
    registry.op("RaggedBincount").types("T", &NUMBERS).types("Tidx", &INDICES).kernel(|c| Bincount::new(c, false));
}

struct Bincount {
    sparse: bool,
    binary: bool,
}

/// The bins of each row, and for each value its row.
struct Plan {
    shape: Shape,
    row_of: Vec<usize>,
    one_row: bool,
}

impl Bincount {
    fn new(c: &Construction<'_>, sparse: bool) -> Result<Bincount> {
        Ok(Bincount { sparse, binary: c.attrs().bool("binary_output")? })
    }

    fn sparse_plan(ctx: &Context<'_>, size: usize) -> Result<Plan> {
        let (indices, values, shape) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?.to_i64_vec()?);
        let count = values.num_elements();
        if shape.len() == 1 {
            return Ok(Plan { shape: Shape::from_dims(&[size])?, row_of: vec![0; count], one_row: true });
        }
        let Some(&rows) = shape.first() else {
            return Err(invalid_argument!("The shape argument requires at least one element."));
        };
        if !indices.shape().is_matrix() || indices.shape().dim(0) != count || indices.shape().dim(1) == 0 {
            return Err(invalid_argument!(
                "indices of shape {} do not fit values of shape {}",
                indices.shape(),
                values.shape()
            ));
        }
        let row = |&row: &i64| {
            usize::try_from(row).ok().filter(|&at| at < usize::try_from(rows).unwrap_or(0)).ok_or_else(|| {
                invalid_argument!("Index out of bound. `batch` ({row}) must be less than the dimension size ({rows}).")
            })
        };
        let row_of =
            indices.as_slice::<i64>()?.iter().step_by(indices.shape().dim(1)).map(row).collect::<Result<_>>()?;
        Ok(Plan { shape: Shape::new(&[rows, size as i64])?, row_of, one_row: false })
    }

    fn ragged_plan(ctx: &Context<'_>, size: usize) -> Result<Plan> {
        let (splits, count) = (ctx.input(0)?.as_slice::<i64>()?, ctx.input(1)?.num_elements());
        let (Some(&first), Some(&last)) = (splits.first(), splits.last()) else {
            return Err(invalid_argument!("Splits must not be empty"));
        };
        if first != 0 {
            return Err(invalid_argument!("Splits must start with 0, not with {first}"));
        }
        if last != count as i64 {
            return Err(invalid_argument!("Splits must end with the number of values, got {last} instead of {count}"));
        }
        if !splits.is_sorted() {
            return Err(invalid_argument!("Splits must be sorted"));
        }
        let mut row_of = Vec::with_capacity(count);
        for (row, pair) in splits.windows(2).enumerate() {
            row_of.resize(pair[1] as usize, row);
        }
        Ok(Plan { shape: Shape::from_dims(&[splits.len() - 1, size])?, row_of, one_row: false })
    }
}

impl Kernel for Bincount {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (values, size, weights) = (1, if self.sparse { 3 } else { 2 }, if self.sparse { 4 } else { 3 });
        let (values, size, weights) = (ctx.input(values)?, ctx.input(size)?, ctx.input(weights)?);
        if !size.shape().is_scalar() {
            return Err(invalid_argument!("Shape must be rank 0 but is rank {}", size.shape().rank()));
        }
        let size = size.to_i64_vec()?.first().copied().unwrap_or(0);
        let size = usize::try_from(size).map_err(|_| invalid_argument!("size ({size}) must be non-negative"))?;
        let plan = if self.sparse { Bincount::sparse_plan(ctx, size)? } else { Bincount::ragged_plan(ctx, size)? };
        if weights.num_elements() != 0 && weights.num_elements() != values.num_elements() {
            return Err(invalid_argument!(
                "The weights have {} elements, the values {}",
                weights.num_elements(),
                values.num_elements()
            ));
        }
        let bins = values.to_i64_vec()?;
        if bins.iter().any(|&bin| bin < 0) {
            return Err(if plan.one_row {
                invalid_argument!("Input arr must be non-negative!")
            } else {
                invalid_argument!("Input must be non-negative")
            });
        }
        let mut out = Tensor::zeros(weights.dtype(), plan.shape.clone())?;
        let done = dispatch!(weights.dtype(), T in numbers => {
            let weights = weights.as_slice::<T>()?;
            let one = one::<T>();
            let counts = out.as_mut_slice::<T>()?;
            for (i, (&bin, &row)) in bins.iter().zip(&plan.row_of).enumerate() {
                let bin = bin as usize;
                if bin >= size {
                    if self.sparse && !plan.one_row {
                        return Err(invalid_argument!(
                            "Index out ouf bound. `bin` ({bin}) must be less then the dimension size ({size})."
                        ));
                    }
                    continue;
                }
                let slot = &mut counts[row * size + bin];
                *slot = if self.binary { one } else { slot.plus(weights.get(i).copied().unwrap_or(one)) };
            }
            Ok(())
        });
        done.unwrap_or_else(|| Err(internal!("no such type")))?;
        ctx.set_output(0, out)
    }
}

/// One of a type that can count.
pub(crate) trait One {
    const ONE: Self;
}

macro_rules! ones {
    ($($rust:ty: $one:expr;)*) => {$(
        impl One for $rust {
            const ONE: Self = $one;
        }
    )*};
}

ones! {
    i8: 1; i16: 1; i32: 1; i64: 1; u8: 1; u16: 1; u32: 1; u64: 1; f32: 1.0; f64: 1.0;
    graphmill_tensor::f16: graphmill_tensor::f16::ONE;
    graphmill_tensor::bf16: graphmill_tensor::bf16::ONE;
    graphmill_tensor::Complex32: graphmill_tensor::Complex32::new(1.0, 0.0);
    graphmill_tensor::Complex64: graphmill_tensor::Complex64::new(1.0, 0.0);
}

pub(crate) fn one<T: One>() -> T {
    T::ONE
}
