//! Datasets that collect elements by a key: `GroupByWindowDataset`, `GroupByReducerDataset`.

use crate::context::IteratorContext;
use crate::counting::{restore_optional, save_optional};
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, input_dataset, tensor_dataset};
use crate::function::{Captured, FunctionAttr};
use crate::sources::Elements;
use crate::state::{Reader, Writer};
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["GroupByWindowDataset", "ExperimentalGroupByWindowDataset"], |c| {
        let spec = Spec::of(c)?;
        let key = FunctionAttr::new(c, "key_func", "key_func_other_arguments")?;
        let reduce = FunctionAttr::new(c, "reduce_func", "reduce_func_other_arguments")?;
        let size = FunctionAttr::new(c, "window_size_func", "window_size_func_other_arguments")?;
        Ok(move |ctx: &Context<'_>| {
            Ok(GroupByWindow {
                spec: spec.clone(),
                input: input_dataset(ctx, 0)?,
                functions: Arc::new(WindowFunctions {
                    key: key.capture(ctx)?,
                    reduce: reduce.capture(ctx)?,
                    size: size.capture(ctx)?,
                }),
            })
        })
    });
    dataset_ops(registry, &["GroupByReducerDataset", "ExperimentalGroupByReducerDataset"], |c| {
        let spec = Spec::of(c)?;
        let function =
            |name: &str| FunctionAttr::new(c, &format!("{name}_func"), &format!("{name}_func_other_arguments"));
        let [key, init, reduce, finalize] =
            [function("key")?, function("init")?, function("reduce")?, function("finalize")?];
        Ok(move |ctx: &Context<'_>| {
            Ok(GroupByReducer {
                spec: spec.clone(),
                input: input_dataset(ctx, 0)?,
                functions: Arc::new(ReducerFunctions {
                    key: key.capture(ctx)?,
                    init: init.capture(ctx)?,
                    reduce: reduce.capture(ctx)?,
                    finalize: finalize.capture(ctx)?,
                }),
            })
        })
    });
}

/// The key that a function gives an element.
fn key_of(f: &Captured, ctx: &IteratorContext, element: &Tuple) -> Result<i64> {
    f.call_scalar(ctx, element.clone(), || invalid_argument!("`key_func` must return a scalar int64."))
}

/// Elements by key, in windows; each full window goes through a function that makes a dataset of it.
struct GroupByWindow {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    functions: Arc<WindowFunctions>,
}

struct WindowFunctions {
    key: Captured,
    reduce: Captured,
    size: Captured,
}

impl Dataset for GroupByWindow {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn name(&self) -> &'static str {
        "GroupByWindow"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(GroupByWindowIterator {
            ctx: ctx.clone(),
            inner: self.input.spec().clone(),
            input: Some(self.input.iterator(ctx)?),
            functions: self.functions.clone(),
            sizes: BTreeMap::new(),
            groups: BTreeMap::new(),
            current: None,
        }))
    }
}

struct GroupByWindowIterator {
    ctx: IteratorContext,
    inner: Arc<Spec>,
    input: Option<Box<dyn DatasetIterator>>,
    functions: Arc<WindowFunctions>,
    /// The size of the windows of each key.
    sizes: BTreeMap<i64, usize>,
    groups: BTreeMap<i64, Vec<Tuple>>,
    current: Option<Window>,
}

/// The window that is given out.
struct Window {
    key: i64,
    elements: Arc<Vec<Tuple>>,
    iterator: Box<dyn DatasetIterator>,
}

impl GroupByWindowIterator {
    fn window_size(&mut self, key: i64) -> Result<usize> {
        if let Some(&size) = self.sizes.get(&key) {
            return Ok(size);
        }
        let wrong = || invalid_argument!("`window_size_func` must return a scalar int64.");
        let size: i64 = self.functions.size.call_scalar(&self.ctx, vec![Tensor::scalar(key)?], wrong)?;
        match usize::try_from(size) {
            Ok(size) if size > 0 => {
                self.sizes.insert(key, size);
                Ok(size)
            }
            _ => Err(invalid_argument!("Window size must be greater than zero, but got {size}.")),
        }
    }

    /// Begins to give out a window.
    fn flush(&mut self, key: i64, elements: Arc<Vec<Tuple>>) -> Result<()> {
        let args = vec![Tensor::scalar(key)?, Elements::tensor(self.inner.clone(), elements.clone())?];
        let dataset = match self.functions.reduce.call(&self.ctx, args)?.as_slice() {
            [result] if result.dtype() == DType::Variant && result.shape().is_scalar() => {
                tensor_dataset(result, self.ctx.device())?
            }
            _ => return Err(invalid_argument!("`reduce_func` must return a single scalar of dtype DT_VARIANT.")),
        };
        let iterator = dataset.iterator(&self.ctx)?;
        self.current = Some(Window { key, elements, iterator });
        Ok(())
    }

