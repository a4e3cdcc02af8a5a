//! Loops on the devices that take part in a loop of another device.
//!
//! A receive within a loop must run once for each iteration. On each device that receives values in a loop's frame stands a loop
//! without a body, `Enter`, `Merge`, `Switch`, `NextIteration`, whose `Switch` obeys the condition of the loop itself; each receive waits
//! for its `Merge`. Loops within loops are entered from the `Merge` of the outer one.

use super::{PartitionOptions, fresh_name, same};
use crate::{Attrs, Endpoint, Flow, FrameId, FrameMap, Graph, Node, NodeId, frames, op_def};
use graphmill_tensor::{Result, internal, invalid_argument};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::tensor_shape_proto::Dim;
use graphmill_wire::tensorflow::{TensorProto, TensorShapeProto};
use std::collections::HashMap;
use std::sync::Arc;

/// What the names of these loops' nodes begin with.
const PREFIX: &str = "_cloop";

/// The number of the type that the loops carry, which is also that of what stands for control edges between devices.
pub(super) const FLOAT: i32 = 1;

/// Whether this is the node that the receives of a frame wait for.
pub(super) fn is_control_merge(node: &Node) -> bool {
    node.op.flow == Flow::Merge && node.name.starts_with(PREFIX)
}

/// Adds the loops that edges between devices need, and for each such edge a control edge from the `Merge` to its target. A target
/// may get the same edge several times: as many as receives are to be made for it.
pub(super) fn add(graph: &mut Graph, options: &PartitionOptions<'_>) -> Result<()> {
    if !graph.nodes().any(|(_, node)| node.op.flow == Flow::Enter)
        || graph.nodes().any(|(_, node)| is_control_merge(node))
    {
        return Ok(());
    }
    let frames = frames(graph)?;
    let mut crossing = Vec::new();
    for (id, node) in graph.nodes() {
        let frame = frames.of(id);
        if frame == FrameId::ROOT {
            continue;
        }
        for source in node.inputs.iter().map(|input| input.node).chain(node.control_inputs.iter().copied()) {
            if !same(&graph.node(source).assigned_device, &node.assigned_device)
                && frames.output_frame(graph, source) == frame
            {
                crossing.push((frame, id));
            }
        }
    }
    let mut loops = ControlLoops { graph, options, frames: &frames, merges: HashMap::new() };
    for (frame, target) in crossing {
        let merge = loops.merge(frame, target)?;
        loops.graph.node_mut(target).control_inputs.push(merge);
    }
    Ok(())
}

struct ControlLoops<'a> {
    graph: &'a mut Graph,
    options: &'a PartitionOptions<'a>,
    frames: &'a FrameMap,
    /// The `Merge` of a frame on a device.
    merges: HashMap<(FrameId, Arc<str>), NodeId>,
}

impl ControlLoops<'_> {
    /// The `Merge` of a frame on the device of `target`, which the nodes that are made are named for.
    fn merge(&mut self, frame: FrameId, target: NodeId) -> Result<NodeId> {
        let device = self.graph.node(target).assigned_device.clone();
        // Frames that have no loop there yet, innermost first, each with the names of its loop's nodes.
        let mut missing = Vec::new();
        let mut at = frame;
        while at != FrameId::ROOT && !self.merges.contains_key(&(at, device.clone())) {
            missing.push((at, [(); 4].map(|()| self.name(PREFIX, target))));
            at = self.frames.frame(at).parent.unwrap_or(FrameId::ROOT);
        }
        let mut entered_from = match self.merges.get(&(at, device.clone())) {
            Some(&merge) => merge,
            None => self.root_constant(target, &device)?,
        };
        for (frame, names) in missing.into_iter().rev() {
            entered_from = self.control_loop(frame, entered_from, &names, &device)?;
            self.merges.insert((frame, device.clone()), entered_from);
        }
        Ok(entered_from)
    }

    fn name(&self, prefix: &str, target: NodeId) -> String {
        fresh_name(self.graph, self.options, prefix, &self.graph.node(target).name)
    }

    /// What an outermost loop is entered with.
    fn root_constant(&mut self, target: NodeId, device: &Arc<str>) -> Result<NodeId> {
        let name = self.name("", target);
        self.graph.add_node(empty_constant(&name, device)?)
    }

    /// A loop without a body; the result is its `Merge`.
    fn control_loop(
        &mut self,
        frame: FrameId,
        entered_from: NodeId,
        names: &[String; 4],
        device: &Arc<str>,
    ) -> Result<NodeId> {
        let info = self.frames.frame(frame);
        let Some(loop_cond) = info.loop_cond else {
            return Err(invalid_argument!("A cross-device loop must have a pivot predicate: {}", info.name));
        };
        let [enter, merge, switch, next] = names;
        let first = |node| Endpoint { node, slot: 0 };

        let mut attrs = float_attrs("T");
        attrs.set("frame_name", Value::S(info.name.as_bytes().to_vec().into()));
        attrs.set("parallel_iterations", Value::I(i64::from(info.parallel_iterations)));
        let enter = self.add(enter, "Enter", attrs, &[first(entered_from)], device)?;
        let mut attrs = float_attrs("T");
        attrs.set("N", Value::I(2));
        // The second input is the next iteration, which is made below.
        let merge = self.add(merge, "Merge", attrs, &[first(enter), first(enter)], device)?;
        let inputs = [first(merge), first(loop_cond)];
        let switch = self.add(switch, "Switch", float_attrs("T"), &inputs, device)?;
        let goes_on = Endpoint { node: switch, slot: 1 };
        let next = self.add(next, "NextIteration", float_attrs("T"), &[goes_on], device)?;
        self.graph.node_mut(merge).inputs[1] = first(next);
        if !same(&self.graph.node(loop_cond).assigned_device, device) {
            self.graph.node_mut(switch).control_inputs.push(merge);
        }
        Ok(merge)
    }

    fn add(&mut self, name: &str, op: &str, attrs: Attrs, inputs: &[Endpoint], device: &Arc<str>) -> Result<NodeId> {
        let mut node = new_node(name, op, attrs, device)?;
        node.inputs = inputs.into();
        self.graph.add_node(node)
    }
}

/// A node without inputs on a device.
pub(super) fn new_node(name: &str, op: &str, attrs: Attrs, device: &Arc<str>) -> Result<Node> {
    let op = op_def(op).ok_or_else(|| internal!("Op {op} has no schema"))?;
    let mut node = Node::new(name, op, attrs)?;
    node.device = device.clone();
    node.assigned_device = device.clone();
    Ok(node)
}

/// A constant that has no elements.
pub(super) fn empty_constant(name: &str, device: &Arc<str>) -> Result<Node> {
    let shape = TensorShapeProto { dim: vec![Dim::default()], ..Default::default() };
    let value = TensorProto { dtype: FLOAT, tensor_shape: Some(shape), ..Default::default() };
    let mut attrs = float_attrs("dtype");
    attrs.set("value", Value::Tensor(Box::new(value)));
    new_node(name, "Const", attrs, device)
}

/// The attribute that says that a node is one of floats.
pub(super) fn float_attrs(name: &str) -> Attrs {
    let mut attrs = Attrs::new();
    attrs.set(name, Value::Type(FLOAT));
    attrs
}
