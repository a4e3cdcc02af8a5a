//! Reading, changing and giving out values in variants.

use graphmill_runtime::{Context, Stored};
use graphmill_tensor::{Result, Status, Tensor, Variant, internal, invalid_argument};
use std::borrow::Cow;

/// What a family of ops says of inputs that are something else.
pub(crate) trait Described: Stored {
    /// The word for the value.
    const WORD: &'static str;
}

/// The value in input `i`.
///
/// # Errors
/// `INVALID_ARGUMENT` if the input is not a scalar or holds something else.
pub(crate) fn value<'a, T: Described>(ctx: &'a Context<'_>, i: usize) -> Result<Cow<'a, T>> {
    let input = ctx.input(i)?;
    match input.variants()? {
        [variant] if input.shape().is_scalar() => T::of(variant)?.ok_or_else(|| something_else::<T>(variant)),
        _ => Err(invalid_argument!("Input {} must be a scalar saw: {}", T::WORD, input.shape())),
    }
}

fn something_else<T: Described>(variant: &Variant) -> Status {
    invalid_argument!("Input handle is not a {}. Saw: 'Variant<type: {}>'", T::WORD, variant.type_name)
}

/// Changes the value in input 0 and makes it output 0: in place if nobody else holds it, else a copy.
///
/// # Errors
/// As [`value`], and what `change` returns.
pub(crate) fn update<T: Described>(ctx: &mut Context<'_>, change: impl FnOnce(&mut T) -> Result<()>) -> Result<()> {
    let mut tensor = ctx.take_input(0)?;
    if tensor.is_unique()
        && let [variant] = tensor.variants_mut()?
        && let Some(value) = variant.get_mut::<T>()
    {
        change(value)?;
        return ctx.set_output(0, tensor);
    }
    let [variant] = tensor.variants()? else {
        return Err(internal!("a scalar must have one element"));
    };
    let mut copy = T::of(variant)?.ok_or_else(|| something_else::<T>(variant))?.into_owned();
    change(&mut copy)?;
    ctx.set_output(0, copy.into_tensor()?)
}

/// The int32 in scalar input `i`.
///
/// # Errors
/// `INVALID_ARGUMENT` if it has another shape.
pub(crate) fn int32(ctx: &Context<'_>, i: usize, name: &str) -> Result<i32> {
    let tensor: &Tensor = ctx.input(i)?;
    if !tensor.shape().is_scalar() {
        return Err(invalid_argument!("{name} expected to be a scalar but got shape: {}", tensor.shape()));
    }
    tensor.scalar_value()
}
