//! `ShuffleDataset` and `ShuffleAndRepeatDataset` in all their versions, with TensorFlow's order for a seed.

use crate::batch::RESERVED;
use crate::context::IteratorContext;
use crate::counting::{restore_optional, save_optional};
use crate::dataset::{Dataset, DatasetIterator, INFINITE, Spec, Tuple, UNKNOWN, dataset_ops, input_dataset, scalar};
use crate::random::Words;
use crate::seeds::{SeedGenerator, input_generator, seeds};
use crate::state::{Reader, Writer};
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Result, invalid_argument};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["ShuffleDataset"], |c| {
        let reshuffle = c.attrs().bool("reshuffle_each_iteration")?;
        Ok(move |ctx: &Context<'_>| Shuffle::new(ctx, 1, own_generator(ctx, reshuffle)?))
    });
    dataset_ops(registry, &["ShuffleDatasetV2"], |_| {
        Ok(|ctx: &Context<'_>| {
            let generator = match input_generator(ctx, 2)? {
                Some(generator) => generator,
                None => Arc::new(SeedGenerator::new((rand::random(), rand::random()), true)),
            };
            Shuffle::new(ctx, 1, generator)
        })
    });
    dataset_ops(registry, &["ShuffleDatasetV3"], |c| {
        let reshuffle = c.attrs().bool("reshuffle_each_iteration")?;
        Ok(move |ctx: &Context<'_>| Shuffle::new(ctx, 1, shared_generator(ctx, 4, reshuffle)?))
    });
    for (op, generator_input) in [("ShuffleAndRepeatDataset", None), ("ShuffleAndRepeatDatasetV2", Some(5))] {
        dataset_ops(registry, &[op], move |c| {
            let reshuffle = c.attrs().bool("reshuffle_each_iteration")?;
            Ok(move |ctx: &Context<'_>| {
                let count: i64 = scalar(ctx, 4, "count")?;
                if count < 1 && count != -1 {
                    return Err(invalid_argument!("count must be greater than zero or equal to -1."));
                }
                let generator = match generator_input {
                    Some(i) => shared_generator(ctx, i, reshuffle)?,
                    None => own_generator(ctx, reshuffle)?,
                };
                Shuffle::new(ctx, count, generator)
            })
        });
    }
}

fn own_generator(ctx: &Context<'_>, reshuffle: bool) -> Result<Arc<SeedGenerator>> {
    Ok(Arc::new(SeedGenerator::new(seeds(ctx, 2)?, reshuffle)))
}

fn shared_generator(ctx: &Context<'_>, i: usize, reshuffle: bool) -> Result<Arc<SeedGenerator>> {
    match input_generator(ctx, i)? {
        Some(generator) => Ok(generator),
        None => own_generator(ctx, reshuffle),
    }
}

/// Passes over the input that the buffer may hold elements of at once.
const MAX_EPOCHS_IN_BUFFER: usize = 3;

/// Elements in an order that is random within a buffer; `count` times over, each pass for itself.
struct Shuffle {
    input: Arc<dyn Dataset>,
    size: usize,
    count: i64,
    generator: Arc<SeedGenerator>,
}

impl Shuffle {
    fn new(ctx: &Context<'_>, count: i64, generator: Arc<SeedGenerator>) -> Result<Shuffle> {
        match usize::try_from(scalar::<i64>(ctx, 1, "buffer_size")?) {
            Ok(size) if size > 0 => Ok(Shuffle { input: input_dataset(ctx, 0)?, size, count, generator }),
            _ => Err(invalid_argument!("buffer_size must be greater than zero.")),
        }
    }
}

impl Dataset for Shuffle {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        match self.input.cardinality() {
            INFINITE => INFINITE,
            _ if self.count == -1 => INFINITE,
            UNKNOWN => UNKNOWN,
            n => n.saturating_mul(self.count),
        }
    }

    fn name(&self) -> &'static str {
        if self.count == 1 { "Shuffle" } else { "ShuffleAndRepeat" }
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let seeds = self.generator.generate();
        let pass = self.input.iterator(ctx)?;
        Ok(Box::new(ShuffleIterator {
            ctx: ctx.clone(),
            input: self.input.clone(),
            size: self.size,
            count: self.count,
            generator: self.generator.clone(),
            seeds,
            words: Words::new(seeds),
            never_waits: pass.never_waits(),
            pass: Some(pass),
            epoch: 0,
            produced: false,
            buffer: Vec::with_capacity(self.size.min(RESERVED)),
            held: 0,
            slices: VecDeque::from([Slice { start: 0, end: 0 }]),
        }))
    }
}

