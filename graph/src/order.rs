//! Order of a graph's nodes.

use crate::{Flow, Graph, NodeId};
use graphmill_tensor::{Result, invalid_argument};

/// All nodes, each behind those that it takes from or waits for. Edges from `NextIteration` to `Merge` are ignored: they lead back.
/// The order is the same for the same graph.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is a cycle that is not a loop.
pub fn topological_order(graph: &Graph) -> Result<Vec<NodeId>> {
    let leads_back = |source: NodeId, target: NodeId| {
        graph.node(target).op.flow == Flow::Merge && graph.node(source).op.flow == Flow::NextIteration
    };
    let mut pending = vec![0usize; graph.len()];
    for (id, node) in graph.nodes() {
        let data = node.inputs.iter().map(|input| input.node).filter(|&source| !leads_back(source, id));
        let mut sources: Vec<NodeId> = data.chain(node.control_inputs.iter().copied()).collect();
        sources.sort_unstable();
        sources.dedup();
        pending[id.index()] = sources.len();
    }
    let consumers = graph.consumers();
    let mut order: Vec<NodeId> = graph.nodes().map(|(id, _)| id).filter(|id| pending[id.index()] == 0).collect();
    let mut done = 0;
    while let Some(&id) = order.get(done) {
        done += 1;
        for &consumer in &consumers[id.index()] {
            let only_back = leads_back(id, consumer) && !graph.node(consumer).control_inputs.contains(&id);
            if only_back {
                continue;
            }
            let left = &mut pending[consumer.index()];
            *left -= 1;
            if *left == 0 {
                order.push(consumer);
            }
        }
    }
    if order.len() == graph.len() {
        return Ok(order);
    }
    let stuck = graph.nodes().filter(|(id, _)| pending[id.index()] != 0).take(3);
    let names: Vec<&str> = stuck.map(|(_, node)| &*node.name).collect();
    Err(invalid_argument!(
        "Graph is invalid, contains a cycle with {} nodes, including: {}",
        graph.len() - order.len(),
        names.join(", ")
    ))
}