    /// Reads until a window is full or the input ends.
    fn fill(&mut self) -> Result<()> {
        while let Some(input) = &mut self.input {
            let Some(element) = input.next()? else {
                self.input = None;
                return Ok(());
            };
            let key = key_of(&self.functions.key, &self.ctx, &element)?;
            let size = self.window_size(key)?;
            let group = self.groups.entry(key).or_default();
            group.push(element);
            if group.len() >= size {
                let elements = self.groups.remove(&key).unwrap_or_default();
                return self.flush(key, Arc::new(elements));
            }
        }
        Ok(())
    }
}

impl DatasetIterator for GroupByWindowIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(element) = current.iterator.next()? {
                    return Ok(Some(element));
                }
                self.current = None;
            }
            self.fill()?;
            if self.current.is_none() {
                // The input has ended: what is left are windows that are not full.
                match self.groups.pop_first() {
                    Some((key, elements)) => self.flush(key, Arc::new(elements))?,
                    None => return Ok(None),
                }
            }
        }
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("GroupByWindow");
        writer.size(self.sizes.len());
        for (&key, &size) in &self.sizes {
            writer.int(key);
            writer.size(size);
        }
        writer.size(self.groups.len());
        for (&key, group) in &self.groups {
            writer.int(key);
            save_elements(writer, group);
        }
        writer.bool(self.current.is_some());
        if let Some(window) = &mut self.current {
            writer.int(window.key);
            save_elements(writer, &window.elements);
            window.iterator.save(writer)?;
        }
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("GroupByWindow")?;
        for _ in 0..reader.size()? {
            let key = reader.int()?;
            self.sizes.insert(key, reader.size()?);
        }
        for _ in 0..reader.size()? {
            let key = reader.int()?;
            self.groups.insert(key, restore_elements(reader)?);
        }
        if reader.bool()? {
            let key = reader.int()?;
            let elements = restore_elements(reader)?;
            self.flush(key, Arc::new(elements))?;
            if let Some(window) = &mut self.current {
                window.iterator.restore(reader)?;
            }
        }
        restore_optional(reader, &mut self.input)
    }
}

fn save_elements(writer: &mut Writer, elements: &[Tuple]) {
    writer.size(elements.len());
    elements.iter().for_each(|element| writer.tuple(element));
}

fn restore_elements(reader: &mut Reader) -> Result<Vec<Tuple>> {
    (0..reader.size()?).map(|_| reader.tuple()).collect()
}

/// For each key, in order, what a function makes of the state to which another one has reduced the key's elements.
struct GroupByReducer {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    functions: Arc<ReducerFunctions>,
}

struct ReducerFunctions {
    key: Captured,
    init: Captured,
    reduce: Captured,
    finalize: Captured,
}

impl Dataset for GroupByReducer {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn name(&self) -> &'static str {
        "GroupByReducer"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(GroupByReducerIterator {
            ctx: ctx.clone(),
            input: Some(self.input.iterator(ctx)?),
            functions: self.functions.clone(),
            states: BTreeMap::new(),
        }))
    }
}

struct GroupByReducerIterator {
    ctx: IteratorContext,
    input: Option<Box<dyn DatasetIterator>>,
    functions: Arc<ReducerFunctions>,
    /// Of the keys that are not given out yet.
    states: BTreeMap<i64, Tuple>,
}

impl DatasetIterator for GroupByReducerIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let ReducerFunctions { key, init, reduce, finalize } = &*self.functions;
        while let Some(input) = &mut self.input {
            let Some(element) = input.next()? else {
                self.input = None;
                break;
            };
            let key = key_of(key, &self.ctx, &element)?;
            let mut args = match self.states.get(&key) {
                Some(state) => state.clone(),
                None => init.call(&self.ctx, vec![Tensor::scalar(key)?])?,
            };
            args.extend(element);
            self.states.insert(key, reduce.call(&self.ctx, args)?);
        }
        match self.states.pop_first() {
            Some((_, state)) => finalize.call(&self.ctx, state).map(Some),
            None => Ok(None),
        }
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("GroupByReducer");
        writer.size(self.states.len());
        for (&key, state) in &self.states {
            writer.int(key);
            writer.tuple(state);
        }
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("GroupByReducer")?;
        for _ in 0..reader.size()? {
            let key = reader.int()?;
            self.states.insert(key, reader.tuple()?);
        }
        restore_optional(reader, &mut self.input)
    }
}
