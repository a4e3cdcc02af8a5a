//! Reading small inputs.

use graphmill_runtime::Context;
use graphmill_tensor::{Bytes, Result, Tensor, internal};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The first string of a tensor that has one, as its caller has checked.
pub(crate) fn first(tensor: &Tensor) -> Result<&Bytes> {
    tensor.strings()?.first().ok_or_else(|| internal!("a tensor of strings is empty"))
}

/// The path that a string spells.
pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Text of a string, for messages and names.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Sets output `i` to a scalar string.
///
/// # Errors
/// As [`Context::set_output`].
pub(crate) fn set_string(ctx: &mut Context<'_>, i: usize, value: impl Into<Bytes>) -> Result<()> {
    ctx.set_output(i, Tensor::from_strings(graphmill_tensor::Shape::scalar(), vec![value.into()])?)
}
