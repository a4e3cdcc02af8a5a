//! `StringLower`, `StringUpper`, `StringStrip`.

use crate::map::map_strings;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("StringLower").kernel(|c| Case::new(c, false));
    registry.op("StringUpper").kernel(|c| Case::new(c, true));
    registry.op("StringStrip").kernel(|_| Ok(Strip));
}

/// The white space of C: Rust's and the vertical tab.
pub(crate) fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Without the white space at both ends.
pub(crate) fn strip(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&b| !is_space(b)).unwrap_or(text.len());
    let end = text.iter().rposition(|&b| !is_space(b)).map_or(start, |last| last + 1);
    &text[start..end]
}

/// Letters of ASCII, or of Unicode with the encoding `utf-8`.
struct Case {
    upper: bool,
    unicode: bool,
}

impl Case {
    fn new(c: &Construction<'_>, upper: bool) -> Result<Case> {
        match c.attrs().str("encoding")? {
            "" => Ok(Case { upper, unicode: false }),
            "utf-8" => Ok(Case { upper, unicode: true }),
            other => Err(invalid_argument!("only utf-8 or '' (no encoding) is supported, received {other}")),
        }
    }
}

impl Kernel for Case {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        map_strings(ctx, |text| {
            Ok(match (self.unicode, self.upper) {
                (true, true) => Bytes::from(String::from_utf8_lossy(text).to_uppercase()),
                (true, false) => Bytes::from(String::from_utf8_lossy(text).to_lowercase()),
                (false, true) => Bytes::from(text.to_ascii_uppercase()),
                (false, false) => Bytes::from(text.to_ascii_lowercase()),
            })
        })
    }
}

struct Strip;

impl Kernel for Strip {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        map_strings(ctx, |text| Ok(text.slice_ref(strip(text))))
    }
}
