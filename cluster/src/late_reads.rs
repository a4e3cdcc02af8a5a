//! When reference variables are read.

use graphmill_graph::{Endpoint, Flow, Graph, Node, NodeId};

/// Has nodes that wait for others read reference variables themselves, when they run, instead of by way of an `Identity`.
///
/// In TensorFlow an `Identity` of a reference is no copy: a node behind it sees what updates have written meanwhile. Programs build on
/// that where a node has control edges from updates and takes the value of a variable that was read outside of them, as what
/// `SyncReplicasOptimizer` puts into its queue of tokens. Other readers keep the value that the `Identity` has found.
pub(crate) fn read_references_late(graph: &mut Graph) {
    let late: Vec<(NodeId, usize, Endpoint)> = graph
        .nodes()
        .filter(|(_, node)| node.op.flow == Flow::Plain && waits(graph, node))
        .flat_map(|(id, node)| node.inputs.iter().enumerate().map(move |(at, &input)| (id, at, input)))
        .filter_map(|(id, at, input)| Some((id, at, referred(graph, input)?)))
        .collect();
    for (id, at, source) in late {
        if let Some(input) = graph.node_mut(id).inputs.get_mut(at) {
            *input = source;
        }
    }
}

/// Whether a node has control edges, or takes a value from one that has. Clients give a node no control edges where one of its inputs
/// has them already, such as a constant that was made in the same scope.
fn waits(graph: &Graph, node: &Node) -> bool {
    !node.control_inputs.is_empty() || node.inputs.iter().any(|input| !graph.node(input.node).control_inputs.is_empty())
}

/// The reference of which an endpoint is a plain copy.
fn referred(graph: &Graph, endpoint: Endpoint) -> Option<Endpoint> {
    let node = graph.node(endpoint.node);
    if node.op_name() != "Identity" || !node.control_inputs.is_empty() {
        return None;
    }
    let &source = node.inputs.first()?;
    let output = graph.node(source.node).output_types.get(source.slot as usize)?;
    output.is_ref.then_some(source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef, attr_value::Value};

    #[test]
    fn only_nodes_that_wait_read_late() {
        let node = |name: &str, op: &str, inputs: &[&str]| {
            let dtype = AttrValue { value: Some(Value::Type(3)) };
            let key = if op == "VariableV2" { "dtype" } else { "T" };
            let mut attr = std::collections::HashMap::from([(key.to_owned(), dtype)]);
            if op == "VariableV2" {
                attr.insert("shape".to_owned(), AttrValue { value: Some(Value::Shape(Default::default())) });
            }
            let input = inputs.iter().map(|&input| input.to_owned()).collect();
            NodeDef { name: name.into(), op: op.into(), input, attr: attr.into_iter().collect(), ..Default::default() }
        };
        let nodes = vec![
            node("v", "VariableV2", &[]),
            node("read", "Identity", &["v"]),
            node("update", "AssignAdd", &["v", "read"]),
            node("late", "Neg", &["read", "^update"]),
            node("soon", "Neg", &["read"]),
            node("other", "Neg", &["soon", "^update"]),
            node("also_late", "Mul", &["read", "other"]),
        ];
        let mut graph = Graph::from_def(&GraphDef { node: nodes, ..Default::default() }).unwrap();
        read_references_late(&mut graph);
        let source = |name: &str, at: usize| {
            let node = graph.node(graph.find(name).unwrap());
            graph.node(node.inputs[at].node).name.to_string()
        };
        assert_eq!(source("late", 0), "v");
        assert_eq!(source("also_late", 0), "v");
        assert_eq!(source("soon", 0), "read");
        assert_eq!(source("update", 1), "read");
    }
}
