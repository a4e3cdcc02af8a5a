//! `WindowDataset` and `SlidingWindowDataset`.

use crate::context::IteratorContext;
use crate::counting::{restore_optional, save_optional};
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, input_dataset, scalar};
use crate::sources::Elements;
use crate::state::{Reader, Writer};
use crate::tuple::stack;
use graphmill_graph::PartialShape;
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{DType, Result, invalid_argument};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["WindowDataset"], |_| {
        Ok(|ctx: &Context<'_>| {
            let input = input_dataset(ctx, 0)?;
            let n = input.spec().types.len();
            let spec = Spec { types: vec![DType::Variant; n], shapes: vec![PartialShape::new(&[])?; n] };
            let names = ["Window size", "Window shift", "Window stride"];
            let [size, shift, stride] = positive(ctx, names)?;
            let drop_remainder = scalar(ctx, 4, "drop_remainder")?;
            Ok(Window { spec: Arc::new(spec), input, size, shift, stride, drop_remainder, stacked: false })
        })
    });
    dataset_ops(registry, &["SlidingWindowDataset", "ExperimentalSlidingWindowDataset"], |c| {
        let spec = Spec::of(c)?;
        let drop_remainder = !c.attrs().has("drop_remainder") || c.attrs().bool("drop_remainder")?;
        Ok(move |ctx: &Context<'_>| {
            let names = ["Window size", "Window shift", "Window stride"];
            let [size, shift, stride] = positive(ctx, names)?;
            let input = input_dataset(ctx, 0)?;
            Ok(Window { spec: spec.clone(), input, size, shift, stride, drop_remainder, stacked: true })
        })
    });
}

/// The numbers in inputs 1 to 3, which must be positive.
fn positive(ctx: &Context<'_>, names: [&str; 3]) -> Result<[usize; 3]> {
    let mut values = [0; 3];
    for ((value, name), i) in values.iter_mut().zip(names).zip(1..) {
        *value = match usize::try_from(scalar::<i64>(ctx, i, name)?) {
            Ok(n) if n > 0 => n,
            _ => return Err(invalid_argument!("{name} must be greater than zero.")),
        };
    }
    Ok(values)
}

/// Windows of `size` elements, `stride` apart within the window, each beginning `shift` elements after the one before: as
/// datasets, or stacked.
struct Window {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    size: usize,
    shift: usize,
    stride: usize,
    drop_remainder: bool,
    stacked: bool,
}

impl Window {
    /// Elements from the first to the last one of a window.
    fn span(&self) -> usize {
        (self.size - 1).saturating_mul(self.stride).saturating_add(1)
    }
}

impl Dataset for Window {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        let n = self.input.cardinality();
        if n < 0 {
            return n;
        }
        let shift = i64::try_from(self.shift).unwrap_or(i64::MAX);
        if !self.drop_remainder {
            return n / shift + i64::from(n % shift != 0);
        }
        let rest = n - i64::try_from(self.span()).unwrap_or(i64::MAX);
        if rest < 0 { 0 } else { rest / shift + 1 }
    }

    fn name(&self) -> &'static str {
        if self.stacked { "SlidingWindow" } else { "Window" }
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(WindowIterator {
            input: Some(self.input.iterator(ctx)?),
            inner: self.input.spec().clone(),
            span: self.span(),
            shift: self.shift,
            stride: self.stride,
            drop_remainder: self.drop_remainder,
            stacked: self.stacked,
            buffer: VecDeque::new(),
        }))
    }
}

struct WindowIterator {
    input: Option<Box<dyn DatasetIterator>>,
    inner: Arc<Spec>,
    span: usize,
    shift: usize,
    stride: usize,
    drop_remainder: bool,
    stacked: bool,
    buffer: VecDeque<Result<Tuple>>,
}

impl WindowIterator {
    fn fill(&mut self) {
        while self.buffer.len() < self.span {
            let Some(input) = &mut self.input else { return };
            match input.next() {
                Ok(Some(element)) => self.buffer.push_back(Ok(element)),
                Ok(None) => self.input = None,
                Err(error) => self.buffer.push_back(Err(error)),
            }
        }
    }

    fn advance(&mut self) {
        let held = self.buffer.len();
        if self.shift < held {
            self.buffer.drain(..self.shift);
            return;
        }
        self.buffer.clear();
        for _ in held..self.shift {
            let Some(input) = &mut self.input else { return };
            // What fails between two windows is in neither.
            if let Ok(0) = input.skip(1) {
                self.input = None;
            }
        }
    }

    /// One dataset for each component.
    fn datasets(&self, elements: Vec<Tuple>) -> Result<Tuple> {
        let looks = self.inner.types.iter().zip(&self.inner.shapes).enumerate();
        let dataset = |(i, (&dtype, shape)): (usize, (&DType, &PartialShape))| {
            let spec = Spec { types: vec![dtype], shapes: vec![shape.clone()] };
            let part = |element: &Tuple| element.get(i).cloned().into_iter().collect();
            let elements = Arc::new(elements.iter().map(part).collect());
            Elements::tensor(Arc::new(spec), elements)
        };
        looks.map(dataset).collect()
    }
}

impl DatasetIterator for WindowIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        self.fill();
        if self.buffer.is_empty() || (self.drop_remainder && self.buffer.len() < self.span) {
            return Ok(None);
        }
        let elements: Result<Vec<Tuple>> = self.buffer.iter().step_by(self.stride).cloned().collect();
        self.advance();
        let elements = elements?;
        if self.stacked { stack(&elements) } else { self.datasets(elements) }.map(Some)
    }

    fn never_waits(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.never_waits())
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Window");
        writer.size(self.buffer.len());
        self.buffer.iter().for_each(|outcome| writer.outcome(outcome));
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Window")?;
        self.buffer = (0..reader.size()?).map(|_| reader.outcome()).collect::<Result<_>>()?;
        restore_optional(reader, &mut self.input)
    }
}
