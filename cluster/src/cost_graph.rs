//! What nodes cost, as TensorFlow's cost model tells it.

use graphmill_graph::{Graph, Node, NodeId};
use graphmill_runtime::{NodeTrace, Trace};
use graphmill_tensor::encode_shape;
use graphmill_wire::tensorflow::cost_graph_def::node::{InputInfo, OutputInfo};
use graphmill_wire::tensorflow::{CostGraphDef, TensorShapeProto, cost_graph_def};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Nodes that each device's part of a cost graph begins with: what stands for its beginning and its end.
const ENDS: [&str; 2] = ["_SOURCE", "_SINK"];

/// What the nodes of a graph cost in a run that `trace` recorded, by device: for nodes that ran several times the most that a run took.
/// What crosses between tasks, and nodes that did not run, have no sizes.
pub(crate) fn cost_graph(trace: &Trace, graph: &Graph) -> CostGraphDef {
    let nodes = trace.nodes();
    let mut dearest: HashMap<&str, &NodeTrace> = HashMap::new();
    for node in &nodes {
        let known = dearest.entry(&node.name).or_insert(node);
        if duration(node) > duration(known) {
            *known = node;
        }
    }
    let mut by_device: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
    for (id, node) in graph.nodes() {
        by_device.entry(&node.assigned_device).or_default().push(id);
    }
    let mut numbers = Numbers { sources: HashMap::new(), nodes: vec![0; graph.len()] };
    let mut next = 0;
    for (&device, ids) in &by_device {
        numbers.sources.insert(device, next);
        next += ENDS.len() as i32;
        for id in ids {
            numbers.nodes[id.index()] = next;
            next = next.saturating_add(1);
        }
    }
    let consumers = graph.consumers();
    let is_last = |id: NodeId| consumers.get(id.index()).is_none_or(|list| list.is_empty());
    let mut costs = CostGraphDef::default();
    for (device, ids) in &by_device {
        let first = numbers.source(device);
        for (at, name) in (first..).zip(ENDS) {
            let control_input = match at == first {
                true => Vec::new(),
                false => ids.iter().filter(|&&id| is_last(id)).map(|id| numbers.of(*id)).collect(),
            };
            costs.node.push(cost_graph_def::Node {
                name: name.to_owned(),
                id: at,
                control_input,
                ..Default::default()
            });
        }
        for &id in ids {
            let node = graph.node(id);
            let recorded = dearest.get(&*node.name).copied();
            costs.node.push(cost_graph_def::Node { is_final: is_last(id), ..numbers.describe(id, node, recorded) });
        }
    }
    costs
}

fn duration(node: &NodeTrace) -> Duration {
    node.ended.saturating_sub(node.started)
}

/// The ids that nodes have in a cost graph.
struct Numbers<'a> {
    /// Of what stands for the beginning of a device's part.
    sources: HashMap<&'a str, i32>,
    nodes: Vec<i32>,
}

impl Numbers<'_> {
    fn source(&self, device: &str) -> i32 {
        self.sources.get(device).copied().unwrap_or_default()
    }

    fn of(&self, id: NodeId) -> i32 {
        self.nodes.get(id.index()).copied().unwrap_or_default()
    }

    fn describe(&self, id: NodeId, node: &Node, recorded: Option<&NodeTrace>) -> cost_graph_def::Node {
        let input = |input: &graphmill_graph::Endpoint| InputInfo {
            preceding_node: self.of(input.node),
            preceding_port: i32::try_from(input.slot).unwrap_or(i32::MAX),
        };
        let mut control_input: Vec<i32> = node.control_inputs.iter().map(|&source| self.of(source)).collect();
        if node.inputs.is_empty() && control_input.is_empty() {
            control_input.push(self.source(&node.assigned_device));
        }
        cost_graph_def::Node {
            name: node.name.to_string(),
            device: node.assigned_device.to_string(),
            id: self.of(id),
            input_info: node.inputs.iter().map(input).collect(),
            output_info: (0..node.output_types.len()).map(|slot| output(slot, recorded)).collect(),
            control_input,
            compute_cost: recorded.map_or(0, |node| i64::try_from(duration(node).as_micros()).unwrap_or(i64::MAX)),
            ..Default::default()
        }
    }
}

fn output(slot: usize, recorded: Option<&NodeTrace>) -> OutputInfo {
    let found = recorded.and_then(|node| node.outputs.iter().find(|(at, ..)| *at == slot));
    let Some((_, dtype, shape)) = found else {
        let shape = Some(TensorShapeProto { unknown_rank: true, ..Default::default() });
        return OutputInfo { size: -1, alias_input_port: -1, shape, ..Default::default() };
    };
    let bytes = dtype.size().saturating_mul(shape.num_elements());
    OutputInfo {
        size: i64::try_from(bytes).unwrap_or(i64::MAX),
        alias_input_port: -1,
        shape: Some(encode_shape(shape)),
        dtype: dtype.number(),
    }
}
