//! Words of a Philox stream, one at a time, at a position that can be saved; and `RandomDataset`.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, INFINITE, Spec, Tuple, dataset_ops, input_dataset, scalar};
use crate::seeds::{SeedGenerator, input_generator, seeds};
use crate::state::{Reader, Writer};
use graphmill_runtime::philox::Philox;
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Result, Tensor};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["RandomDataset", "ExperimentalRandomDataset"], |c| {
        let spec = Spec::of(c)?;
        Ok(move |ctx: &Context<'_>| {
            // Without seeds every iteration has numbers of its own.
            let unseeded = scalar::<i64>(ctx, 0, "seed")? == 0 && scalar::<i64>(ctx, 1, "seed2")? == 0;
            Ok(Random { spec: spec.clone(), generator: Arc::new(SeedGenerator::new(seeds(ctx, 0)?, unseeded)) })
        })
    });
    dataset_ops(registry, &["RandomDatasetV2"], |c| {
        let (spec, reseed) = (Spec::of(c)?, c.attrs().bool("rerandomize_each_iteration")?);
        Ok(move |ctx: &Context<'_>| {
            let generator = match input_generator(ctx, 2)? {
                Some(generator) => generator,
                None => Arc::new(SeedGenerator::new(seeds(ctx, 0)?, reseed)),
            };
            Ok(Random { spec: spec.clone(), generator })
        })
    });
    dataset_ops(registry, &["SamplingDataset"], |_| {
        Ok(|ctx: &Context<'_>| {
            Ok(Sampling { input: input_dataset(ctx, 0)?, rate: scalar(ctx, 1, "rate")?, seeds: seeds(ctx, 2)? })
        })
    });
}

/// The words of the stream of a pair of seeds, in order.
pub(crate) struct Words {
    stream: Philox,
    block: [u32; 4],
    drawn: u64,
}

impl Words {
    /// From the first word on.
    pub fn new(seeds: (u64, u64)) -> Words {
        Words::after(seeds, 0)
    }

    /// From the word on that follows the first `drawn`.
    pub fn after((seed, seed2): (u64, u64), drawn: u64) -> Words {
        let stream = Philox::from_seeds(seed, seed2);
        Words { stream, block: stream.at(drawn / 4).words(), drawn }
    }

    /// How many words have been taken.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }

    /// The next word.
    pub fn next(&mut self) -> u32 {
        if self.drawn.is_multiple_of(4) {
            self.block = self.stream.at(self.drawn / 4).words();
        }
        let word = self.block[(self.drawn % 4) as usize];
        self.drawn += 1;
        word
    }
}

/// Random numbers without end.
struct Random {
    spec: Arc<Spec>,
    generator: Arc<SeedGenerator>,
}

impl Dataset for Random {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        INFINITE
    }

    fn name(&self) -> &'static str {
        "Random"
    }

    fn make(&self, _: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let seeds = self.generator.generate();
        Ok(Box::new(RandomIterator { generator: self.generator.clone(), seeds, words: Words::new(seeds) }))
    }
}

struct RandomIterator {
    generator: Arc<SeedGenerator>,
    seeds: (u64, u64),
    words: Words,
}

impl DatasetIterator for RandomIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        Ok(Some(vec![Tensor::scalar(i64::from(self.words.next()))?]))
    }

    fn never_waits(&self) -> bool {
        true
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Random");
        self.generator.save(writer);
        writer.int(self.seeds.0 as i64);
        writer.int(self.seeds.1 as i64);
        writer.int(self.words.drawn() as i64);
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Random")?;
        self.generator.restore(reader)?;
        self.seeds = (reader.int()? as u64, reader.int()? as u64);
        self.words = Words::after(self.seeds, reader.int()? as u64);
        Ok(())
    }
}

/// Each element with probability `rate`.
struct Sampling {
    input: Arc<dyn Dataset>,
    rate: f32,
    seeds: (u64, u64),
}

impl Dataset for Sampling {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn name(&self) -> &'static str {
        "Sampling"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let input = self.input.iterator(ctx)?;
        Ok(Box::new(SamplingIterator { input, rate: self.rate, seeds: self.seeds, words: Words::new(self.seeds) }))
    }
}

struct SamplingIterator {
    input: Box<dyn DatasetIterator>,
    rate: f32,
    seeds: (u64, u64),
    words: Words,
}

impl DatasetIterator for SamplingIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        loop {
            let Some(element) = self.input.next()? else { return Ok(None) };
            // The upper 23 bits as the mantissa of a number from 1 to 2.
            let draw = f32::from_bits((127 << 23) | (self.words.next() & 0x007f_ffff)) - 1.0;
            if draw < self.rate {
                return Ok(Some(element));
            }
        }
    }

    fn never_waits(&self) -> bool {
        self.input.never_waits()
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Sampling");
        writer.int(self.seeds.0 as i64);
        writer.int(self.seeds.1 as i64);
        writer.int(self.words.drawn() as i64);
        self.input.save(writer)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Sampling")?;
        self.seeds = (reader.int()? as u64, reader.int()? as u64);
        self.words = Words::after(self.seeds, reader.int()? as u64);
        self.input.restore(reader)
    }
}
