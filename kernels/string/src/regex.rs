//! `RegexFullMatch`, `RegexReplace`, and the same with the pattern in an attribute.

use crate::map::{map_strings, map_to};
use crate::pattern::Pattern;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, Result, invalid_argument};
use parking_lot::Mutex;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("RegexFullMatch").kernel(|_| Ok(FullMatch(Source::Input(Mutex::new(None)))));
    registry.op("StaticRegexFullMatch").kernel(|c| Ok(FullMatch(Source::fixed(c)?)));
    registry.op("RegexReplace").kernel(|c| Replace::new(c, Source::Input(Mutex::new(None)), None));
    registry.op("StaticRegexReplace").kernel(|c| {
        let rewrite = c.attrs().string("rewrite")?.to_vec();
        Replace::new(c, Source::fixed(c)?, Some(rewrite))
    });
}

/// Where a pattern comes from; the last one of input 1 is kept.
enum Source {
    Fixed(Arc<Pattern>),
    Input(Mutex<Option<(Bytes, Arc<Pattern>)>>),
}

impl Source {
    fn fixed(c: &Construction<'_>) -> Result<Source> {
        Ok(Source::Fixed(Arc::new(Pattern::new(c.attrs().string("pattern")?)?)))
    }

    fn get(&self, ctx: &Context<'_>) -> Result<Arc<Pattern>> {
        let kept = match self {
            Source::Fixed(pattern) => return Ok(pattern.clone()),
            Source::Input(kept) => kept,
        };
        let text = scalar(ctx, 1, "Pattern")?;
        if let Some((held, pattern)) = &*kept.lock()
            && *held == text
        {
            return Ok(pattern.clone());
        }
        let pattern = Arc::new(Pattern::new(&text)?);
        *kept.lock() = Some((text, pattern.clone()));
        Ok(pattern)
    }
}

fn scalar(ctx: &Context<'_>, i: usize, what: &str) -> Result<Bytes> {
    let tensor = ctx.input(i)?;
    match tensor.strings()? {
        [text] if tensor.shape().is_scalar() => Ok(text.clone()),
        _ => Err(invalid_argument!("{what} must be scalar, but received {}", tensor.shape())),
    }
}

struct FullMatch(Source);

impl Kernel for FullMatch {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let pattern = self.0.get(ctx)?;
        map_to(ctx, |text| Ok(pattern.is_full_match(text)))
    }
}

struct Replace {
    source: Source,
    rewrite: Option<Vec<u8>>,
    global: bool,
}

impl Replace {
    fn new(c: &Construction<'_>, source: Source, rewrite: Option<Vec<u8>>) -> Result<Replace> {
        Ok(Replace { source, rewrite, global: c.attrs().bool("replace_global")? })
    }
}

impl Kernel for Replace {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let pattern = self.source.get(ctx)?;
        let rewrite = match &self.rewrite {
            Some(rewrite) => Bytes::from(rewrite.clone()),
            None => scalar(ctx, 2, "Rewrite")?,
        };
        map_strings(ctx, |text| {
            Ok(pattern.replace(text, &rewrite, self.global).map_or_else(|| text.clone(), Bytes::from))
        })
    }
}
