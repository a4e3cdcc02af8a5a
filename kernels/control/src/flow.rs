//! `Switch`, `Merge`, and the ops at the edges of loops. The frames themselves are the executor's.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, Status, Tensor, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    for op in ["Switch", "RefSwitch"] {
        registry.op(op).kernel(|_| Ok(Switch));
    }
    registry.op("_SwitchN").kernel(SwitchN::new);
    for op in ["Merge", "RefMerge"] {
        registry.op(op).kernel(|_| Ok(Merge));
    }
    for op in ["Enter", "RefEnter", "Exit", "RefExit", "NextIteration", "RefNextIteration", "RefIdentity", "LoopCond"] {
        registry.op(op).kernel(|_| Ok(Forward));
    }
    registry.op("RefSelect").kernel(|_| Ok(RefSelect));
    registry.op("NoOp").kernel(|_| Ok(NoOp));
    registry.op("ControlTrigger").kernel(|_| Ok(NoOp));
    registry.op("Abort").kernel(Abort::new);
}

/// Passes `data` to output 1 if `pred` holds, else to output 0; the other output is dead. References stay references.
struct Switch;

impl Kernel for Switch {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let pred = ctx.input(1)?;
        if !pred.shape().is_scalar() {
            let node = &ctx.node().name;
            return Err(invalid_argument!(
                "The second input must be a scalar, but it has shape {}: {node}",
                pred.shape()
            ));
        }
        let output = usize::from(pred.scalar_value::<bool>()?);
        let data = ctx.take_value(0)?;
        ctx.set_value(output, data)
    }
}

/// Passes `data` to the output that `output_index` names; an index out of range means the last output.
struct SwitchN {
    outputs: usize,
}

impl SwitchN {
    fn new(c: &Construction<'_>) -> Result<SwitchN> {
        Ok(SwitchN { outputs: c.output_types().len() })
    }
}

impl Kernel for SwitchN {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let index = ctx.input(1)?;
        if !index.shape().is_scalar() {
            return Err(second_input(index));
        }
        let index = index.scalar_value::<i32>()?;
        let last = self.outputs.saturating_sub(1);
        let output = usize::try_from(index).map_or(last, |index| index.min(last));
        let data = ctx.take_value(0)?;
        ctx.set_value(output, data)
    }
}

fn second_input(tensor: &Tensor) -> Status {
    invalid_argument!("The second input must be a scalar, but it has shape {}", tensor.shape())
}

/// Passes on the one live input; the second output is its index.
struct Merge;

impl Kernel for Merge {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let mut live = (0..ctx.num_inputs()).filter(|&i| ctx.has_input(i));
        let Some(index) = live.next() else {
            return Err(internal!("Merge has no valid input."));
        };
        if live.next().is_some() {
            return Err(internal!("Merge can not have more than one valid input."));
        }
        let value = ctx.take_value(index)?;
        ctx.set_value(0, value)?;
        let index = i32::try_from(index).map_err(|_| invalid_argument!("Merge has too many inputs"))?;
        ctx.set_scalar(1, index)
    }
}

/// Passes its input on.
struct Forward;

impl Kernel for Forward {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let value = ctx.take_value(0)?;
        ctx.set_value(0, value)
    }
}

/// Passes on the reference that `index` picks.
struct RefSelect;

impl Kernel for RefSelect {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let index = ctx.input(0)?;
        if !index.shape().is_scalar() {
            return Err(invalid_argument!("Index must be a scalar, but it has shape {}", index.shape()));
        }
        let index = index.scalar_value::<i32>()?;
        let choices = ctx.num_inputs() - 1;
        match usize::try_from(index).ok().filter(|&i| i < choices) {
            Some(i) => {
                let value = ctx.take_value(i + 1)?;
                ctx.set_value(0, value)
            }
            None => Err(invalid_argument!("Index must be in the range [0, {choices}) but got {index}")),
        }
    }
}

/// Does nothing; what depends on it waits for its control inputs.
struct NoOp;

impl Kernel for NoOp {
    fn compute(&self, _: &mut Context<'_>) -> Result<()> {
        Ok(())
    }
}

/// Fails the step. TensorFlow's own op ends the whole process, which no client may do here.
struct Abort {
    message: String,
    exit_without_error: bool,
}

impl Abort {
    fn new(c: &Construction<'_>) -> Result<Abort> {
        let message = String::from_utf8_lossy(c.attrs().string("error_msg")?).into_owned();
        Ok(Abort { message, exit_without_error: c.attrs().bool("exit_without_error")? })
    }
}

impl Kernel for Abort {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        if self.exit_without_error {
            return Ok(());
        }
        Err(graphmill_tensor::aborted!("Abort_op intentional failure; {}: {}", ctx.node().name, self.message))
    }
}
