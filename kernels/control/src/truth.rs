//! When a tensor counts as true.

use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, dispatch, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ToBool").kernel(|_| Ok(ToBool));
}

/// The truth of a tensor, as Python has it: a number that is not zero, a string that is not empty, a tensor with elements.
///
/// # Errors
/// `INVALID_ARGUMENT` for a scalar of a type without truth.
pub(crate) fn truth(tensor: &Tensor) -> Result<bool> {
    if !tensor.shape().is_scalar() {
        return Ok(tensor.num_elements() > 0);
    }
    if tensor.dtype() == DType::String {
        return Ok(tensor.strings()?.iter().any(|s| !s.is_empty()));
    }
    let number = dispatch!(tensor.dtype(), T in [f32, f64, i32, u8, i16, i8, i64, bool] => {
        tensor.scalar_value::<T>()? != T::default()
    });
    number.ok_or_else(|| invalid_argument!("{} cannot be converted to a boolean", tensor.dtype()))
}

/// [`truth`] as an op.
struct ToBool;

impl Kernel for ToBool {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let truth = truth(ctx.input(0)?)?;
        ctx.set_scalar(0, truth)
    }
}
