//! Elementwise ops on strings: concatenation and equality.

use crate::elementwise::Plan;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, resource_exhausted};

/// `Add` of strings: the first, then the second.
struct Concatenate;

impl Kernel for Concatenate {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        let plan = Plan::new(a.shape(), b.shape())?;
        let mut out = ctx.alloc_output(0, plan.shape(a.shape(), b.shape()).clone())?;
        let (a, b) = (a.strings()?, b.strings()?);
        let y = out.strings_mut()?;
        let mut outcome = Ok(());
        for_each_pair(&plan, y.len(), a, b, |at, a, b| match join(a, b) {
            Ok(joined) => y[at] = joined,
            Err(error) => outcome = Err(error),
        });
        outcome?;
        ctx.set_output(0, out)
    }
}

fn join(a: &Bytes, b: &Bytes) -> Result<Bytes> {
    if b.is_empty() {
        return Ok(a.clone());
    }
    let mut joined = Vec::new();
    let room = a.len().checked_add(b.len()).is_some_and(|n| joined.try_reserve_exact(n).is_ok());
    if !room {
        return Err(resource_exhausted!("Out of memory: a string of {}+{} bytes is too large", a.len(), b.len()));
    }
    joined.extend_from_slice(a);
    joined.extend_from_slice(b);
    Ok(joined.into())
}

/// `Equal` or `NotEqual` of strings.
pub(crate) struct CompareStrings {
    equal: bool,
    on_mismatch: Option<bool>,
}

impl CompareStrings {
    /// Yields true where the operands are equal, or where they are not. Operands that do not broadcast are an error, or yield
    /// the scalar `on_mismatch`.
    pub fn new(equal: bool, on_mismatch: Option<bool>) -> CompareStrings {
        CompareStrings { equal, on_mismatch }
    }
}

impl Kernel for CompareStrings {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        let plan = match (Plan::new(a.shape(), b.shape()), self.on_mismatch) {
            (Err(error), Some(value)) if error.message().starts_with("Incompatible shapes") => {
                return ctx.set_scalar(0, value);
            }
            (plan, _) => plan?,
        };
        let mut out = ctx.alloc_output(0, plan.shape(a.shape(), b.shape()).clone())?;
        let (a, b) = (a.strings()?, b.strings()?);
        let y = out.as_mut_slice::<bool>()?;
        for_each_pair(&plan, y.len(), a, b, |at, a, b| y[at] = (a == b) == self.equal);
        ctx.set_output(0, out)
    }
}

fn for_each_pair(plan: &Plan, n: usize, a: &[Bytes], b: &[Bytes], mut visit: impl FnMut(usize, &Bytes, &Bytes)) {
    let (step_a, step_b) = (usize::from(!plan.repeats(0)), usize::from(!plan.repeats(1)));
    plan.for_each_run(0..n, |run, at| {
        for (k, position) in run.enumerate() {
            visit(position, &a[at[0] + k * step_a], &b[at[1] + k * step_b]);
        }
    });
}

pub(crate) fn register(r: &mut Registry) {
    r.op("Add").types("T", &[DType::String]).kernel(|_| Ok(Concatenate));
}
