//! Datasets that pass elements on under conditions: `AssertCardinalityDataset`, `AssertNextDataset`, `IgnoreErrorsDataset`,
//! `SleepDataset`, `UniqueDataset`.

use crate::context::{IteratorContext, stopped};
use crate::counting::{restore_optional, save_optional};
use crate::dataset::{Dataset, DatasetIterator, INFINITE, Spec, Tuple, UNKNOWN, dataset_ops, input_dataset, scalar};
use crate::state::{Reader, Writer};
use graphmill_runtime::{CallbackId, Context, Registry};
use graphmill_tensor::{Bytes, DType, Result, cancelled, failed_precondition, invalid_argument};
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["AssertCardinalityDataset"], |_| {
        Ok(|ctx: &Context<'_>| {
            Ok(AssertCardinality { input: input_dataset(ctx, 0)?, cardinality: scalar(ctx, 1, "cardinality")? })
        })
    });
    dataset_ops(registry, &["AssertNextDataset", "ExperimentalAssertNextDataset"], |_| {
        Ok(|ctx: &Context<'_>| {
            let transformations = ctx.input(1)?.strings()?;
            let transformations = transformations.iter().map(|t| String::from_utf8_lossy(t).into_owned()).collect();
            Ok(AssertNext { input: input_dataset(ctx, 0)?, transformations })
        })
    });
    dataset_ops(registry, &["IgnoreErrorsDataset", "ExperimentalIgnoreErrorsDataset"], |_| {
        Ok(|ctx: &Context<'_>| Ok(IgnoreErrors(input_dataset(ctx, 0)?)))
    });
    dataset_ops(registry, &["SleepDataset", "ExperimentalSleepDataset"], |_| {
        Ok(|ctx: &Context<'_>| match u64::try_from(scalar::<i64>(ctx, 1, "sleep_microseconds")?) {
            Ok(micros) => Ok(Sleep { input: input_dataset(ctx, 0)?, pause: Duration::from_micros(micros) }),
            Err(_) => Err(invalid_argument!("`sleep_microseconds` must be >= 0")),
        })
    });
    dataset_ops(registry, &["UniqueDataset", "ExperimentalUniqueDataset"], |_| {
        Ok(|ctx: &Context<'_>| {
            let input = input_dataset(ctx, 0)?;
            match input.spec().types.as_slice() {
                [DType::Int32 | DType::Int64 | DType::String] => Ok(Unique(input)),
                [_] => Err(invalid_argument!(
                    "UniqueDataset only supports inputs with a single `tf.int32`, `tf.int64`, or `tf.string` component."
                )),
                _ => Err(invalid_argument!("UniqueDataset only supports inputs with a single component.")),
            }
        })
    });
}

/// The elements, of which there must be so many.
struct AssertCardinality {
    input: Arc<dyn Dataset>,
    cardinality: i64,
}

impl Dataset for AssertCardinality {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        self.cardinality
    }

    fn name(&self) -> &'static str {
        "AssertCardinality"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let input = self.input.iterator(ctx)?;
        Ok(Box::new(AssertCardinalityIterator { input, cardinality: self.cardinality, count: 0 }))
    }
}

struct AssertCardinalityIterator {
    input: Box<dyn DatasetIterator>,
    cardinality: i64,
    count: i64,
}

fn elements(n: i64) -> String {
    match n {
        INFINITE => "an infinite number of elements".to_owned(),
        1 => "1 element".to_owned(),
        n => format!("{n} elements"),
    }
}

impl DatasetIterator for AssertCardinalityIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let next = self.input.next()?;
        let (expected, count) = (elements(self.cardinality), self.count);
        let wrong = |found: &str, n| {
            failed_precondition!(
                "Input dataset was expected to contain {expected} but contained {found} {}.",
                elements(n)
            )
        };
        match next {
            Some(_) => {
                self.count += 1;
                if self.cardinality >= 0 && self.count > self.cardinality {
                    return Err(wrong("at least", self.count));
                }
            }
            None if self.cardinality != UNKNOWN && count != self.cardinality => return Err(wrong("only", count)),
            None => {}
        }
        Ok(next)
    }

    fn never_waits(&self) -> bool {
        self.input.never_waits()
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("AssertCardinality");
        writer.int(self.count);
        self.input.save(writer)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("AssertCardinality")?;
        self.count = reader.int()?;
        self.input.restore(reader)
    }
}

/// The elements, if certain transformations follow.
struct AssertNext {
    input: Arc<dyn Dataset>,
    transformations: Vec<String>,
}

impl Dataset for AssertNext {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }

    fn name(&self) -> &'static str {
        "AssertNext"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        // The first name is this dataset's own.
        let next: Vec<&str> = ctx.path().skip(1).collect();
        if self.transformations.len() > next.len() {
            return Err(invalid_argument!(
                "Asserted next {} transformations but encountered only {}.",
                self.transformations.len(),
                next.len()
            ));
        }
        for (i, (expected, found)) in self.transformations.iter().zip(next).enumerate() {
            if !matches_any_version(expected, found) {
                return Err(invalid_argument!(
                    "Asserted transformation matching {expected} at offset {i} but encountered {found} transformation \
                     instead."
                ));
            }
        }
        self.input.iterator(ctx)
    }
}

