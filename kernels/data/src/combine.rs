//! Datasets of several: `ZipDataset`, `ConcatenateDataset`, `DirectedInterleaveDataset`.

use crate::context::IteratorContext;
use crate::counting::{restore_optional, save_optional};
use crate::dataset::{Dataset, DatasetIterator, INFINITE, Spec, Tuple, UNKNOWN, dataset_ops, input_dataset};
use crate::state::{Reader, Writer};
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{DType, Result, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["ZipDataset"], |_| {
        Ok(|ctx: &Context<'_>| {
            let inputs = (0..ctx.num_inputs()).map(|i| input_dataset(ctx, i)).collect::<Result<Vec<_>>>()?;
            let types = inputs.iter().flat_map(|d| d.spec().types.iter().copied()).collect();
            let shapes = inputs.iter().flat_map(|d| d.spec().shapes.iter().cloned()).collect();
            Ok(Zip { spec: Arc::new(Spec { types, shapes }), inputs })
        })
    });
    dataset_ops(registry, &["ConcatenateDataset"], |c| {
        let spec = Spec::of(c)?;
        Ok(move |ctx: &Context<'_>| {
            let parts = [input_dataset(ctx, 0)?, input_dataset(ctx, 1)?];
            check_same_types(&parts[0], &parts[1])?;
            Ok(Concatenate { spec: spec.clone(), parts })
        })
    });
    dataset_ops(registry, &["DirectedInterleaveDataset", "ExperimentalDirectedInterleaveDataset"], |c| {
        let spec = Spec::of(c)?;
        let stop_on_empty = c.attrs().has("stop_on_empty_dataset") && c.attrs().bool("stop_on_empty_dataset")?;
        Ok(move |ctx: &Context<'_>| DirectedInterleave::new(ctx, spec.clone(), stop_on_empty))
    });
}

fn type_list(types: &[DType]) -> String {
    types.iter().map(|t| t.name()).collect::<Vec<_>>().join(", ")
}

fn check_same_types(a: &Arc<dyn Dataset>, b: &Arc<dyn Dataset>) -> Result<()> {
    let (a, b) = (&a.spec().types, &b.spec().types);
    if a == b {
        return Ok(());
    }
    Err(invalid_argument!(
        "input dataset and dataset to concatenate have different output_types {} and {}",
        type_list(a),
        type_list(b)
    ))
}

/// Elements side by side, up to the end of the shortest.
struct Zip {
    spec: Arc<Spec>,
    inputs: Vec<Arc<dyn Dataset>>,
}

impl Dataset for Zip {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        let mut shortest = INFINITE;
        for n in self.inputs.iter().map(|input| input.cardinality()) {
            match (n, shortest) {
                (UNKNOWN, _) => return UNKNOWN,
                (INFINITE, _) => {}
                (n, INFINITE) => shortest = n,
                (n, other) => shortest = n.min(other),
            }
        }
        shortest
    }

    fn name(&self) -> &'static str {
        "Zip"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let inputs = self.inputs.iter().map(|input| input.iterator(ctx)).collect::<Result<_>>()?;
        Ok(Box::new(ZipIterator(inputs)))
    }
}

/// The inputs; none once one of them has ended.
struct ZipIterator(Vec<Box<dyn DatasetIterator>>);

impl DatasetIterator for ZipIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut element = Tuple::new();
        let (mut failure, mut ended) = (None, false);
        // After an end or an error the others move on as well: inputs stay in step, and those that end together see their end.
        for input in &mut self.0 {
            match input.next() {
                Ok(Some(part)) => element.extend(part),
                Ok(None) => ended = true,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if ended {
            self.0.clear();
            return Ok(None);
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(Some(element)),
        }
    }

    fn never_waits(&self) -> bool {
        self.0.iter().all(|input| input.never_waits())
    }

    fn is_ready(&self) -> bool {
        self.0.iter().all(|input| input.is_ready())
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Zip");
        writer.bool(!self.0.is_empty());
        self.0.iter_mut().try_for_each(|input| input.save(writer))
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Zip")?;
        if !reader.bool()? {
            self.0.clear();
        }
        self.0.iter_mut().try_for_each(|input| input.restore(reader))
    }
}

/// One dataset after the other.
struct Concatenate {
    spec: Arc<Spec>,
    parts: [Arc<dyn Dataset>; 2],
}

impl Dataset for Concatenate {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        let [a, b] = [self.parts[0].cardinality(), self.parts[1].cardinality()];
        match (a, b) {
            (INFINITE, _) | (_, INFINITE) => INFINITE,
            (UNKNOWN, _) | (_, UNKNOWN) => UNKNOWN,
            (a, b) => a.saturating_add(b),
        }
    }

    fn name(&self) -> &'static str {
        "Concatenate"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let current = Some(self.parts[0].iterator(ctx)?);
        Ok(Box::new(ConcatenateIterator { ctx: ctx.clone(), second: self.parts[1].clone(), current, in_second: false }))
    }
}

