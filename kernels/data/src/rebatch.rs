//! `RebatchDataset` and `RebatchDatasetV2`: batches of other sizes, as distribution strategies want them.

use crate::context::IteratorContext;
use crate::counting::{restore_optional, save_optional};
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, input_dataset, scalar};
use crate::state::{Reader, Writer};
use crate::tuple::join;
use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["RebatchDataset", "ExperimentalRebatchDataset"], |c: &Construction<'_>| {
        let spec = Spec::of(c)?;
        Ok(move |ctx: &Context<'_>| {
            let replicas = usize::try_from(scalar::<i64>(ctx, 1, "num_replicas")?).unwrap_or(0);
            if replicas == 0 {
                return Err(invalid_argument!("num_replicas must be greater than zero."));
            }
            Ok(Rebatch { spec: spec.clone(), input: input_dataset(ctx, 0)?, plan: Plan::Parts(replicas) })
        })
    });
    dataset_ops(registry, &["RebatchDatasetV2"], |c: &Construction<'_>| {
        let spec = Spec::of(c)?;
        Ok(move |ctx: &Context<'_>| {
            let sizes = ctx.input(1)?;
            if sizes.shape().rank() > 1 {
                return Err(invalid_argument!("`batch_sizes` must be a scalar or a vector."));
            }
            let size = |&size: &i64| {
                usize::try_from(size).map_err(|_| invalid_argument!("`batch_sizes` must not be negative, got {size}"))
            };
            let sizes = sizes.as_slice::<i64>()?.iter().map(size).collect::<Result<Vec<_>>>()?;
            if sizes.is_empty() {
                return Err(invalid_argument!("`batch_sizes` must not be empty."));
            }
            let drop_remainder = scalar(ctx, 2, "drop_remainder")?;
            let plan = Plan::Sizes { sizes: Arc::new(sizes), drop_remainder };
            Ok(Rebatch { spec: spec.clone(), input: input_dataset(ctx, 0)?, plan })
        })
    });
}

#[derive(Clone)]
enum Plan {
    /// Each batch is cut into so many parts.
    Parts(usize),
    /// Batches of these sizes, over and over, from the rows of all batches.
    Sizes { sizes: Arc<Vec<usize>>, drop_remainder: bool },
}

struct Rebatch {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    plan: Plan,
}

impl Dataset for Rebatch {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn name(&self) -> &'static str {
        match self.plan {
            Plan::Parts(_) => "Rebatch",
            Plan::Sizes { .. } => "RebatchV2",
        }
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(RebatchIterator {
            input: Some(self.input.iterator(ctx)?),
            spec: self.spec.clone(),
            plan: self.plan.clone(),
            batch: Vec::new(),
            used: 0,
            turn: 0,
        }))
    }
}

struct RebatchIterator {
    input: Option<Box<dyn DatasetIterator>>,
    spec: Arc<Spec>,
    plan: Plan,
    /// The batch of the input that is being used up; empty if there is none.
    batch: Tuple,
    /// How many of its rows were used.
    used: usize,
    /// Which part or size comes next.
    turn: usize,
}

/// Rows of a component, fewer where it ends.
fn slice(tensor: &Tensor, start: usize, end: usize) -> Result<Tensor> {
    let rows = tensor.shape().dim(0);
    let end = end.min(rows);
    let start = start.min(end);
    tensor.rows(start, end - start)
}

impl RebatchIterator {
    /// The next batch of the input; false at its end.
    fn advance(&mut self) -> Result<bool> {
        self.batch.clear();
        self.used = 0;
        let Some(input) = &mut self.input else { return Ok(false) };
        match input.next()? {
            Some(batch) => self.batch = batch,
            None => self.input = None,
        }
        Ok(self.input.is_some())
    }

    /// Components are cut each by its own number of rows.
    fn part(&mut self, parts: usize) -> Result<Option<Tuple>> {
        if self.turn == 0 {
            if !self.advance()? {
                return Ok(None);
            }
            if let Some(i) = self.batch.iter().position(|tensor| tensor.shape().is_scalar()) {
                return Err(invalid_argument!(
                    "Cannot rebatch dataset: All components must have at least one dimension. Perhaps your input dataset is not \
                     batched? Component {i} is scalar."
                ));
            }
        }
        let cut = |tensor: &Tensor| {
            let rows = tensor.shape().dim(0).div_ceil(parts);
            let start = rows.saturating_mul(self.turn);
            slice(tensor, start, start.saturating_add(rows))
        };
        let element = self.batch.iter().map(cut).collect::<Result<_>>()?;
        self.turn = (self.turn + 1) % parts;
        Ok(Some(element))
    }

    fn sized(&mut self, sizes: &[usize], drop_remainder: bool) -> Result<Option<Tuple>> {
        let wanted = sizes.get(self.turn).copied().unwrap_or(0);
        let mut slices = Vec::new();
        let mut rows = 0;
        while rows < wanted {
            if self.batch.is_empty() {
                if !self.advance()? {
                    break;
                }
                if let Err(error) = self.check() {
                    self.batch.clear();
                    return Err(error);
                }
            }
            let available = self.batch.first().map_or(0, |tensor| tensor.shape().dim(0));
            let end = available.min(self.used.saturating_add(wanted - rows));
            slices.push(self.batch.iter().map(|tensor| slice(tensor, self.used, end)).collect::<Result<Tuple>>()?);
            rows += end - self.used;
            self.used = end;
            if end == available {
                self.batch.clear();
            }
        }
        self.turn = (self.turn + 1) % sizes.len().max(1);
        if wanted == 0 {
            return if self.input.is_none() { Ok(None) } else { self.empty().map(Some) };
        }
        if rows == 0 || (drop_remainder && rows < wanted) {
            return Ok(None);
        }
        join(&slices).map(Some)
    }

    fn check(&self) -> Result<()> {
        let rows = |tensor: &Tensor| tensor.shape().dim(0);
        let first = self.batch.first().map_or(0, rows);
        for (i, tensor) in self.batch.iter().enumerate() {
            if tensor.shape().is_scalar() {
                return Err(invalid_argument!("Input element must have a non-scalar value in each component."));
            }
            if rows(tensor) != first {
                return Err(invalid_argument!(
                    "Input element must have the same batch size in each component. Component 0 had size {first} but component {i} \
                     had size, {}.",
                    rows(tensor)
                ));
            }
        }
        Ok(())
    }

    /// An element without rows, for a replica that gets none.
    fn empty(&self) -> Result<Tuple> {
        let component = |(&dtype, shape): (&DType, &PartialShape)| {
            let inner = shape.dims().and_then(|dims| dims.get(1..)).unwrap_or_default();
            let dims: Vec<i64> = std::iter::once(0).chain(inner.iter().map(|&size| size.max(0))).collect();
            Tensor::alloc(dtype, Shape::new(&dims)?)
        };
        self.spec.types.iter().zip(&self.spec.shapes).map(component).collect()
    }
}

impl DatasetIterator for RebatchIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        match self.plan.clone() {
            Plan::Parts(parts) => self.part(parts),
            Plan::Sizes { sizes, drop_remainder } => self.sized(&sizes, drop_remainder),
        }
    }

    fn never_waits(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.never_waits())
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Rebatch");
        save_optional(writer, &mut self.input)?;
        writer.tuple(&self.batch);
        writer.size(self.used);
        writer.size(self.turn);
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Rebatch")?;
        restore_optional(reader, &mut self.input)?;
        self.batch = reader.tuple()?;
        self.used = reader.size()?;
        self.turn = reader.size()?;
        Ok(())
    }
}
