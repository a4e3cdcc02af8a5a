//! Datasets that select by position: `TakeDataset`, `SkipDataset`, `ShardDataset`, `RepeatDataset`.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, INFINITE, Spec, Tuple, UNKNOWN, dataset_ops, input_dataset, scalar};
use crate::state::{Reader, Writer};
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Result, failed_precondition, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["TakeDataset"], |_| {
        Ok(|ctx: &Context<'_>| Ok(Take { input: input_dataset(ctx, 0)?, count: scalar(ctx, 1, "count")? }))
    });
    dataset_ops(registry, &["SkipDataset"], |_| {
        Ok(|ctx: &Context<'_>| Ok(Skip { input: input_dataset(ctx, 0)?, count: scalar(ctx, 1, "count")? }))
    });
    dataset_ops(registry, &["RepeatDataset"], |_| {
        Ok(|ctx: &Context<'_>| Ok(Repeat { input: input_dataset(ctx, 0)?, count: scalar(ctx, 1, "count")? }))
    });
    dataset_ops(registry, &["ShardDataset"], |c| {
        let require_non_empty = c.attrs().bool("require_non_empty")?;
        Ok(move |ctx: &Context<'_>| Shard::new(ctx, require_non_empty))
    });
}

/// The first `count` elements; all of them for a negative count.
struct Take {
    input: Arc<dyn Dataset>,
    count: i64,
}

impl Dataset for Take {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        match self.input.cardinality() {
            n if self.count < 0 || n == UNKNOWN => n,
            INFINITE => self.count,
            n => n.min(self.count),
        }
    }

    fn name(&self) -> &'static str {
        "Take"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let left = usize::try_from(self.count).ok();
        let input = if left == Some(0) { None } else { Some(self.input.iterator(ctx)?) };
        Ok(Box::new(TakeIterator { input, left }))
    }
}

struct TakeIterator {
    input: Option<Box<dyn DatasetIterator>>,
    /// How many more, if there is a limit.
    left: Option<usize>,
}

impl DatasetIterator for TakeIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let Some(input) = &mut self.input else { return Ok(None) };
        if self.left == Some(0) {
            self.input = None;
            return Ok(None);
        }
        let next = input.next()?;
        match &next {
            Some(_) => self.left = self.left.map(|left| left - 1),
            None => self.input = None,
        }
        Ok(next)
    }

    fn never_waits(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.never_waits())
    }

    fn is_ready(&self) -> bool {
        self.left == Some(0) || self.input.as_ref().is_none_or(|input| input.is_ready())
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Take");
        writer.size(self.left.unwrap_or(0));
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Take")?;
        let left = reader.size()?;
        self.left = self.left.map(|_| left);
        restore_optional(reader, &mut self.input)
    }
}

/// Saves an input that is gone when it has ended.
pub(crate) fn save_optional(writer: &mut Writer, input: &mut Option<Box<dyn DatasetIterator>>) -> Result<()> {
    writer.bool(input.is_some());
    match input {
        Some(input) => input.save(writer),
        None => Ok(()),
    }
}

/// Restores an input that is gone when it has ended. It is there before.
pub(crate) fn restore_optional(reader: &mut Reader, input: &mut Option<Box<dyn DatasetIterator>>) -> Result<()> {
    if !reader.bool()? {
        *input = None;
        return Ok(());
    }
    match input {
        Some(input) => input.restore(reader),
        None => Err(invalid_argument!("The saved state of the iterator belongs to another dataset")),
    }
}

/// All but the first `count` elements; none for a negative count.
struct Skip {
    input: Arc<dyn Dataset>,
    count: i64,
}

impl Dataset for Skip {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        match self.input.cardinality() {
            _ if self.count < 0 => 0,
            n if n < 0 => n,
            n => (n - self.count).max(0),
        }
    }

    fn name(&self) -> &'static str {
        "Skip"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let to_skip = usize::try_from(self.count).ok();
        let input = if to_skip.is_some() { Some(self.input.iterator(ctx)?) } else { None };
        Ok(Box::new(SkipIterator { input, to_skip: to_skip.unwrap_or(0) }))
    }
}

struct SkipIterator {
    input: Option<Box<dyn DatasetIterator>>,
    to_skip: usize,
}

impl DatasetIterator for SkipIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let Some(input) = &mut self.input else { return Ok(None) };
        while self.to_skip > 0 {
            // One by one: an error in between leaves the position right.
            if input.skip(1)? == 0 {
                self.input = None;
                return Ok(None);
            }
            self.to_skip -= 1;
        }
        let next = input.next()?;
        if next.is_none() {
            self.input = None;
        }
        Ok(next)
    }

    fn never_waits(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.never_waits())
    }

    fn is_ready(&self) -> bool {
        let first = self.to_skip > 0;
        self.input.as_ref().is_none_or(|input| if first { input.never_waits() } else { input.is_ready() })
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Skip");
        writer.size(self.to_skip);
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Skip")?;
        self.to_skip = reader.size()?;
        restore_optional(reader, &mut self.input)
    }
}

/// The stand-in for a number of shards that a rewrite fills in.
const SHARD_HINT: i64 = -1;

/// Every `num_shards`th element.
struct Shard {
    input: Arc<dyn Dataset>,
    num_shards: i64,
    index: i64,
    require_non_empty: bool,
}

impl Shard {
    fn new(ctx: &Context<'_>, require_non_empty: bool) -> Result<Shard> {
        let (num_shards, index) = (scalar(ctx, 1, "num_shards")?, scalar(ctx, 2, "index")?);
        if num_shards <= 0 && num_shards != SHARD_HINT {
            return Err(invalid_argument!(
                "Number of shards must be greater than zero (currently num_shards = {num_shards})."
            ));
        }
        if !(0..num_shards).contains(&index) && num_shards != SHARD_HINT {
            return Err(invalid_argument!(
                "Index must be between 0 and {} (currently index = {index}).",
                num_shards - 1
            ));
        }
        Ok(Shard { input: input_dataset(ctx, 0)?, num_shards, index, require_non_empty })
    }
}

