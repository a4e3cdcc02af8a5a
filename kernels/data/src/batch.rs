//! `BatchDataset`, `BatchDatasetV2`, `ParallelBatchDataset`, and `UnbatchDataset`.

use crate::context::IteratorContext;
use crate::counting::{restore_optional, save_optional};
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, UNKNOWN, dataset_ops, input_dataset, scalar};
use crate::state::{Reader, Writer};
use crate::tuple::{row, stack};
use graphmill_graph::PartialShape;
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Result, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    for (op, remainder) in [("BatchDataset", None), ("BatchDatasetV2", Some(2)), ("ParallelBatchDataset", Some(3))] {
        dataset_ops(registry, &[op], move |c| {
            let spec = Spec::of(c)?;
            let parallel = op == "ParallelBatchDataset";
            Ok(move |ctx: &Context<'_>| {
                let drop_remainder = remainder.map_or(Ok(false), |i| scalar(ctx, i, "drop_remainder"))?;
                let name = if parallel { "ParallelBatch" } else { "Batch" };
                Ok(Batch {
                    spec: spec.clone(),
                    input: input_dataset(ctx, 0)?,
                    size: batch_size(ctx, 1)?,
                    drop_remainder,
                    name,
                })
            })
        });
    }
    dataset_ops(registry, &["UnbatchDataset", "ExperimentalUnbatchDataset"], |_| {
        Ok(|ctx: &Context<'_>| Unbatch::new(input_dataset(ctx, 0)?))
    });
}

/// The size of batches in an input.
pub(crate) fn batch_size(ctx: &Context<'_>, i: usize) -> Result<usize> {
    match usize::try_from(scalar::<i64>(ctx, i, "batch_size")?) {
        Ok(size) if size > 0 => Ok(size),
        _ => Err(invalid_argument!("Batch size must be greater than zero.")),
    }
}

/// The number of batches of `size` that `elements` make.
pub(crate) fn batch_count(elements: i64, size: usize, drop_remainder: bool) -> i64 {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    if elements < 0 { elements } else { elements / size + i64::from(!drop_remainder && elements % size != 0) }
}

/// How many elements to make room for at once: a batch size may be any number.
pub(crate) const RESERVED: usize = 4096;

/// The next elements, at most `size`; fewer at the end, where `input` becomes `None`.
pub(crate) fn collect(input: &mut Option<Box<dyn DatasetIterator>>, size: usize) -> Result<Vec<Tuple>> {
    let Some(iterator) = input else { return Ok(Vec::new()) };
    let mut elements = Vec::with_capacity(size.min(RESERVED));
    while elements.len() < size {
        match iterator.next()? {
            Some(element) => elements.push(element),
            None => {
                *input = None;
                break;
            }
        }
    }
    Ok(elements)
}

/// Elements stacked, `size` at a time.
struct Batch {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    size: usize,
    drop_remainder: bool,
    name: &'static str,
}

impl Dataset for Batch {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        batch_count(self.input.cardinality(), self.size, self.drop_remainder)
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let input = Some(self.input.iterator(ctx)?);
        Ok(Box::new(BatchIterator { input, size: self.size, drop_remainder: self.drop_remainder }))
    }
}

struct BatchIterator {
    input: Option<Box<dyn DatasetIterator>>,
    size: usize,
    drop_remainder: bool,
}

impl DatasetIterator for BatchIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let elements = collect(&mut self.input, self.size)?;
        if elements.is_empty() || (self.drop_remainder && elements.len() < self.size) {
            return Ok(None);
        }
        stack(&elements).map(Some)
    }

    fn never_waits(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.never_waits())
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Batch");
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Batch")?;
        restore_optional(reader, &mut self.input)
    }
}

/// The rows of each element.
struct Unbatch {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    /// The rows of an element, where they are known.
    rows: Option<i64>,
}

impl Unbatch {
    fn new(input: Arc<dyn Dataset>) -> Result<Unbatch> {
        let known = |shape: &PartialShape| shape.dims().and_then(|dims| dims.first().copied()).filter(|&n| n >= 0);
        let rows = input.spec().shapes.iter().find_map(known);
        let inner = |shape: &PartialShape| match shape.dims() {
            Some(dims) => PartialShape::new(dims.get(1..).unwrap_or_default()),
            None => Ok(PartialShape::unknown()),
        };
        let shapes = input.spec().shapes.iter().map(inner).collect::<Result<_>>()?;
        Ok(Unbatch { spec: Arc::new(Spec { types: input.spec().types.clone(), shapes }), input, rows })
    }
}

impl Dataset for Unbatch {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        match (self.input.cardinality(), self.rows) {
            (n, _) if n < 0 => n,
            (n, Some(rows)) => n.saturating_mul(rows),
            _ => UNKNOWN,
        }
    }

    fn name(&self) -> &'static str {
        "Unbatch"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(UnbatchIterator { input: Some(self.input.iterator(ctx)?), current: Tuple::new(), row: 0, rows: 0 }))
    }
}

struct UnbatchIterator {
    input: Option<Box<dyn DatasetIterator>>,
    current: Tuple,
    row: usize,
    rows: usize,
}

impl DatasetIterator for UnbatchIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        while self.row >= self.rows {
            let Some(input) = &mut self.input else { return Ok(None) };
            let Some(element) = input.next()? else {
                self.input = None;
                self.current.clear();
                return Ok(None);
            };
            self.row = 0;
            self.rows = element.first().map_or(0, |t| t.shape().dim(0));
            for (i, component) in element.iter().enumerate() {
                if component.shape().is_scalar() {
                    self.rows = 0;
                    return Err(invalid_argument!("Input element must have a non-scalar value in each component."));
                }
                if component.shape().dim(0) != self.rows {
                    let rows = std::mem::take(&mut self.rows);
                    return Err(invalid_argument!(
                        "Input element must have the same batch size in each component. Component 0 had size {rows} but \
                         component {i} had size, {}.",
                        component.shape().dim(0)
                    ));
                }
            }
            self.current = element;
        }
        self.row += 1;
        self.current.iter().map(|component| row(component, self.row - 1)).collect::<Result<_>>().map(Some)
    }

    fn never_waits(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.never_waits())
    }

    fn is_ready(&self) -> bool {
        self.row < self.rows || self.never_waits()
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Unbatch");
        writer.size(self.row);
        writer.size(self.rows);
        if self.row < self.rows {
            writer.tuple(&self.current);
        }
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Unbatch")?;
        self.row = reader.size()?;
        self.rows = reader.size()?;
        if self.row < self.rows {
            self.current = reader.tuple()?;
        }
        restore_optional(reader, &mut self.input)
    }
}
