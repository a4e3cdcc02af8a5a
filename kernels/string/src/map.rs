//! Ops that do the same to each string of a tensor.

use graphmill_runtime::Context;
use graphmill_tensor::{Bytes, Element, Result};

/// Sets output 0 to what `body` makes of each string of input 0.
///
/// # Errors
/// The first that `body` returns.
pub(crate) fn map_strings(ctx: &mut Context<'_>, mut body: impl FnMut(&Bytes) -> Result<Bytes>) -> Result<()> {
    let input = ctx.input(0)?;
    let mut output = ctx.alloc_output(0, input.shape().clone())?;
    for (to, from) in output.strings_mut()?.iter_mut().zip(input.strings()?) {
        *to = body(from)?;
    }
    ctx.set_output(0, output)
}

/// Sets output 0 to the number that `body` makes of each string of input 0.
///
/// # Errors
/// The first that `body` returns.
pub(crate) fn map_to<T: Element>(ctx: &mut Context<'_>, mut body: impl FnMut(&Bytes) -> Result<T>) -> Result<()> {
    let input = ctx.input(0)?;
    let mut output = ctx.alloc_output(0, input.shape().clone())?;
    for (to, from) in output.as_mut_slice::<T>()?.iter_mut().zip(input.strings()?) {
        *to = body(from)?;
    }
    ctx.set_output(0, output)
}