impl Dataset for Shard {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        match self.input.cardinality() {
            n if n < 0 || self.num_shards <= 0 => n,
            n => n / self.num_shards + i64::from(self.index < n % self.num_shards),
        }
    }

    fn name(&self) -> &'static str {
        "Shard"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let (Ok(num_shards), Ok(index)) = (usize::try_from(self.num_shards), usize::try_from(self.index)) else {
            return Err(failed_precondition!(
                "`tf.data.Dataset.shard(SHARD_HINT, ...)` can only be used in `tf.distribute.Strategy.experimental_distribute_dataset()` with `tf.data.experimental.AutoShardPolicy.HINT` policy, or tf.data service with `tf.data.experimental.service.ShardingPolicy.HINT` processing mode."
            ));
        };
        let input = Some(self.input.iterator(ctx)?);
        let require_non_empty = self.require_non_empty;
        Ok(Box::new(ShardIterator { input, num_shards, to_skip: index, require_non_empty, taken: 0 }))
    }
}

struct ShardIterator {
    input: Option<Box<dyn DatasetIterator>>,
    num_shards: usize,
    to_skip: usize,
    require_non_empty: bool,
    taken: usize,
}

impl ShardIterator {
    /// Passes over the other shards' elements; whether there is more.
    fn pass(&mut self) -> Result<bool> {
        while self.to_skip > 0 {
            let Some(input) = &mut self.input else { return Ok(false) };
            if input.skip(1)? == 0 {
                self.input = None;
                return Ok(false);
            }
            self.to_skip -= 1;
            self.taken += 1;
        }
        Ok(true)
    }
}

impl DatasetIterator for ShardIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        if !self.pass()? {
            return Ok(None);
        }
        let Some(input) = &mut self.input else { return Ok(None) };
        let next = input.next()?;
        if next.is_none() {
            self.input = None;
            return Ok(None);
        }
        self.taken += 1;
        self.to_skip = self.num_shards - 1;
        if self.require_non_empty && self.taken < self.num_shards {
            // The first round shows whether every shard gets an element.
            let rest = self.num_shards - self.taken;
            let passed = input.skip(rest)?;
            self.taken += passed;
            self.to_skip -= passed;
            if passed < rest {
                return Err(invalid_argument!(
                    "Could not apply FILE based sharding: the dataset only has {} file(s), which is not enough for the \
                     required {} shards/workers. If you are using datasets with distribution strategy, consider setting \
                     the auto sharding policy to either DATA or OFF using the \
                     `experimental_distribute.auto_shard_policy` option of `tf.data.Options()`. Or, split your input \
                     files into a larger number of small files such that number of files is greater than number of \
                     shards/workers.",
                    self.taken,
                    self.num_shards
                ));
            }
        }
        Ok(next)
    }

    fn never_waits(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.never_waits())
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Shard");
        writer.size(self.to_skip);
        writer.size(self.taken);
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Shard")?;
        self.to_skip = reader.size()?;
        self.taken = reader.size()?;
        restore_optional(reader, &mut self.input)
    }
}

/// The elements `count` times over; without end for a negative count.
struct Repeat {
    input: Arc<dyn Dataset>,
    count: i64,
}

impl Dataset for Repeat {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        match self.input.cardinality() {
            n if self.count < 0 => {
                if n == 0 {
                    0
                } else {
                    INFINITE
                }
            }
            _ if self.count == 0 => 0,
            n if n < 0 => n,
            n => n.saturating_mul(self.count),
        }
    }

    fn name(&self) -> &'static str {
        match self.count {
            n if n < 0 => "ForeverRepeat",
            0 => "EmptyRepeat",
            _ => "FiniteRepeat",
        }
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let left = u64::try_from(self.count).ok();
        // Where nothing waits the whole may run at once, which the first pass tells.
        let first = if left == Some(0) { None } else { Some(self.input.iterator(ctx)?) };
        let never_waits = first.as_ref().is_none_or(|input| input.never_waits());
        let (ctx, input) = (ctx.clone(), self.input.clone());
        Ok(Box::new(RepeatIterator { ctx, input, pass: first, left, fresh: true, never_waits }))
    }
}

struct RepeatIterator {
    ctx: IteratorContext,
    input: Arc<dyn Dataset>,
    pass: Option<Box<dyn DatasetIterator>>,
    /// Passes to go with the current one, if there is a limit.
    left: Option<u64>,
    /// Whether the current pass has not given anything.
    fresh: bool,
    never_waits: bool,
}

impl DatasetIterator for RepeatIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        while self.left != Some(0) {
            let pass = match &mut self.pass {
                Some(pass) => pass,
                None => self.pass.insert(self.input.iterator(&self.ctx)?),
            };
            if let Some(element) = pass.next()? {
                self.fresh = false;
                return Ok(Some(element));
            }
            self.pass = None;
            match &mut self.left {
                Some(left) => *left -= 1,
                // A pass without an element would be repeated for ever.
                None if self.fresh => return Ok(None),
                None => {}
            }
            self.fresh = true;
        }
        Ok(None)
    }

    fn never_waits(&self) -> bool {
        self.never_waits
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Repeat");
        writer.int(self.left.map_or(-1, |left| left as i64));
        writer.bool(self.fresh);
        save_optional(writer, &mut self.pass)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Repeat")?;
        self.left = u64::try_from(reader.int()?).ok();
        self.fresh = reader.bool()?;
        restore_optional(reader, &mut self.pass)
    }
}
