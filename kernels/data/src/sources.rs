//! Datasets over tensors at hand: `TensorDataset`, `TensorSliceDataset`, `RangeDataset`, `ListDataset`.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, dataset_tensor, inputs, scalar};
use crate::recipe::Recipe;
use crate::state::{Reader, Writer};
use crate::tuple::row;
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{DType, Result, Tensor, dispatch, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["TensorDataset"], |_| {
        Ok(|ctx: &Context<'_>| {
            let element = all_inputs(ctx)?;
            Ok(Elements { spec: Spec::of_tensors(&element), elements: Arc::new(vec![element]), name: "Tensor" })
        })
    });
    dataset_ops(registry, &["TensorSliceDataset"], |_| Ok(|ctx: &Context<'_>| Slices::new(all_inputs(ctx)?)));
    dataset_ops(registry, &["ListDataset"], |c| {
        let spec = Spec::of(c)?;
        Ok(move |ctx: &Context<'_>| {
            let elements = all_inputs(ctx)?.chunks(spec.types.len().max(1)).map(<[_]>::to_vec).collect();
            Ok(Elements { spec: spec.clone(), elements: Arc::new(elements), name: "List" })
        })
    });
    dataset_ops(registry, &["RangeDataset"], |c| {
        let spec = Spec::of(c)?;
        Ok(move |ctx: &Context<'_>| {
            let (start, stop, step) = (scalar(ctx, 0, "start")?, scalar(ctx, 1, "stop")?, scalar(ctx, 2, "step")?);
            if step == 0 {
                return Err(invalid_argument!("step must be a non-zero integer."));
            }
            Ok(Range { spec: spec.clone(), start, stop, step })
        })
    });
}

fn all_inputs(ctx: &Context<'_>) -> Result<Vec<Tensor>> {
    inputs(ctx, 0..ctx.num_inputs())
}

/// Elements that are kept as they are: of `TensorDataset`, `ListDataset`, and each window of `WindowDataset`.
pub(crate) struct Elements {
    pub spec: Arc<Spec>,
    pub elements: Arc<Vec<Tuple>>,
    pub name: &'static str,
}

impl Elements {
    /// The tensor that stands for a dataset of these elements.
    pub fn tensor(spec: Arc<Spec>, elements: Arc<Vec<Tuple>>) -> Result<Tensor> {
        let parts = elements.iter().flatten().cloned().collect();
        let recipe = Recipe::of_elements(&spec.types, spec.shapes.clone(), parts);
        dataset_tensor(Arc::new(Elements { spec, elements, name: "Window" }), recipe)
    }
}

impl Dataset for Elements {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        self.elements.len() as i64
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn make(&self, _: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(Position { source: Kept(self.elements.clone()), next: 0 }))
    }
}

/// Something whose elements can be had in any order.
trait Indexed: Send {
    fn name(&self) -> &'static str;
    fn len(&self) -> usize;
    fn get(&self, i: usize) -> Result<Tuple>;
}

struct Kept(Arc<Vec<Tuple>>);

impl Indexed for Kept {
    fn name(&self) -> &'static str {
        "Elements"
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, i: usize) -> Result<Tuple> {
        Ok(self.0.get(i).cloned().unwrap_or_default())
    }
}

struct Position<S> {
    source: S,
    next: usize,
}

impl<S: Indexed> DatasetIterator for Position<S> {
    fn next(&mut self) -> Result<Option<Tuple>> {
        if self.next >= self.source.len() {
            return Ok(None);
        }
        self.next += 1;
        self.source.get(self.next - 1).map(Some)
    }

    fn skip(&mut self, count: usize) -> Result<usize> {
        let passed = count.min(self.source.len() - self.next.min(self.source.len()));
        self.next += passed;
        Ok(passed)
    }

    fn never_waits(&self) -> bool {
        true
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin(self.source.name());
        writer.size(self.next);
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin(self.source.name())?;
        self.next = reader.size()?;
        Ok(())
    }
}

/// The rows of tensors.
struct Slices {
    spec: Arc<Spec>,
    components: Arc<Vec<Tensor>>,
    rows: usize,
}

