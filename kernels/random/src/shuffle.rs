//! `RandomShuffle`: the rows of a tensor in random order.

use crate::stateless::stream_of_key;
use graphmill_runtime::philox::{Generator, Philox, Words};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Mover, Result, Tensor};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("RandomShuffle").types("T", DType::COMMON).kernel(RandomShuffle::new);
    registry.op("StatelessShuffle").types("T", DType::COMMON).kernel(|_| Ok(StatelessShuffle));
}

struct RandomShuffle {
    generator: Generator,
}

impl RandomShuffle {
    fn new(c: &Construction<'_>) -> Result<RandomShuffle> {
        Ok(RandomShuffle { generator: Generator::new(c)? })
    }
}

/// The rows of a tensor in random order; `stream` is asked for that many draws if the order can change at all.
fn shuffled(input: Tensor, stream: impl FnOnce(u64) -> Philox) -> Result<Tensor> {
    let rows = input.shape().dim(0);
    // What cannot change takes nothing from the stream.
    if input.shape().is_scalar() || input.num_elements() <= 1 || rows <= 1 {
        return Ok(input);
    }
    let words = Words::new(stream((rows as u64 - 1).div_ceil(4)));
    let row = input.num_elements() / rows;
    let mut output = Tensor::alloc(input.dtype(), input.shape().clone())?;
    if row == 1 {
        output.move_from(&[&input], Shuffled(words))?;
    } else {
        output.move_from(&[&input], Rows { order: &permutation(words, rows), row })?;
    }
    Ok(output)
}

impl Kernel for RandomShuffle {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.take_input(0)?;
        let output = shuffled(input, |draws| self.generator.take(draws))?;
        ctx.set_output(0, output)
    }
}

/// `StatelessShuffle(value, key, counter, alg)`: the same, from a stream among the inputs.
struct StatelessShuffle;

impl Kernel for StatelessShuffle {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let stream = stream_of_key(ctx.input(1)?, ctx.input(2)?, ctx.input(3)?)?;
        let input = ctx.take_input(0)?;
        let output = shuffled(input, |_| stream)?;
        ctx.set_output(0, output)
    }
}

/// Fisher and Yates' shuffle from the front, one word a step.
pub(crate) fn shuffle<E>(mut words: Words, elements: &mut [E]) {
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
    use graphmill_runtime::philox::Philox;

    #[test]
    fn a_permutation_has_every_row_once() {
        for n in [2, 3, 100] {
            let mut order = permutation(Words::new(Philox::from_seeds(3, 4)), n);
            order.sort_unstable();
            assert_eq!(order, (0..n).collect::<Vec<_>>());
        }
    }
}