struct ConcatenateIterator {
    ctx: IteratorContext,
    second: Arc<dyn Dataset>,
    current: Option<Box<dyn DatasetIterator>>,
    in_second: bool,
}

impl DatasetIterator for ConcatenateIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        while let Some(current) = &mut self.current {
            if let Some(element) = current.next()? {
                return Ok(Some(element));
            }
            self.current = None;
            if !self.in_second {
                self.in_second = true;
                self.current = Some(self.second.iterator(&self.ctx)?);
            }
        }
        Ok(None)
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Concatenate");
        writer.bool(self.in_second);
        save_optional(writer, &mut self.current)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Concatenate")?;
        self.in_second = reader.bool()?;
        if self.in_second {
            self.current = Some(self.second.iterator(&self.ctx)?);
        }
        restore_optional(reader, &mut self.current)
    }
}

/// Elements of several datasets in the order that a dataset of indices gives.
struct DirectedInterleave {
    spec: Arc<Spec>,
    selector: Arc<dyn Dataset>,
    inputs: Vec<Arc<dyn Dataset>>,
    stop_on_empty: bool,
}

impl DirectedInterleave {
    fn new(ctx: &Context<'_>, spec: Arc<Spec>, stop_on_empty: bool) -> Result<DirectedInterleave> {
        let selector = input_dataset(ctx, 0)?;
        if selector.spec().types != [DType::Int64] {
            return Err(invalid_argument!("The selector dataset must yield a single scalar of dtype int64."));
        }
        let scalar = selector.spec().shapes.first().and_then(|shape| shape.rank());
        if scalar.is_some_and(|rank| rank != 0) {
            return Err(invalid_argument!("The selector dataset must yield a single scalar of dtype int64."));
        }
        let inputs = (1..ctx.num_inputs()).map(|i| input_dataset(ctx, i)).collect::<Result<Vec<_>>>()?;
        for (i, input) in inputs.iter().enumerate() {
            if input.spec().types != inputs[0].spec().types {
                return Err(invalid_argument!(
                    "All inputs must have the same output_dtypes. First input has types {}, and input {i} has types {}",
                    type_list(&inputs[0].spec().types),
                    type_list(&input.spec().types)
                ));
            }
        }
        Ok(DirectedInterleave { spec, selector, inputs, stop_on_empty })
    }
}

impl Dataset for DirectedInterleave {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        // As TensorFlow counts: exact only where no input can end the whole early.
        if self.selector.cardinality() == 0 {
            return 0;
        }
        let counts: Vec<i64> = self.inputs.iter().map(|input| input.cardinality()).collect();
        if self.stop_on_empty {
            if counts.iter().chain([&self.selector.cardinality()]).all(|&n| n == INFINITE) {
                return INFINITE;
            }
            return UNKNOWN;
        }
        if counts.contains(&INFINITE) && self.selector.cardinality() == INFINITE {
            return INFINITE;
        }
        if counts.contains(&UNKNOWN) || self.selector.cardinality() != INFINITE {
            return UNKNOWN;
        }
        counts.iter().sum()
    }

    fn name(&self) -> &'static str {
        "DirectedInterleave"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let selector = Some(self.selector.iterator(ctx)?);
        let inputs = self.inputs.iter().map(|input| input.iterator(ctx).map(Some)).collect::<Result<_>>()?;
        Ok(Box::new(DirectedIterator { selector, inputs, stop_on_empty: self.stop_on_empty }))
    }
}

struct DirectedIterator {
    selector: Option<Box<dyn DatasetIterator>>,
    /// Each gone once it has ended.
    inputs: Vec<Option<Box<dyn DatasetIterator>>>,
    stop_on_empty: bool,
}

impl DatasetIterator for DirectedIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        while let Some(selector) = &mut self.selector {
            let Some(choice) = selector.next()? else { break };
            let choice = match choice.first() {
                Some(tensor) => tensor.scalar_value::<i64>()?,
                None => return Err(invalid_argument!("The selector dataset gave an element without a component")),
            };
            let count = self.inputs.len();
            let Some(input) = usize::try_from(choice).ok().and_then(|choice| self.inputs.get_mut(choice)) else {
                return Err(invalid_argument!("Selector index out of range: {choice} >= {count}"));
            };
            let Some(iterator) = input else { continue };
            if let Some(element) = iterator.next()? {
                return Ok(Some(element));
            }
            *input = None;
            if self.stop_on_empty || self.inputs.iter().all(Option::is_none) {
                break;
            }
        }
        self.selector = None;
        self.inputs.iter_mut().for_each(|input| *input = None);
        Ok(None)
    }

    fn never_waits(&self) -> bool {
        let inputs = self.inputs.iter().chain([&self.selector]).flatten();
        inputs.into_iter().all(|input| input.never_waits())
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("DirectedInterleave");
        save_optional(writer, &mut self.selector)?;
        self.inputs.iter_mut().try_for_each(|input| save_optional(writer, input))
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("DirectedInterleave")?;
        restore_optional(reader, &mut self.selector)?;
        self.inputs.iter_mut().try_for_each(|input| restore_optional(reader, input))
    }
}
