//! `UnicodeScript`: the script of each character, by the numbers of the ICU library.

use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result};
use std::sync::OnceLock;

/// The ranges as `make_unicode_scripts.py` writes them.
const RANGES: &str = include_str!("unicode_scripts.tsv");
/// The script of characters that have none.
const UNKNOWN: i32 = 103;
/// What stands for a number that is no character.
const INVALID: i32 = -1;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("UnicodeScript").kernel(|_| Ok(UnicodeScript));
}

/// First and last character of a range, and the script; in rising order.
fn ranges() -> &'static [(i32, i32, i32)] {
    static PARSED: OnceLock<Vec<(i32, i32, i32)>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let parse = |line: &str| {
            let mut fields = line.split('\t');
            let first = i32::from_str_radix(fields.next()?, 16).ok()?;
            let last = i32::from_str_radix(fields.next()?, 16).ok()?;
            Some((first, last, fields.next()?.parse().ok()?))
        };
        RANGES.lines().filter_map(parse).collect()
    })
}

fn script(character: i32) -> i32 {
    if !(0..=0x10_FFFF).contains(&character) {
        return INVALID;
    }
    let ranges = ranges();
    let behind = ranges.partition_point(|&(first, ..)| first <= character);
    match behind.checked_sub(1).and_then(|at| ranges.get(at)) {
        Some(&(_, last, script)) if character <= last => script,
        _ => UNKNOWN,
    }
}

struct UnicodeScript;

impl Kernel for UnicodeScript {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let scripts: Vec<i32> = ctx.input(0)?.as_slice::<i32>()?.iter().map(|&character| script(character)).collect();
        let shape = ctx.input(0)?.shape().clone();
        let mut output = graphmill_tensor::Tensor::alloc(DType::Int32, shape)?;
        output.as_mut_slice::<i32>()?.copy_from_slice(&scripts);
        ctx.set_output(0, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_have_scripts() {
        let latin = 25;
        assert_eq!([script('a' as i32), script('1' as i32), script('é' as i32)], [latin, 0, latin]);
        assert_eq!([script(0x378), script(0x11_0000), script(-5)], [UNKNOWN, INVALID, INVALID]);
        assert!(ranges().iter().zip(ranges().iter().skip(1)).all(|(a, b)| a.1 < b.0));
    }
}
