//! `Substr`, in bytes or characters.

use crate::length::{counts_characters, is_trail};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument, unimplemented_op};

pub(crate) fn register(registry: &mut Registry) {
    let entry = registry.op("Substr").types("T", &[DType::Int32, DType::Int64]);
    entry.kernel(|c: &Construction<'_>| Ok(Substr { utf8: counts_characters(c)? }));
}

struct Substr {
    utf8: bool,
}

impl Substr {
    fn part(&self, text: &Bytes, start: i64, length: i64) -> Option<Bytes> {
        if self.utf8 {
            let (start, end) = characters(text, start, length)?;
            return Some(text.slice(start..end));
        }
        let size = text.len();
        let start = if start < 0 { start.checked_add(size as i64)? } else { start };
        let start = usize::try_from(start).ok().filter(|&start| start <= size)?;
        // A negative length is that of the rest.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Some(text.slice(start..start.saturating_add(length).min(size)))
    }
}

/// The range of bytes of some characters.
fn characters(text: &[u8], start: i64, length: i64) -> Option<(usize, usize)> {
    if start >= 0 {
        let (from, enough) = forward(text, start, 0);
        if !enough {
            return None;
        }
        return Some((from, forward(text, length, from).0));
    }
    let behind = start.checked_neg()?.checked_sub(length)?.max(0);
    let (to, enough) = backward(text, behind, text.len());
    if !enough {
        return None;
    }
    let (from, enough) = backward(text, start.checked_neg()?.checked_sub(behind)?, to);
    enough.then_some((from, to))
}

/// The position `count` characters on, and whether there are as many.
fn forward(text: &[u8], count: i64, mut at: usize) -> (usize, bool) {
    let mut moved = 0;
    while moved < count && at < text.len() {
        at += 1;
        while at < text.len() && is_trail(text[at]) {
            at += 1;
        }
        moved += 1;
    }
    (at, moved == count)
}

fn backward(text: &[u8], count: i64, mut at: usize) -> (usize, bool) {
    let mut moved = 0;
    while moved < count && at > 0 {
        at -= 1;
        while at > 0 && is_trail(text[at]) {
            at -= 1;
        }
        moved += 1;
    }
    (at, moved == count)
}

/// The shape that two shapes broadcast to.
fn broadcast(a: &Shape, b: &Shape) -> Result<Shape> {
    let rank = a.rank().max(b.rank());
    let dim = |shape: &Shape, axis: usize| (axis + shape.rank()).checked_sub(rank).map_or(1, |i| shape.dim(i));
    let mut dims = Vec::with_capacity(rank);
    for axis in 0..rank {
        match (dim(a, axis), dim(b, axis)) {
            (x, y) if x == y || y == 1 => dims.push(x),
            (1, y) => dims.push(y),
            _ => return Err(invalid_argument!("Incompatible shapes: {a} vs. {b}")),
        }
    }
    Shape::from_dims(&dims)
}

/// The element of `shape` that belongs to a position of the broadcast shape.
fn position(shape: &Shape, index: &[usize]) -> usize {
    let skipped = index.len() - shape.rank();
    shape.dims().iter().zip(&index[skipped..]).fold(0, |at, (&dim, &i)| at * dim + if dim == 1 { 0 } else { i })
}

impl Kernel for Substr {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, starts, lengths) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if starts.shape() != lengths.shape() {
            return Err(invalid_argument!(
                "pos and len should have the same shape, got: {} vs. {}",
                starts.shape(),
                lengths.shape()
            ));
        }
        let shape = broadcast(input.shape(), starts.shape())?;
        let plain = starts.shape().is_scalar() || input.shape() == starts.shape();
        if !plain && shape.rank() > 2 {
            return Err(unimplemented_op!("Substr broadcast not implemented for {} dimensions", shape.rank()));
        }
        let (texts, start_values, length_values) = (input.strings()?, starts.to_i64_vec()?, lengths.to_i64_vec()?);
        let strides = shape.strides();
        let mut parts = Vec::with_capacity(shape.num_elements());
        for i in 0..shape.num_elements() {
            let index: Vec<usize> =
                strides.iter().zip(shape.dims()).map(|(&stride, &dim)| i / stride.max(1) % dim.max(1)).collect();
            let text = &texts[position(input.shape(), &index)];
            let at = position(starts.shape(), &index);
            let (start, length) = (start_values[at], length_values[at]);
            let part = self.part(text, start, length).ok_or_else(|| {
                let place = match index.as_slice() {
                    [row, column] if !plain && !self.utf8 => format!("({row}, {column})"),
                    [row, _] if !plain => row.to_string(),
                    _ => i.to_string(),
                };
                let string = if self.utf8 {
                    "string".to_owned()
                } else {
                    format!("string b'{}'", String::from_utf8_lossy(text))
                };
                invalid_argument!("pos {start} out of range for {string} at index {place}")
            })?;
            parts.push(part);
        }
        ctx.set_output(0, Tensor::from_strings(shape, parts)?)
    }
}
