//! What a step says of itself: the statistics of its nodes, as `tf.python.client.timeline` reads them, and the graphs that it ran.

use crate::peers::task_of;
use graphmill_graph::{Flow, Graph, PartitionOptions, partition};
use graphmill_runtime::{Devices, NodeTrace, Trace};
use graphmill_tensor::{DType, Shape, encode_shape};
use graphmill_wire::tensorflow::{
    AllocationDescription, DeviceStepStats, GraphDef, NodeExecStats, NodeOutput, StepStats, TensorDescription,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The name of the node that TensorFlow's executors begin with; readers look for it as the beginning of the step.
const SOURCE: &str = "_SOURCE";
const MEBIBYTE: usize = 1 << 20;

/// What `trace` recorded of a run of `graph`, by device.
pub(crate) fn step_stats(trace: &Trace, graph: &Graph) -> StepStats {
    let nodes = trace.nodes();
    let mut by_device: BTreeMap<&str, Vec<&NodeTrace>> = BTreeMap::new();
    for node in &nodes {
        by_device.entry(node.device.name()).or_default().push(node);
    }
    StepStats { dev_stats: by_device.into_iter().map(|(device, nodes)| device_stats(device, &nodes, graph)).collect() }
}

fn device_stats(device: &str, nodes: &[&NodeTrace], graph: &Graph) -> DeviceStepStats {
    let began = nodes.iter().map(|node| node.started).min().unwrap_or_default();
    let mut node_stats = Vec::with_capacity(nodes.len() + 1);
    node_stats.push(NodeExecStats {
        node_name: SOURCE.to_owned(),
        timeline_label: format!("{SOURCE} = NoOp()"),
        ..times(began, began)
    });
    node_stats.extend(nodes.iter().map(|node| node_stats_of(node, graph)));
    node_stats.extend(nodes.iter().filter_map(|node| transfer(node, graph)));
    let thread_names: HashMap<u32, String> =
        nodes.iter().map(|node| (node.thread, format!("thread {}", node.thread))).collect();
    DeviceStepStats { device: device.to_owned(), node_stats, thread_names: thread_names.into_iter().collect() }
}

/// The graph that a task has run, as one graph for each device, with the sends and receives that TensorFlow's tasks have between theirs.
pub(crate) fn partition_graphs(graph: &Graph, devices: &Devices) -> Vec<GraphDef> {
    let next_name = AtomicU64::new(0);
    let options = PartitionOptions {
        incarnation: &|name| devices.find(name).map(|device| device.incarnation()),
        next_name: &next_name,
        bfloat16_sendrecv: false,
        location: &str::to_owned,
    };
    match partition(graph, &options) {
        Ok(parts) if parts.len() > 1 => parts.iter().map(|part| part.graph.to_def()).collect(),
        _ => vec![graph.to_def()],
    }
}

fn node_stats_of(node: &NodeTrace, graph: &Graph) -> NodeExecStats {
    NodeExecStats {
        node_name: node.name.to_string(),
        timeline_label: format!("{} = {}({})", node.name, node.op, inputs(node, graph).join(", ")),
        thread_id: node.thread,
        output: node.outputs.iter().map(|(slot, dtype, shape)| output(*slot, *dtype, shape)).collect(),
        ..times(node.started, node.ended)
    }
}

/// What a node has received from another task, under the name and in the words that TensorFlow's timelines have for it.
fn transfer(node: &NodeTrace, graph: &Graph) -> Option<NodeExecStats> {
    let receive = graph.node(graph.find(&node.name)?);
    let attrs = &receive.attrs;
    let (from, to) = (attrs.str("send_device").ok()?, attrs.str("recv_device").ok()?);
    if receive.op.flow != Flow::Recv || task_of(from) == task_of(to) {
        return None;
    }
    let bytes: usize =
        node.outputs.iter().map(|(_, dtype, shape)| dtype.size().saturating_mul(shape.num_elements())).sum();
    let size =
        if bytes > MEBIBYTE / 10 { format!("{:.1}MB", bytes as f64 / MEBIBYTE as f64) } else { format!("{bytes}B") };
    let micros = node.ended.saturating_sub(node.started).as_micros().max(1);
    let rate = bytes as f64 * 8.0 / micros as f64;
    Some(NodeExecStats {
        node_name: "RecvTensor".to_owned(),
        timeline_label: format!("[{size}] [{rate:.6}Mb/s] {} from {from} to {to}", attrs.str("tensor_name").ok()?),
        thread_id: node.thread,
        output: node.outputs.iter().map(|(slot, dtype, shape)| output(*slot, *dtype, shape)).collect(),
        ..times(node.started, node.ended)
    })
}

/// The inputs as the graph spells them; none for a node within a function that is called.
fn inputs(node: &NodeTrace, graph: &Graph) -> Vec<String> {
    let Some(id) = graph.find(&node.name) else { return Vec::new() };
    let found = graph.node(id);
    let data = found.inputs.iter().map(|input| {
        let name = &graph.node(input.node).name;
        if input.slot == 0 { name.to_string() } else { format!("{name}:{}", input.slot) }
    });
    data.chain(found.control_inputs.iter().map(|&input| format!("^{}", graph.node(input).name))).collect()
}

fn output(slot: usize, dtype: DType, shape: &Shape) -> NodeOutput {
    let bytes = dtype.size().saturating_mul(shape.num_elements());
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    NodeOutput {
        slot: i32::try_from(slot).unwrap_or(i32::MAX),
        tensor_description: Some(TensorDescription {
            dtype: dtype.number(),
            shape: Some(encode_shape(shape)),
            allocation_description: Some(AllocationDescription {
                requested_bytes: bytes,
                allocated_bytes: bytes,
                allocator_name: "cpu".to_owned(),
                ..Default::default()
            }),
        }),
    }
}

fn times(started: Duration, ended: Duration) -> NodeExecStats {
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let start = nanos(started);
    let spent = nanos(ended.saturating_sub(started));
    NodeExecStats {
        all_start_micros: start / 1000,
        op_end_rel_micros: spent / 1000,
        all_end_rel_micros: spent / 1000,
        scheduled_micros: start / 1000,
        all_start_nanos: start,
        op_end_rel_nanos: spent,
        all_end_rel_nanos: spent,
        scheduled_nanos: start,
        ..Default::default()
    }
}
