//! Datasets that call a function on each element in turn: `MapDataset`, `ScanDataset`, `FilterDataset`, `TakeWhileDataset`.

use crate::context::IteratorContext;
use crate::counting::{restore_optional, save_optional};
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, UNKNOWN, dataset_ops, input_dataset, inputs};
use crate::function::{Captured, FunctionAttr, end_or_error};
use crate::state::{Reader, Writer};
use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["MapDataset"], |c| {
        let (spec, f, preserve) = (Spec::of(c)?, FunctionAttr::f(c)?, preserve_cardinality(c)?);
        Ok(move |ctx: &Context<'_>| {
            Ok(Map { spec: spec.clone(), input: input_dataset(ctx, 0)?, f: f.capture(ctx)?, preserve })
        })
    });
    dataset_ops(registry, &["ScanDataset", "ExperimentalScanDataset"], |c| {
        let (spec, f, preserve) = (Spec::of(c)?, FunctionAttr::f(c)?, preserve_cardinality(c)?);
        let (state, state_types) = (c.input_range("initial_state")?, c.attrs().dtype_list("Tstate")?);
        Ok(move |ctx: &Context<'_>| {
            let rules =
                ScanRules { spec: spec.clone(), state_types: state_types.clone(), f: f.capture(ctx)?, preserve };
            let state = inputs(ctx, state.clone())?;
            Ok(Scan { rules: Arc::new(rules), input: input_dataset(ctx, 0)?, state })
        })
    });
    for (ops, ends) in [
        (&["FilterDataset", "ParallelFilterDataset"][..], false),
        (&["TakeWhileDataset", "ExperimentalTakeWhileDataset"], true),
    ] {
        dataset_ops(registry, ops, move |c| {
            let predicate = FunctionAttr::predicate(c)?;
            Ok(move |ctx: &Context<'_>| {
                let predicate = predicate.capture(ctx)?;
                if predicate.num_outputs() != 1 {
                    return Err(invalid_argument!("predicate function has more than one return value."));
                }
                Ok(Filter { input: input_dataset(ctx, 0)?, predicate, ends })
            })
        });
    }
}

/// Whether the attribute says that a function gives as many elements as it gets.
pub(crate) fn preserve_cardinality(c: &Construction<'_>) -> Result<bool> {
    Ok(c.attrs().has("preserve_cardinality") && c.attrs().bool("preserve_cardinality")?)
}

/// A function of each element.
struct Map {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    f: Captured,
    preserve: bool,
}

impl Dataset for Map {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        if self.preserve { self.input.cardinality() } else { UNKNOWN }
    }

    fn name(&self) -> &'static str {
        "Map"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let input = self.input.iterator(ctx)?;
        Ok(Box::new(MapIterator { ctx: ctx.clone(), input, f: self.f.clone(), preserve: self.preserve }))
    }
}

struct MapIterator {
    ctx: IteratorContext,
    input: Box<dyn DatasetIterator>,
    f: Captured,
    preserve: bool,
}

impl DatasetIterator for MapIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        match self.input.next()? {
            Some(element) => end_or_error(self.f.call(&self.ctx, element), self.preserve),
            None => Ok(None),
        }
    }

    fn never_waits(&self) -> bool {
        !self.f.may_wait() && self.input.never_waits()
    }

    fn is_ready(&self) -> bool {
        !self.f.may_wait() && self.input.is_ready()
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Map");
        self.input.save(writer)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Map")?;
        self.input.restore(reader)
    }
}

/// A function of each element and of a state, which gives the next state and an element.
struct Scan {
    rules: Arc<ScanRules>,
    input: Arc<dyn Dataset>,
    state: Vec<Tensor>,
}

struct ScanRules {
    spec: Arc<Spec>,
    state_types: Vec<DType>,
    f: Captured,
    preserve: bool,
}

impl Dataset for Scan {
    fn spec(&self) -> &Arc<Spec> {
        &self.rules.spec
    }

    fn cardinality(&self) -> i64 {
        if self.rules.preserve { self.input.cardinality() } else { UNKNOWN }
    }

