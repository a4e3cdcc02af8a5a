//! `PopulationCount`: how many bits of each integer are set.

use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, dispatch, internal};

pub(crate) fn register(registry: &mut Registry) {
    use DType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let types = [Int16, Int32, Int64, Int8, UInt16, UInt32, UInt64, UInt8];
    registry.op("PopulationCount").types("T", &types).kernel(|_| Ok(PopulationCount));
}

struct PopulationCount;

impl Kernel for PopulationCount {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let mut output = Tensor::alloc(DType::UInt8, input.shape().clone())?;
        let counts = output.as_mut_slice::<u8>()?;
        let counted = dispatch!(input.dtype(), T in integers => {
            counts.iter_mut().zip(input.as_slice::<T>()?).for_each(|(count, value)| *count = value.count_ones() as u8);
        });
        counted.ok_or_else(|| internal!("bits of {} cannot be counted", input.dtype()))?;
        ctx.set_output(0, output)
    }
}
