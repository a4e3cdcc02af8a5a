//! Control flow where its data is.

use crate::{Flow, Graph, NodeId, topological_order};
use graphmill_tensor::Result;
use std::sync::Arc;

/// Moves control flow to the devices of its data, whatever device it was placed on: `Switch` goes with its data input, `Exit` with its
/// input, `Enter` (other than of references) and `NextIteration` with their first consumer. Fewer values cross between devices, and
/// a conditional read of a variable happens where the variable is.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is a cycle that is not a loop.
pub fn colocate_control_flow(graph: &mut Graph) -> Result<()> {
    let moves = |flow| matches!(flow, Flow::Switch | Flow::Exit | Flow::Enter | Flow::NextIteration);
    if !graph.nodes().any(|(_, node)| moves(node.op.flow)) {
        return Ok(());
    }
    let consumers = first_consumers(graph);
    for id in topological_order(graph)? {
        let node = graph.node(id);
        let with = match node.op.flow {
            Flow::Switch | Flow::Exit => node.inputs.first().map(|input| input.node),
            Flow::Enter if node.input_types.first().is_some_and(|input| input.is_ref) => None,
            Flow::Enter | Flow::NextIteration => consumers[id.index()],
            _ => None,
        };
        if let Some(with) = with {
            let device = graph.node(with).assigned_device.clone();
            if !Arc::ptr_eq(&device, &graph.node(id).assigned_device) {
                graph.node_mut(id).assigned_device = device;
            }
        }
    }
    Ok(())
}

/// For each node the first one that takes a value of it.
fn first_consumers(graph: &Graph) -> Vec<Option<NodeId>> {
    let mut first = vec![None; graph.len()];
    for (id, node) in graph.nodes() {
        for input in &node.inputs {
            first[input.node.index()].get_or_insert(id);
        }
    }
    first
}
