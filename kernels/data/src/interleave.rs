//! Datasets whose function makes a dataset of each element: `FlatMapDataset`, `InterleaveDataset`, and the parallel kinds, which
//! read ahead in the datasets that are open but keep the order.

use crate::context::IteratorContext;
use crate::dataset::{
    Dataset, DatasetIterator, INFINITE, Spec, Tuple, UNKNOWN, dataset_ops, input_dataset, scalar, tensor_dataset,
};
use crate::function::{Captured, FunctionAttr, declared_order};
use crate::prefetch::{AUTOTUNE, Ahead, Bell};
use crate::state::{Reader, Writer};
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Result, Status, invalid_argument};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["FlatMapDataset"], |c| {
        let (spec, f) = (Spec::of(c)?, FunctionAttr::f(c)?);
        Ok(move |ctx: &Context<'_>| {
            Interleave::new(ctx, &spec, &f, Plan { cycle: 1, block: 1, ahead: 0, order: None, name: "FlatMap" })
        })
    });
    dataset_ops(registry, &["InterleaveDataset"], |c| {
        let (spec, f) = (Spec::of(c)?, FunctionAttr::f(c)?);
        let first = c.input_range("cycle_length")?.start;
        Ok(move |ctx: &Context<'_>| {
            let cycle = match scalar::<i64>(ctx, first, "cycle_length")? {
                AUTOTUNE => ctx.device().pool().threads(),
                _ => positive(ctx, first, "cycle_length", "cycle_length must be greater than zero.")?,
            };
            let block = positive(ctx, first + 1, "block_length", "block_length must be greater than zero.")?;
            Interleave::new(ctx, &spec, &f, Plan { cycle, block, ahead: 0, order: None, name: "Interleave" })
        })
    });
    let with_calls = ["ParallelInterleaveDatasetV2", "ParallelInterleaveDatasetV3", "ParallelInterleaveDatasetV4"];
    for op in with_calls {
        dataset_ops(registry, &[op], move |c| {
            let (spec, f) = (Spec::of(c)?, FunctionAttr::f(c)?);
            let first = c.input_range("cycle_length")?.start;
            let calls = c.input_range("num_parallel_calls")?.start;
            let buffer = if op == "ParallelInterleaveDatasetV4" { Some(first + 2) } else { None };
            let order = declared_order(c)?;
            Ok(move |ctx: &Context<'_>| {
                let plan = Plan { order, ..parallel_plan(ctx, first, calls, buffer)? };
                Interleave::new(ctx, &spec, &f, plan)
            })
        });
    }
    for op in
        ["ParallelInterleaveDataset", "ExperimentalParallelInterleaveDataset", "LegacyParallelInterleaveDatasetV2"]
    {
        dataset_ops(registry, &[op], move |c| {
            let (spec, f) = (Spec::of(c)?, FunctionAttr::f(c)?);
            let first = c.input_range("cycle_length")?.start;
            let buffer = c.input_range("buffer_output_elements")?.start;
            let sloppy = if op == "LegacyParallelInterleaveDatasetV2" { None } else { Some(first + 2) };
            let order = declared_order(c)?;
            Ok(move |ctx: &Context<'_>| {
                let cycle = positive(ctx, first, "cycle_length", "`cycle_length` must be > 0")?;
                let block = positive(ctx, first + 1, "block_length", "`block_length` must be > 0")?;
                let ahead = positive(ctx, buffer, "buffer_output_elements", "`buffer_output_elements` must be > 0")?;
                if scalar::<i64>(ctx, buffer + 1, "prefetch_input_elements")? < 0 {
                    return Err(invalid_argument!("`prefetch_input_elements` must be >= 0"));
                }
                let order = match sloppy {
                    Some(i) => Some(!scalar::<bool>(ctx, i, "sloppy")?),
                    None => order,
                };
                Interleave::new(ctx, &spec, &f, Plan { cycle, block, ahead, order, name: "LegacyParallelInterleave" })
            })
        });
    }
}

