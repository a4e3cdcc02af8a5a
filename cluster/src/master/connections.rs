//! Tensors of a graph that feed others of the same graph.

use graphmill_graph::{Endpoint, EndpointName, Graph, NodeId};
use graphmill_tensor::{Result, invalid_argument, not_found};
use graphmill_wire::tensorflow::TensorConnection;

/// A graph in which the consumers of each `to_tensor` take its `from_tensor` instead.
///
/// # Errors
/// `INVALID_ARGUMENT` or `NOT_FOUND` for tensors that do not exist, differ in type, are fed otherwise too, or would depend on
/// themselves.
pub(super) fn connect(graph: &Graph, connections: &[TensorConnection], feeds: &[String]) -> Result<Graph> {
    let mut connected = graph.clone();
    let mut fed: Vec<String> = feeds.iter().map(|feed| EndpointName::parse(feed).to_string()).collect();
    for connection in connections {
        let (from, to) = (&connection.from_tensor, &connection.to_tensor);
        let source = find(graph, from)
            .ok_or_else(|| invalid_argument!("Requested tensor connection from unknown tensor: \"{from}\"."))?;
        let replaced = find(graph, to).ok_or_else(|| not_found!("FeedInputs: unable to find feed output {to}"))?;
        let name = EndpointName::parse(to).to_string();
        if fed.contains(&name) {
            return Err(invalid_argument!("Endpoint \"{to}\" fed more than once."));
        }
        fed.push(name);
        let dtype = |endpoint: Endpoint| {
            let types = &graph.node(endpoint.node).output_types;
            types.get(endpoint.slot as usize).map(|slot| slot.dtype)
        };
        if dtype(source) != dtype(replaced) {
            return Err(invalid_argument!("Requested tensor connection from \"{from}\" to \"{to}\" of another type."));
        }
        if depends_on(&connected, source.node, replaced.node) {
            return Err(invalid_argument!(
                "Requested Tensor connection between nodes \"{}\" and \"{}\" would create a cycle.",
                graph.node(replaced.node).name,
                graph.node(source.node).name
            ));
        }
        replace(&mut connected, replaced, source);
    }
    Ok(connected)
}

fn find(graph: &Graph, name: &str) -> Option<Endpoint> {
    let EndpointName { node, slot } = EndpointName::parse(name);
    let (node, slot) = (graph.find(node)?, slot?);
    let exists = (slot as usize) < graph.node(node).output_types.len();
    exists.then_some(Endpoint { node, slot })
}

fn replace(graph: &mut Graph, old: Endpoint, new: Endpoint) {
    // As with a feed, what only waits for a placeholder then waits for its value.
    let placeholder = matches!(graph.node(old.node).op_name(), "Placeholder" | "PlaceholderV2");
    let concerned: Vec<NodeId> = graph
        .nodes()
        .filter(|(_, node)| node.inputs.contains(&old) || placeholder && node.control_inputs.contains(&old.node))
        .map(|(id, _)| id)
        .collect();
    for id in concerned {
        let node = graph.node_mut(id);
        node.inputs.iter_mut().filter(|input| **input == old).for_each(|input| *input = new);
        if placeholder {
            node.control_inputs.iter_mut().filter(|input| **input == old.node).for_each(|input| *input = new.node);
        }
    }
}

/// Whether `node` needs `other`, directly or by others.
fn depends_on(graph: &Graph, node: NodeId, other: NodeId) -> bool {
    let mut seen = vec![false; graph.len()];
    let mut open = vec![node];
    while let Some(id) = open.pop() {
        if id == other {
            return true;
        }
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        let node = graph.node(id);
        open.extend(node.inputs.iter().map(|input| input.node).chain(node.control_inputs.iter().copied()));
    }
    false
}
