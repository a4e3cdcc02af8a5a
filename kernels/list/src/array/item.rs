//! Writing and reading single elements.

use super::{ITEMS, array, check_read, check_write, pass_flow};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    for op in ["TensorArrayWrite", "TensorArrayWriteV2", "TensorArrayWriteV3"] {
        registry.op(op).types("T", ITEMS).kernel(|_| Ok(Write));
    }
    for op in ["TensorArrayRead", "TensorArrayReadV2", "TensorArrayReadV3"] {
        registry.op(op).types("dtype", ITEMS).kernel(Read::new);
    }
}

fn index(ctx: &Context<'_>) -> Result<i32> {
    let index = ctx.input(1)?;
    if !index.shape().is_scalar() {
        return Err(invalid_argument!("TensorArray index must be scalar, but had shape: {}", index.shape()));
    }
    index.scalar_value()
}

/// Writes the value in input 2.
struct Write;

impl Kernel for Write {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let index = index(ctx)?;
        let array = array(ctx)?;
        check_write(&array, ctx.input(2)?)?;
        let value = ctx.take_input(2)?;
        array.with(|state| array.write(state, index, value))?;
        pass_flow(ctx, 3)
    }
}

/// Reads a value, once unless the array keeps what is read.
struct Read {
    dtype: DType,
}

impl Read {
    fn new(c: &Construction<'_>) -> Result<Read> {
        Ok(Read { dtype: c.dtype("dtype")? })
    }
}

impl Kernel for Read {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let index = index(ctx)?;
        let array = array(ctx)?;
        check_read(&array, self.dtype)?;
        let value = array.with(|state| array.read(state, index))?;
        ctx.set_output(0, value)
    }
}