/// How datasets are interleaved: how many at a time, how many elements of each in a row, and how many are read ahead of need.
#[derive(Clone, Copy)]
struct Plan {
    cycle: usize,
    block: usize,
    ahead: usize,
    /// Whether the turns are kept, where the node says it.
    order: Option<bool>,
    name: &'static str,
}

fn positive(ctx: &Context<'_>, i: usize, name: &str, wrong: &str) -> Result<usize> {
    match usize::try_from(scalar::<i64>(ctx, i, name)?) {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(invalid_argument!("{wrong}")),
    }
}

/// Threads for each dataset that is open at a time, where their number is left to choose.
const THREADS_PER_TURN: i64 = 3;
/// Elements read ahead of each open dataset where the number is left to choose.
const TUNED_AHEAD: i64 = 4;

fn parallel_plan(ctx: &Context<'_>, first: usize, calls: usize, buffer: Option<usize>) -> Result<Plan> {
    let block = positive(ctx, first + 1, "block_length", "`block_length` must be > 0")?;
    let mut ahead = i64::try_from(block).unwrap_or(1).max(TUNED_AHEAD);
    if let Some(buffer) = buffer {
        let elements: i64 = scalar(ctx, buffer, "buffer_output_elements")?;
        if elements != AUTOTUNE && elements <= 0 {
            return Err(invalid_argument!("`buffer_output_elements` must be {AUTOTUNE} or > 0 but is {elements}"));
        }
        let inputs: i64 = scalar(ctx, buffer + 1, "prefetch_input_elements")?;
        if inputs < AUTOTUNE {
            return Err(invalid_argument!("`prefetch_input_elements` must be {AUTOTUNE} or >= 0 but is {inputs}"));
        }
        if elements > 0 {
            ahead = elements;
        }
    }
    let calls: i64 = scalar(ctx, calls, "num_parallel_calls")?;
    if calls != AUTOTUNE && calls <= 0 {
        return Err(invalid_argument!("num_parallel_calls must be greater than zero."));
    }
    let cycle: i64 = scalar(ctx, first, "cycle_length")?;
    let threads = i64::try_from(ctx.device().pool().threads()).unwrap_or(1);
    let cycle = match (cycle, calls) {
        (AUTOTUNE, AUTOTUNE) => threads / THREADS_PER_TURN + i64::from(threads % THREADS_PER_TURN != 0),
        (AUTOTUNE, calls) => calls.min(threads),
        (cycle, _) => cycle,
    };
    if cycle <= 0 {
        return Err(invalid_argument!("`cycle_length` must be > 0"));
    }
    if calls > cycle {
        return Err(invalid_argument!("num_parallel_calls must less than or equal to cycle_length."));
    }
    let size = |n: i64| usize::try_from(n).unwrap_or(1);
    Ok(Plan { cycle: size(cycle), block, ahead: size(ahead), order: None, name: "ParallelInterleave" })
}

/// The elements of the datasets that a function makes of the input's elements, taken in turns.
struct Interleave {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    f: Captured,
    plan: Plan,
}

impl Interleave {
    fn new(ctx: &Context<'_>, spec: &Arc<Spec>, f: &FunctionAttr, plan: Plan) -> Result<Interleave> {
        Ok(Interleave { spec: spec.clone(), input: input_dataset(ctx, 0)?, f: f.capture(ctx)?, plan })
    }
}

impl Dataset for Interleave {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        // Without end if the input is, unless every dataset is empty, as TensorFlow counts.
        if self.input.cardinality() == INFINITE { INFINITE } else { UNKNOWN }
    }

    fn name(&self) -> &'static str {
        self.plan.name
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let sloppy = self.plan.ahead > 0 && !ctx.is_ordered(self.plan.order);
        Ok(Box::new(InterleaveIterator {
            bell: sloppy.then(Arc::default),
            ctx: ctx.clone(),
            input: Some(self.input.iterator(ctx)?),
            f: self.f.clone(),
            plan: self.plan,
            turns: Vec::new(),
            open: 0,
            turn: 0,
            taken: 0,
        }))
    }
}