    fn name(&self) -> &'static str {
        "Scan"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let input = self.input.iterator(ctx)?;
        Ok(Box::new(ScanIterator { ctx: ctx.clone(), input, rules: self.rules.clone(), state: self.state.clone() }))
    }
}

struct ScanIterator {
    ctx: IteratorContext,
    input: Box<dyn DatasetIterator>,
    rules: Arc<ScanRules>,
    state: Vec<Tensor>,
}

impl ScanIterator {
    /// Splits what the function gave into the next state and the element.
    fn split(&mut self, mut results: Tuple) -> Result<Tuple> {
        let ScanRules { spec, state_types, .. } = &*self.rules;
        let wrong_type = |i: usize, expected: DType, got: DType| {
            invalid_argument!("Got wrong type for scan_func return value {i} (expected {expected}, got {got}).")
        };
        if results.len() != state_types.len() + spec.types.len() {
            return Err(invalid_argument!(
                "scan_func returned {} values, {} were expected",
                results.len(),
                state_types.len() + spec.types.len()
            ));
        }
        let declared = state_types.iter().chain(&spec.types);
        for (i, (result, &expected)) in results.iter().zip(declared).enumerate() {
            if result.dtype() != expected {
                return Err(wrong_type(i, expected, result.dtype()));
            }
        }
        let element = results.split_off(state_types.len());
        for (i, (part, shape)) in element.iter().zip(&spec.shapes).enumerate() {
            if !shape.is_compatible_with(part.shape()) {
                return Err(invalid_argument!(
                    "Got wrong shape for scan_func return value {} (expected {shape}, got {}).",
                    state_types.len() + i,
                    PartialShape::from(part.shape())
                ));
            }
        }
        self.state = results;
        Ok(element)
    }
}

impl DatasetIterator for ScanIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let Some(element) = self.input.next()? else { return Ok(None) };
        let mut args = self.state.clone();
        args.extend(element);
        match end_or_error(self.rules.f.call(&self.ctx, args), self.rules.preserve)? {
            Some(results) => self.split(results).map(Some),
            None => Ok(None),
        }
    }

    fn never_waits(&self) -> bool {
        !self.rules.f.may_wait() && self.input.never_waits()
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Scan");
        writer.tuple(&self.state);
        self.input.save(writer)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Scan")?;
        self.state = reader.tuple()?;
        self.input.restore(reader)
    }
}

/// The elements for which a predicate holds: all of them, or those before the first for which it does not.
struct Filter {
    input: Arc<dyn Dataset>,
    predicate: Captured,
    ends: bool,
}

impl Dataset for Filter {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn name(&self) -> &'static str {
        if self.ends { "TakeWhile" } else { "Filter" }
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(FilterIterator {
            ctx: ctx.clone(),
            input: Some(self.input.iterator(ctx)?),
            predicate: self.predicate.clone(),
            ends: self.ends,
        }))
    }
}

struct FilterIterator {
    ctx: IteratorContext,
    input: Option<Box<dyn DatasetIterator>>,
    predicate: Captured,
    ends: bool,
}

impl FilterIterator {
    fn wrong(ends: bool) -> graphmill_tensor::Status {
        match ends {
            true => invalid_argument!("`predicate` must returns a scalar bool tensor."),
            false => invalid_argument!("Filter predicate `f` must return a scalar bool."),
        }
    }
}

impl DatasetIterator for FilterIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        while let Some(input) = &mut self.input {
            let Some(element) = input.next()? else {
                self.input = None;
                break;
            };
            let wrong = || FilterIterator::wrong(self.ends);
            let holds = self.predicate.call_scalar(&self.ctx, element.clone(), wrong);
            match holds {
                Ok(true) => return Ok(Some(element)),
                Ok(false) if self.ends => self.input = None,
                // A filter over an input without end must be stoppable.
                Ok(false) => self.ctx.check()?,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn never_waits(&self) -> bool {
        !self.predicate.may_wait() && self.ends && self.input.as_ref().is_none_or(|input| input.never_waits())
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Filter");
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Filter")?;
        restore_optional(reader, &mut self.input)
    }
}
