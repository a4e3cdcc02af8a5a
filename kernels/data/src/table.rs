//! `InitializeTableFromDataset`: fills a lookup table with pairs of keys and values.

use crate::consume::run_in_step;
use crate::dataset::{Dataset, Spec, input_dataset};
use crate::tuple::stack;
use graphmill_graph::PartialShape;
use graphmill_runtime::{AsyncContext, AsyncKernel, Outputs, Registry, Table};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("InitializeTableFromDataset").async_kernel(|_| Ok(FromDataset));
}

struct FromDataset;

impl AsyncKernel for FromDataset {
    fn start(&self, mut ctx: AsyncContext) {
        let prepared = ctx.with_context(|ctx| {
            let table = Table::to_fill(ctx, |_| vec![DType::Variant])?;
            let dataset = input_dataset(ctx, 1)?;
            check(dataset.spec(), table.dtypes())?;
            Ok((table, dataset))
        });
        match prepared {
            Err(error) => ctx.complete(Err(error)),
            Ok(((table, dataset), _)) => run_in_step(ctx, move |ctx| {
                let mut iterator = dataset.iterator(ctx)?;
                let mut pairs = Vec::new();
                while let Some(pair) = iterator.next()? {
                    ctx.check()?;
                    pairs.push(pair);
                }
                let (keys, values) = columns(pairs, &dataset)?;
                table.fill(&keys, &values)?;
                Ok(Outputs::new())
            }),
        }
    }
}

/// The elements must be pairs of scalars that the table takes.
fn check(spec: &Spec, (key, value): (DType, DType)) -> Result<()> {
    let &[key_type, value_type] = spec.types.as_slice() else {
        return Err(invalid_argument!("Dataset should have two output types only"));
    };
    for (what, expected, found) in [("Key", key, key_type), ("Value", value, value_type)] {
        if expected != found {
            return Err(invalid_argument!("{what} dtype expected: {expected} but obtained: {found} from the dataset"));
        }
    }
    let scalar = |shape: &PartialShape| shape.rank().is_none_or(|rank| rank == 0);
    match spec.shapes.iter().find(|shape| !scalar(shape)) {
        Some(shape) => Err(invalid_argument!("Expected scalar for key. Obtained: {shape}")),
        None => Ok(()),
    }
}

/// The keys and the values as vectors.
fn columns(pairs: Vec<Vec<Tensor>>, dataset: &Arc<dyn Dataset>) -> Result<(Tensor, Tensor)> {
    if pairs.is_empty() {
        let empty = |i: usize| {
            let dtype = dataset.spec().types.get(i).copied().unwrap_or(DType::Int64);
            Tensor::alloc(dtype, Shape::vector(0))
        };
        return Ok((empty(0)?, empty(1)?));
    }
    match stack(&pairs)?.as_slice() {
        [keys, values] => Ok((keys.clone(), values.clone())),
        _ => Err(invalid_argument!("Dataset should have two output types only")),
    }
}