/// A place in the cycle.
enum Turn {
    Empty,
    /// What went wrong before it could be opened, and what it is after that has been told.
    Failed(VecDeque<Status>, Box<Turn>),
    Open {
        /// What the function made the dataset of, for saving.
        element: Tuple,
        iterator: Box<dyn DatasetIterator>,
    },
}

/// Places that are read ahead of their first turn: each may hold a thread.
const MOST_BEGUN: usize = 64;

/// Failures that are kept for one place.
const MOST_FAILURES: usize = 16;

/// A place where things went wrong first.
fn after(failures: VecDeque<Status>, turn: Turn) -> Turn {
    if failures.is_empty() { turn } else { Turn::Failed(failures, Box::new(turn)) }
}

impl Turn {
    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        match self {
            Turn::Empty => writer.int(0),
            Turn::Failed(failures, next) => {
                writer.int(1);
                writer.size(failures.len());
                failures.iter().for_each(|error| writer.outcome(&Err(error.clone())));
                next.save(writer)?;
            }
            Turn::Open { element, iterator } => {
                writer.int(2);
                writer.tuple(element);
                iterator.save(writer)?;
            }
        }
        Ok(())
    }

    fn begin(&self) -> Result<()> {
        match self {
            Turn::Empty => Ok(()),
            Turn::Failed(_, next) => next.begin(),
            Turn::Open { iterator, .. } => iterator.begin(),
        }
    }
}

struct InterleaveIterator {
    /// Rung by those that are open, where whoever is ready may go first.
    bell: Option<Arc<Bell>>,
    ctx: IteratorContext,
    input: Option<Box<dyn DatasetIterator>>,
    f: Captured,
    plan: Plan,
    /// Grows up to the length of the cycle.
    turns: Vec<Turn>,
    /// How many places are not empty.
    open: usize,
    turn: usize,
    /// Elements taken from the current place in a row.
    taken: usize,
}

impl InterleaveIterator {
    /// The iterator over the dataset that the function makes of an element.
    fn iterator(&self, element: &Tuple) -> Result<Box<dyn DatasetIterator>> {
        let results = self.f.call(&self.ctx, element.clone())?;
        let dataset = match results.as_slice() {
            [result] if result.dtype() == graphmill_tensor::DType::Variant && result.shape().is_scalar() => {
                tensor_dataset(result, self.ctx.device())?
            }
            _ => return Err(invalid_argument!("Function must return a single scalar of dtype DT_VARIANT.")),
        };
        if self.plan.ahead == 0 {
            return dataset.iterator(&self.ctx);
        }
        let own = self.ctx.child();
        let iterator = dataset.iterator(&own)?;
        Ok(Box::new(Ahead::new(own, iterator, self.plan.ahead, self.bell.clone())))
    }

    /// What the next element of the input opens; empty at its end. Ahead of need, a failure is kept together with what comes
    /// after it, as whoever has its turn then goes on at the same place.
    fn open_next(&mut self) -> Turn {
        let mut failures = VecDeque::new();
        loop {
            let Some(input) = &mut self.input else { return after(failures, Turn::Empty) };
            let opened = match input.next() {
                Ok(Some(element)) => self.iterator(&element).map(|iterator| (element, iterator)),
                Ok(None) => {
                    self.input = None;
                    continue;
                }
                Err(error) => Err(error),
            };
            match opened {
                Ok((element, iterator)) => return after(failures, Turn::Open { element, iterator }),
                Err(error) => failures.push_back(error),
            }
            // An input may fail without end.
            if self.plan.ahead == 0 || failures.len() >= MOST_FAILURES {
                return after(failures, Turn::Empty);
            }
        }
    }

    /// Puts what the next element of the input opens into a place.
    fn refill(&mut self, place: usize) -> Result<()> {
        let turn = self.open_next();
        if !matches!(turn, Turn::Empty) {
            self.open += 1;
        }
        if self.plan.ahead > 0 && place < MOST_BEGUN {
            turn.begin()?;
        }
        match self.turns.get_mut(place) {
            Some(slot) => *slot = turn,
            None => self.turns.push(turn),
        }
        Ok(())
    }