/// The elements of one pass in the buffer. Both ends count on without end; modulo the buffer's size they are places in it.
struct Slice {
    start: usize,
    end: usize,
}

struct ShuffleIterator {
    ctx: IteratorContext,
    input: Arc<dyn Dataset>,
    size: usize,
    count: i64,
    generator: Arc<SeedGenerator>,
    seeds: (u64, u64),
    words: Words,
    never_waits: bool,
    pass: Option<Box<dyn DatasetIterator>>,
    epoch: i64,
    /// Whether the input has ever given an element.
    produced: bool,
    /// A ring that grows up to `size`.
    buffer: Vec<Tuple>,
    held: usize,
    slices: VecDeque<Slice>,
}

impl ShuffleIterator {
    /// Fills the buffer; false if the input repeats without end and gives nothing.
    fn fill(&mut self) -> Result<bool> {
        while self.held < self.size {
            let Some(pass) = &mut self.pass else { break };
            match pass.next()? {
                Some(element) => {
                    self.produced = true;
                    self.put(element);
                }
                None if self.count == -1 && !self.produced => return Ok(false),
                None => {
                    self.epoch += 1;
                    let more = self.count == -1 || self.epoch < self.count;
                    self.pass = if more { Some(self.input.iterator(&self.ctx)?) } else { None };
                    let end = self.slices.back().map_or(0, |slice| slice.end);
                    self.slices.push_back(Slice { start: end, end });
                }
            }
            if self.slices.len() > MAX_EPOCHS_IN_BUFFER {
                break;
            }
        }
        Ok(true)
    }

    fn put(&mut self, element: Tuple) {
        if let Some(slice) = self.slices.back_mut() {
            let place = slice.end % self.size;
            slice.end += 1;
            match self.buffer.get_mut(place) {
                Some(slot) => *slot = element,
                None => self.buffer.push(element),
            }
            self.held += 1;
        }
    }
}

impl DatasetIterator for ShuffleIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        if !self.fill()? || self.held == 0 {
            return Ok(None);
        }
        while self.slices.front().is_some_and(|slice| slice.start == slice.end) {
            self.slices.pop_front();
            self.seeds = self.generator.generate();
            self.words = Words::new(self.seeds);
        }
        let Some(slice) = self.slices.front_mut() else { return Ok(None) };
        let offset = self.words.next() as usize % (slice.end - slice.start);
        let chosen = (slice.start + offset) % self.size;
        let first = slice.start % self.size;
        slice.start += 1;
        self.held -= 1;
        // The element at the front of the slice moves to the place that gets free.
        self.buffer.swap(chosen, first);
        Ok(self.buffer.get_mut(first).map(std::mem::take))
    }

    fn never_waits(&self) -> bool {
        self.never_waits
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Shuffle");
        self.generator.save(writer);
        writer.int(self.seeds.0 as i64);
        writer.int(self.seeds.1 as i64);
        writer.int(self.words.drawn() as i64);
        writer.int(self.epoch);
        writer.bool(self.produced);
        writer.size(self.held);
        writer.size(self.slices.len());
        for slice in &self.slices {
            writer.size(slice.start);
            writer.size(slice.end);
        }
        writer.size(self.buffer.len());
        self.buffer.iter().for_each(|element| writer.tuple(element));
        save_optional(writer, &mut self.pass)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Shuffle")?;
        self.generator.restore(reader)?;
        self.seeds = (reader.int()? as u64, reader.int()? as u64);
        self.words = Words::after(self.seeds, reader.int()? as u64);
        self.epoch = reader.int()?;
        self.produced = reader.bool()?;
        self.held = reader.size()?;
        let slices = reader.size()?;
        self.slices.clear();
        for _ in 0..slices {
            self.slices.push_back(Slice { start: reader.size()?, end: reader.size()? });
        }
        let length = reader.size()?;
        self.buffer.clear();
        for _ in 0..length {
            self.buffer.push(reader.tuple()?);
        }
        let total = self.slices.iter().try_fold(0usize, |n, s| n.checked_add(s.end.checked_sub(s.start)?));
        if length > self.size || total != Some(self.held) || self.held > length {
            return Err(invalid_argument!("The saved state of the shuffle buffer does not fit the dataset"));
        }
        restore_optional(reader, &mut self.pass)
    }
}