/// Whether a name is another one, or that one with a version (`V2`) and parameters in brackets behind it.
fn matches_any_version(expected: &str, found: &str) -> bool {
    let found = found.split('[').next().unwrap_or(found);
    match found.strip_prefix(expected) {
        Some("") => true,
        Some(version) => version.strip_prefix('V').is_some_and(|digits| digits.parse::<u32>().is_ok()),
        None => false,
    }
}

/// The elements, without those that fail.
struct IgnoreErrors(Arc<dyn Dataset>);

impl Dataset for IgnoreErrors {
    fn spec(&self) -> &Arc<Spec> {
        self.0.spec()
    }

    fn name(&self) -> &'static str {
        "IgnoreErrors"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(IgnoreErrorsIterator { ctx: ctx.clone(), input: Some(self.0.iterator(ctx)?) }))
    }
}

struct IgnoreErrorsIterator {
    ctx: IteratorContext,
    input: Option<Box<dyn DatasetIterator>>,
}

impl DatasetIterator for IgnoreErrorsIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        while let Some(input) = &mut self.input {
            match input.next() {
                Ok(Some(element)) => return Ok(Some(element)),
                Ok(None) => self.input = None,
                // A cancelled iterator fails for ever.
                Err(_) => self.ctx.check()?,
            }
        }
        Ok(None)
    }

    fn never_waits(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.never_waits())
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("IgnoreErrors");
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("IgnoreErrors")?;
        restore_optional(reader, &mut self.input)
    }
}

/// The elements, with a pause before each.
struct Sleep {
    input: Arc<dyn Dataset>,
    pause: Duration,
}

impl Dataset for Sleep {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }

    fn name(&self) -> &'static str {
        "Sleep"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let input = self.input.iterator(ctx)?;
        let alarm = Arc::new(Alarm::default());
        let ringing = alarm.clone();
        let callback = ctx.cancellation().register(move || ringing.ring());
        if callback.is_none() {
            return Err(stopped());
        }
        Ok(Box::new(SleepIterator { ctx: ctx.clone(), input, pause: self.pause, alarm, callback }))
    }
}

#[derive(Default)]
struct Alarm {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Alarm {
    fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }
}

struct SleepIterator {
    ctx: IteratorContext,
    input: Box<dyn DatasetIterator>,
    pause: Duration,
    alarm: Arc<Alarm>,
    callback: Option<CallbackId>,
}

impl Drop for SleepIterator {
    fn drop(&mut self) {
        if let Some(callback) = self.callback.take() {
            self.ctx.cancellation().deregister(callback);
        }
    }
}

impl DatasetIterator for SleepIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let mut rung = self.alarm.rung.lock();
        if let Some(end) = Instant::now().checked_add(self.pause) {
            while !*rung && !self.alarm.changed.wait_until(&mut rung, end).timed_out() {}
        }
        if *rung {
            return Err(cancelled!("Operation was cancelled"));
        }
        drop(rung);
        self.input.next()
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Sleep");
        self.input.save(writer)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Sleep")?;
        self.input.restore(reader)
    }
}

/// The elements, each only once.
struct Unique(Arc<dyn Dataset>);

impl Dataset for Unique {
    fn spec(&self) -> &Arc<Spec> {
        self.0.spec()
    }

    fn name(&self) -> &'static str {
        "Unique"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(UniqueIterator { input: self.0.iterator(ctx)?, seen: HashSet::new() }))
    }
}

struct UniqueIterator {
    input: Box<dyn DatasetIterator>,
    /// The shapes and elements of what has come, as bytes.
    seen: HashSet<Vec<u8>>,
}

/// What tells elements apart.
fn identity(element: &Tuple) -> Result<Vec<u8>> {
    let mut key = Vec::new();
    for tensor in element {
        for size in tensor.shape().dims() {
            key.extend_from_slice(&size.to_le_bytes());
        }
        match tensor.as_bytes() {
            Some(bytes) => key.extend_from_slice(bytes),
            None => tensor.strings()?.iter().for_each(|text: &Bytes| {
                key.extend_from_slice(&text.len().to_le_bytes());
                key.extend_from_slice(text);
            }),
        }
    }
    Ok(key)
}

impl DatasetIterator for UniqueIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        loop {
            let Some(element) = self.input.next()? else { return Ok(None) };
            if self.seen.insert(identity(&element)?) {
                return Ok(Some(element));
            }
        }
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Unique");
        writer.size(self.seen.len());
        self.seen.iter().for_each(|key| writer.text(key));
        self.input.save(writer)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Unique")?;
        for _ in 0..reader.size()? {
            let key = reader.text()?;
            self.seen.insert(key.to_vec());
        }
        self.input.restore(reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_name() {
        for (expected, found, same) in [
            ("Map", "Map", true),
            ("ParallelInterleave", "ParallelInterleaveV4", true),
            ("ParallelInterleave", "ParallelInterleaveV4[0]", true),
            ("Map", "MapAndBatch", false),
            ("Map", "Batch", false),
        ] {
            assert_eq!(matches_any_version(expected, found), same, "{expected} {found}");
        }
    }
}