impl Slices {
    fn new(components: Vec<Tensor>) -> Result<Slices> {
        let Some(first) = components.first() else {
            return Err(invalid_argument!("TensorSliceDataset needs at least one component"));
        };
        if components.iter().any(|t| t.shape().is_scalar()) {
            return Err(invalid_argument!("All components must be at least 1-dimensional"));
        }
        let rows = first.shape().dim(0);
        if components.iter().any(|t| t.shape().dim(0) != rows) {
            return Err(invalid_argument!("All components must have the same size in the 0th dimension"));
        }
        let shapes = components.iter().map(|t| {
            let inner: Vec<i64> = t.shape().dims_i64().skip(1).collect();
            graphmill_graph::PartialShape::new(&inner)
        });
        let spec =
            Spec { types: components.iter().map(Tensor::dtype).collect(), shapes: shapes.collect::<Result<_>>()? };
        Ok(Slices { spec: Arc::new(spec), components: Arc::new(components), rows })
    }
}

impl Dataset for Slices {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        self.rows as i64
    }

    fn name(&self) -> &'static str {
        "TensorSlice"
    }

    fn make(&self, _: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(Position { source: Rows { components: self.components.clone(), rows: self.rows }, next: 0 }))
    }
}

struct Rows {
    components: Arc<Vec<Tensor>>,
    rows: usize,
}

impl Indexed for Rows {
    fn name(&self) -> &'static str {
        "TensorSlice"
    }

    fn len(&self) -> usize {
        self.rows
    }

    fn get(&self, i: usize) -> Result<Tuple> {
        self.components.iter().map(|component| row(component, i)).collect()
    }
}

/// Numbers from `start` on, up to but without `stop`.
struct Range {
    spec: Arc<Spec>,
    start: i64,
    stop: i64,
    step: i64,
}

impl Range {
    fn len(&self) -> i128 {
        let (start, stop, step) = (i128::from(self.start), i128::from(self.stop), i128::from(self.step));
        let span = if step > 0 { stop - start } else { start - stop };
        if span <= 0 { 0 } else { (span - 1) / step.abs() + 1 }
    }
}

impl Dataset for Range {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        i64::try_from(self.len()).unwrap_or(i64::MAX)
    }

    fn name(&self) -> &'static str {
        "Range"
    }

    fn make(&self, _: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let dtype = self.spec.types.first().copied().unwrap_or(DType::Int64);
        Ok(Box::new(RangeIterator { dtype, next: self.start, left: self.len(), step: self.step }))
    }
}

struct RangeIterator {
    dtype: DType,
    next: i64,
    left: i128,
    step: i64,
}

impl DatasetIterator for RangeIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        if self.left <= 0 {
            return Ok(None);
        }
        let value = self.next;
        self.next = value.wrapping_add(self.step);
        self.left -= 1;
        if self.dtype == DType::Int64 {
            return Ok(Some(vec![Tensor::scalar(value)?]));
        }
        let converted = dispatch!(self.dtype, T in [i8, i16, i32, u8, u16, u32, u64] => Tensor::scalar(value as T))
            .or_else(|| dispatch!(self.dtype, T in [f32, f64] => Tensor::scalar(value as T)));
        match converted {
            Some(tensor) => Ok(Some(vec![tensor?])),
            None => range_float16(self.dtype, value),
        }
    }

    fn skip(&mut self, count: usize) -> Result<usize> {
        let passed = i128::try_from(count).unwrap_or(i128::MAX).min(self.left.max(0));
        self.left -= passed;
        self.next = self.next.wrapping_add((passed as i64).wrapping_mul(self.step));
        Ok(passed as usize)
    }

    fn never_waits(&self) -> bool {
        true
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Range");
        writer.int(self.next);
        writer.int(i64::try_from(self.left).unwrap_or(i64::MAX));
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Range")?;
        self.next = reader.int()?;
        self.left = i128::from(reader.int()?);
        Ok(())
    }
}

/// Half-precision numbers of a range.
fn range_float16(dtype: DType, value: i64) -> Result<Option<Tuple>> {
    let tensor = match dtype {
        DType::Half => Tensor::scalar(graphmill_tensor::f16::from_f64(value as f64))?,
        DType::BFloat16 => Tensor::scalar(graphmill_tensor::bf16::from_f64(value as f64))?,
        other => return Err(invalid_argument!("Unsupported data type: {other}")),
    };
    Ok(Some(vec![tensor]))
}
