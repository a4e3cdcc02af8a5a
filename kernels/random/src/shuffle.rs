//! `RandomShuffle`: the rows of a tensor in random order.

use crate::philox::{Generator, Words};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Mover, Result, Tensor};

const TYPES: [DType; 18] = [
    DType::BFloat16,
    DType::Bool,
    DType::Complex64,
    DType::Complex128,
    DType::Half,
    DType::Float,
    DType::Double,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::String,
    DType::Resource,
    DType::Variant,
];

pub(crate) fn register(registry: &mut Registry) {
    registry.op("RandomShuffle").types("T", &TYPES).kernel(RandomShuffle::new);
}

struct RandomShuffle {
    generator: Generator,
}

impl RandomShuffle {
    fn new(c: &Construction<'_>) -> Result<RandomShuffle> {
        Ok(RandomShuffle { generator: Generator::new(c)? })
    }
}

impl Kernel for RandomShuffle {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.take_input(0)?;
        let rows = input.shape().dim(0);
        // What cannot change takes nothing from the stream.
        if input.shape().is_scalar() || input.num_elements() <= 1 || rows <= 1 {
            return ctx.set_output(0, input);
        }
        let words = Words::new(self.generator.take((rows as u64 - 1).div_ceil(4)));
        let row = input.num_elements() / rows;
        let mut output = Tensor::alloc(input.dtype(), input.shape().clone())?;
        if row == 1 {
            output.move_from(&[&input], Shuffled(words))?;
        } else {
            output.move_from(&[&input], Rows { order: &permutation(words, rows), row })?;
        }
        ctx.set_output(0, output)
    }
}

/// Fisher and Yates' shuffle from the front, one word a step.
fn shuffle<E>(mut words: Words, elements: &mut [E]) {
    for i in 0..elements.len().saturating_sub(1) {
        // TensorFlow counts what is left in 32 bits.
        let left = ((elements.len() - i) as u32).max(1);
        elements.swap(i, i + (words.next() % left) as usize);
    }
}

fn permutation(words: Words, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    shuffle(words, &mut order);
    order
}

/// The elements of the source in random order.
struct Shuffled(Words);

impl Mover for Shuffled {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let Some(source) = sources.first() else { return };
        target.clone_from_slice(source);
        shuffle(self.0, target);
    }
}

struct Rows<'a> {
    order: &'a [usize],
    row: usize,
}

impl Mover for Rows<'_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let Some(source) = sources.first() else { return };
        for (to, &from) in target.chunks_exact_mut(self.row).zip(self.order) {
            to.clone_from_slice(&source[from * self.row..(from + 1) * self.row]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::Philox;

    #[test]
    fn a_permutation_has_every_row_once() {
        for n in [2, 3, 100] {
            let mut order = permutation(Words::new(Philox::from_seeds(3, 4)), n);
            order.sort_unstable();
            assert_eq!(order, (0..n).collect::<Vec<_>>());
        }
    }
}
