//! Kernels for strings: joining, splitting, regular expressions, numbers as text, Unicode, hashes.

mod as_string;
mod base64;
mod case;
mod encoding;
mod format;
mod hash;
mod join;
mod length;
mod map;
mod ngrams;
mod number;
mod pattern;
mod print;
mod printf;
mod regex;
mod script;
mod split;
mod substr;
mod unicode;

use graphmill_formats::FileSystem;
use graphmill_runtime::Registry;
use std::sync::Arc;

/// Registers the kernels of this family; they see the files of `files`.
pub fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    as_string::register(registry);
    base64::register(registry);
    case::register(registry);
    format::register(registry);
    hash::register(registry);
    join::register(registry);
    length::register(registry);
    ngrams::register(registry);
    number::register(registry);
    print::register(registry, files);
    regex::register(registry);
    script::register(registry);
    split::register(registry);
    substr::register(registry);
    unicode::register(registry);
}
