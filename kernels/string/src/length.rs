//! `StringLength`, in bytes or characters.

use crate::map::map_to;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("StringLength").kernel(|c| Ok(StringLength { utf8: counts_characters(c)? }));
}

/// Whether attribute `unit` says characters.
///
/// # Errors
/// `INVALID_ARGUMENT` for another unit than `BYTE` and `UTF8_CHAR`.
pub(crate) fn counts_characters(c: &Construction<'_>) -> Result<bool> {
    match c.attrs().str("unit")? {
        "BYTE" => Ok(false),
        "UTF8_CHAR" => Ok(true),
        other => Err(invalid_argument!("Invalid unit \"{other}\": Should be one of: BYTE, UTF8_CHAR")),
    }
}

/// Whether a byte is not the first of a character.
pub(crate) fn is_trail(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

struct StringLength {
    utf8: bool,
}

impl Kernel for StringLength {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        map_to(ctx, |text| {
            Ok(if self.utf8 { text.iter().filter(|&&b| !is_trail(b)).count() } else { text.len() } as i32)
        })
    }
}
