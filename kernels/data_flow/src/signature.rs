//! Checks of a node's types against those of the resource it uses.

use graphmill_runtime::{AsyncContext, NodeInfo, Outputs, Value, dtype_list};
use graphmill_tensor::{DType, Result, SlotType, Tensor, invalid_argument};

/// Checks the types of a node's inputs behind the first, the handle, and of its outputs.
///
/// # Errors
/// `INVALID_ARGUMENT` with both signatures.
pub(crate) fn match_signature(node: &NodeInfo, inputs: &[DType], outputs: &[DType]) -> Result<()> {
    let have_inputs = node.input_types.get(1..).unwrap_or_default();
    let same = |have: &[SlotType], want: &[DType]| have.iter().map(|slot| &slot.dtype).eq(want.iter());
    if same(have_inputs, inputs) && same(&node.output_types, outputs) {
        return Ok(());
    }
    let handle = node.input_types.first().map(ToString::to_string).unwrap_or_default();
    let text = |types: &[DType]| types.iter().map(|dtype| format!(",{dtype}")).collect::<String>();
    let have: Vec<DType> = have_inputs.iter().map(|slot| slot.dtype).collect();
    let have_outputs: Vec<DType> = node.output_types.iter().map(|slot| slot.dtype).collect();
    Err(invalid_argument!(
        "Signature mismatch, have: {handle}{}->{} expected: {handle}{}->{}",
        text(&have),
        dtype_list(&have_outputs).replace(", ", ","),
        text(inputs),
        dtype_list(outputs).replace(", ", ",")
    ))
}

/// Ends a run with these tensors as outputs.
pub(crate) fn complete(ctx: AsyncContext, outcome: Result<Vec<Tensor>>) {
    ctx.complete(outcome.map(|tensors| tensors.into_iter().map(Value::Tensor).collect::<Outputs>()));
}
