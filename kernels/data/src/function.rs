//! Functions that datasets call on elements.

use crate::context::IteratorContext;
use crate::dataset::{Tuple, inputs};
use graphmill_runtime::{Construction, Context, Function, FunctionHandle};
use graphmill_tensor::{Code, Element, Result, Status, Tensor, invalid_argument};
use std::ops::Range;
use std::sync::Arc;

/// A function as a node has it: an attribute with the function and inputs with what it captures.
pub(crate) struct FunctionAttr {
    handle: FunctionHandle,
    captures: Range<usize>,
}

impl FunctionAttr {
    /// From the attribute `name` and the input argument `captures`.
    pub fn new(c: &Construction<'_>, name: &str, captures: &str) -> Result<FunctionAttr> {
        Ok(FunctionAttr { handle: c.function(name)?, captures: c.input_range(captures)? })
    }

    /// `f` and `other_arguments`, as most datasets call them.
    pub fn f(c: &Construction<'_>) -> Result<FunctionAttr> {
        FunctionAttr::new(c, "f", "other_arguments")
    }

    /// `predicate` and `other_arguments`.
    pub fn predicate(c: &Construction<'_>) -> Result<FunctionAttr> {
        FunctionAttr::new(c, "predicate", "other_arguments")
    }

    /// The function with the values it captures now.
    pub fn capture(&self, ctx: &Context<'_>) -> Result<Captured> {
        let captures = Arc::new(inputs(ctx, self.captures.clone())?);
        Ok(Captured { function: self.handle.bind()?, captures })
    }
}

/// A function with the values it captures. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Captured {
    function: Function,
    captures: Arc<Vec<Tensor>>,
}

impl Captured {
    /// Whether a call may wait for anything but the processor.
    pub fn may_wait(&self) -> bool {
        self.function.may_wait()
    }

    /// The number of results.
    pub fn num_outputs(&self) -> usize {
        self.function.output_types().len()
    }

    /// Calls the function with arguments before the captured ones, on this thread.
    pub fn call(&self, ctx: &IteratorContext, mut args: Tuple) -> Result<Tuple> {
        args.extend_from_slice(&self.captures);
        self.function.call_blocking(ctx.step(), args)
    }

    /// Calls a function of one scalar result.
    pub fn call_scalar<T: Element>(
        &self,
        ctx: &IteratorContext,
        args: Tuple,
        wrong: impl FnOnce() -> Status,
    ) -> Result<T> {
        match self.call(ctx, args)?.as_slice() {
            [result] if result.dtype() == T::DTYPE && result.num_elements() == 1 => result.scalar_value(),
            _ => Err(wrong()),
        }
    }
}

/// Whether a node says that elements keep their order: by `deterministic` (`true`, `false` or `default`) or by `sloppy`.
pub(crate) fn declared_order(c: &Construction<'_>) -> Result<Option<bool>> {
    if c.attrs().has("deterministic") {
        return match c.attrs().str("deterministic")? {
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            "default" => Ok(None),
            other => Err(invalid_argument!("Invalid value for attr `deterministic`: {other}")),
        };
    }
    let sloppy = c.attrs().has("sloppy") && c.attrs().bool("sloppy")?;
    Ok(if sloppy { Some(false) } else { None })
}

/// What a call on an element means for the sequence: a function may end it with `OUT_OF_RANGE`, unless it has promised as many
/// elements as its input has.
pub(crate) fn end_or_error(outcome: Result<Tuple>, preserve_cardinality: bool) -> Result<Option<Tuple>> {
    match outcome {
        Ok(tuple) => Ok(Some(tuple)),
        Err(error) if error.code() != Code::OutOfRange => Err(error),
        Err(error) if preserve_cardinality => {
            Err(invalid_argument!("Function invocation produced OutOfRangeError: {}", error.message()))
        }
        Err(_) => Ok(None),
    }
}
