//! `GeneratorDataset`: elements from a function that is called until it says that there are no more.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops};
use crate::function::{Captured, FunctionAttr};
use crate::pool;
use crate::state::{Reader, Writer};
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{Code, Result, unimplemented_op};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["GeneratorDataset"], |c| {
        let spec = Spec::of(c)?;
        let function = |name: &str| FunctionAttr::new(c, &format!("{name}_func"), &format!("{name}_func_other_args"));
        let [init, next, finalize] = [function("init")?, function("next")?, function("finalize")?];
        Ok(move |ctx: &Context<'_>| {
            let functions =
                Functions { init: init.capture(ctx)?, next: next.capture(ctx)?, finalize: finalize.capture(ctx)? };
            Ok(Generator { spec: spec.clone(), functions: Arc::new(functions) })
        })
    });
}

struct Generator {
    spec: Arc<Spec>,
    functions: Arc<Functions>,
}

/// One makes the state of an iterator, one an element from the state, one ends it.
struct Functions {
    init: Captured,
    next: Captured,
    finalize: Captured,
}

impl Dataset for Generator {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn name(&self) -> &'static str {
        "Generator"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(GeneratorIterator { ctx: ctx.clone(), functions: self.functions.clone(), progress: Progress::New }))
    }
}

enum Progress {
    New,
    Running(Tuple),
    Finalized,
}

struct GeneratorIterator {
    ctx: IteratorContext,
    functions: Arc<Functions>,
    progress: Progress,
}

impl DatasetIterator for GeneratorIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        if let Progress::New = self.progress {
            self.progress = Progress::Running(self.functions.init.call(&self.ctx, Tuple::new())?);
        }
        let Progress::Running(state) = &self.progress else { return Ok(None) };
        match self.functions.next.call(&self.ctx, state.clone()) {
            Ok(element) => Ok(Some(element)),
            Err(error) if error.code() == Code::OutOfRange => {
                self.functions.finalize.call(&self.ctx, state.clone())?;
                self.progress = Progress::Finalized;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn save(&mut self, _: &mut Writer) -> Result<()> {
        Err(unimplemented_op!("GeneratorDataset does not support checkpointing."))
    }

    fn restore(&mut self, _: &mut Reader) -> Result<()> {
        Err(unimplemented_op!("GeneratorDataset does not support checkpointing."))
    }
}

impl Drop for GeneratorIterator {
    fn drop(&mut self) {
        if let Progress::Running(state) = std::mem::replace(&mut self.progress, Progress::Finalized) {
            let (functions, ctx) = (self.functions.clone(), IteratorContext::new(self.ctx.device()));
            // The function may wait, and whoever drops an iterator may not. What it returns is of no interest to anybody.
            let spawned = pool::spawn(move || drop(functions.finalize.call(&ctx, state)));
            drop(spawned);
        }
    }
}