    fn restore_turn(&self, reader: &mut Reader) -> Result<Turn> {
        let mut failures = VecDeque::new();
        loop {
            match reader.int()? {
                0 => return Ok(after(failures, Turn::Empty)),
                1 => {
                    for _ in 0..reader.size()? {
                        failures.extend(reader.outcome()?.err());
                    }
                }
                _ => {
                    let element = reader.tuple()?;
                    let mut iterator = self.iterator(&element)?;
                    iterator.restore(reader)?;
                    return Ok(after(failures, Turn::Open { element, iterator }));
                }
            }
        }
    }

    fn advance(&mut self) {
        self.taken = 0;
        self.turn = (self.turn + 1) % self.plan.cycle;
    }

    /// Where the order is open, lets somebody go first who is ready.
    fn choose(&mut self) -> Result<()> {
        let Some(bell) = &self.bell else { return Ok(()) };
        loop {
            let rung = bell.count();
            let waits = |turn: &Turn| matches!(turn, Turn::Open { iterator, .. } if !iterator.is_ready());
            // Empty places are for the usual course of things.
            let places = (0..self.turns.len()).map(|i| (self.turn + i) % self.turns.len());
            let mut open = places.filter(|&place| !matches!(self.turns[place], Turn::Empty));
            match open.clone().find(|&place| !waits(&self.turns[place])) {
                Some(place) => {
                    if place != self.turn {
                        (self.turn, self.taken) = (place, 0);
                    }
                    return Ok(());
                }
                None if open.next().is_none() => return Ok(()),
                None => {
                    self.ctx.check()?;
                    // Of those that have not begun, as there are many or they have been restored, nobody would ring.
                    self.turns.iter().try_for_each(Turn::begin)?;
                    bell.wait(rung);
                }
            }
        }
    }

    /// Opens what is read ahead from the start.
    fn open_all(&mut self) -> Result<()> {
        while self.plan.ahead > 0 && self.turns.len() < self.plan.cycle && self.input.is_some() {
            self.refill(self.turns.len())?;
        }
        Ok(())
    }
}

impl DatasetIterator for InterleaveIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        self.open_all()?;
        while self.input.is_some() || self.open > 0 {
            self.choose()?;
            match self.turns.get_mut(self.turn) {
                Some(Turn::Open { iterator, .. }) => {
                    if let Some(element) = iterator.next()? {
                        self.taken += 1;
                        if self.taken == self.plan.block {
                            self.advance();
                        }
                        return Ok(Some(element));
                    }
                    self.open -= 1;
                    let place = self.turn;
                    self.turns[place] = Turn::Empty;
                    if self.plan.ahead > 0 {
                        self.refill(place)?;
                    }
                    self.advance();
                }
                Some(turn @ Turn::Failed(..)) => {
                    if let Turn::Failed(failures, next) = turn {
                        if let Some(error) = failures.pop_front() {
                            return Err(error);
                        }
                        *turn = std::mem::replace(&mut **next, Turn::Empty);
                    }
                    if let Turn::Empty = turn {
                        self.open -= 1;
                    }
                }
                _ if self.input.is_some() => {
                    self.ctx.check()?;
                    self.refill(self.turn)?;
                }
                _ => self.advance(),
            }
        }
        Ok(None)
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin(self.plan.name);
        writer.size(self.turn);
        writer.size(self.taken);
        writer.size(self.turns.len());
        self.turns.iter_mut().try_for_each(|turn| turn.save(writer))?;
        crate::counting::save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin(self.plan.name)?;
        self.turn = reader.size()?;
        self.taken = reader.size()?;
        let turns = reader.size()?;
        if turns > self.plan.cycle || self.turn >= self.plan.cycle {
            return Err(invalid_argument!("The saved state of the iterator belongs to a longer cycle"));
        }
        for _ in 0..turns {
            let turn = self.restore_turn(reader)?;
            self.open += usize::from(!matches!(turn, Turn::Empty));
            self.turns.push(turn);
        }
        crate::counting::restore_optional(reader, &mut self.input)
    }
}
