//! Frames of v1 loops: which loop each node runs in.

use crate::{Flow, Graph, Node, NodeId};
use graphmill_tensor::{Result, internal, invalid_argument};
use std::collections::HashMap;
use std::sync::Arc;

/// A frame of one graph, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameId(pub u32);

impl FrameId {
    /// The frame of nodes that are in no loop.
    pub const ROOT: FrameId = FrameId(0);

    /// The id as an index of [`FrameMap::frames`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One loop, or the root.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The name that its `Enter`s give; empty for the root.
    pub name: Arc<str>,
    /// The frame that it is entered from; `None` for the root.
    pub parent: Option<FrameId>,
    /// How many iterations may be in progress at once; 1 for the root.
    pub parallel_iterations: u32,
    /// The nodes through which it is entered.
    pub enters: Vec<NodeId>,
    /// The nodes through which it is left.
    pub exits: Vec<NodeId>,
    /// The node that says whether it goes on.
    pub loop_cond: Option<NodeId>,
}

/// What an `Enter` does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EnterInfo {
    /// The frame that it enters.
    pub frame: FrameId,
    /// Whether its value is there in every iteration rather than in the first alone.
    pub is_constant: bool,
}

/// The frames of a graph.
#[derive(Clone, Debug)]
pub struct FrameMap {
    /// The frames; the root is the first, and parents come before children.
    pub frames: Vec<Frame>,
    of: Vec<FrameId>,
    enters: HashMap<NodeId, EnterInfo>,
}

impl FrameMap {
    /// The frame in which a node runs: for an `Enter` that from which it enters, for an `Exit` that which it leaves. Nodes that can
    /// never run, because they wait for themselves, count as the root's.
    pub fn of(&self, node: NodeId) -> FrameId {
        self.of.get(node.index()).copied().unwrap_or(FrameId::ROOT)
    }

    /// A frame.
    ///
    /// # Panics
    /// If the id belongs to another map.
    pub fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.index()]
    }

    /// What an `Enter` does; `None` for other nodes.
    pub fn enter(&self, node: NodeId) -> Option<EnterInfo> {
        self.enters.get(&node).copied()
    }

    /// The frame in which a node's outputs are.
    pub fn output_frame(&self, graph: &Graph, node: NodeId) -> FrameId {
        match graph.node(node).op.flow {
            Flow::Enter => self.enter(node).map_or(FrameId::ROOT, |enter| enter.frame),
            Flow::Exit => self.frame(self.of(node)).parent.unwrap_or(FrameId::ROOT),
            _ => self.of(node),
        }
    }

    /// Whether there is any loop.
    pub fn has_loops(&self) -> bool {
        self.frames.len() > 1
    }
}

/// Finds the frame of each node, walking from nodes without inputs along the edges.
///
/// # Errors
/// With TensorFlow's texts: `INVALID_ARGUMENT` for a node whose inputs are in different frames, an `Enter` without a frame name,
/// an `Exit` outside of loops, and a frame with two `LoopCond`s; `INTERNAL` for one frame name in two parent frames.
pub fn frames(graph: &Graph) -> Result<FrameMap> {
    let root = Frame {
        name: Arc::from(""),
        parent: None,
        parallel_iterations: 1,
        enters: Vec::new(),
        exits: Vec::new(),
        loop_cond: None,
    };
    let mut map = FrameMap { frames: vec![root], of: vec![FrameId::ROOT; graph.len()], enters: HashMap::new() };
    let is_frame_op = |node: &Node| matches!(node.op.flow, Flow::Enter | Flow::Exit | Flow::LoopCond);
    if !graph.nodes().any(|(_, node)| is_frame_op(node)) {
        return Ok(map);
    }
    let consumers = graph.consumers();
    let mut by_name: HashMap<Arc<str>, FrameId> = HashMap::from([(Arc::from(""), FrameId::ROOT)]);
    // By which node each node was reached.
    let mut reached_by: Vec<Option<NodeId>> = vec![None; graph.len()];
    let mut queue = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        if node.inputs.is_empty() && node.control_inputs.is_empty() {
            reached_by[id.index()] = Some(id);
            map.arrive(id, node, FrameId::ROOT, &mut by_name)?;
            queue.push(id);
        }
    }
    let mut done = 0;
    while let Some(&id) = queue.get(done) {
        done += 1;
        let frame = map.output_frame(graph, id);
        for &consumer in &consumers[id.index()] {
            let node = graph.node(consumer);
            match reached_by[consumer.index()] {
                None => {
                    reached_by[consumer.index()] = Some(id);
                    map.arrive(consumer, node, frame, &mut by_name)?;
                    queue.push(consumer);
                }
                Some(first) if map.of(consumer) != frame => {
                    return Err(invalid_argument!(
                        "{{{{node {}}}}} has inputs from different frames. The input {{{{node {}}}}} is in frame '{}'. The input \
                         {{{{node {}}}}} is in frame '{}'.",
                        node.name,
                        graph.node(id).name,
                        map.frame(frame).name,
                        graph.node(first).name,
                        map.frame(map.of(consumer)).name
                    ));
                }
                Some(_) => {}
            }
        }
    }
    map.check_loops(graph)?;
    Ok(map)
}

impl FrameMap {
    /// Puts a node into the frame in which its inputs are, and makes the frame that it enters.
    fn arrive(
        &mut self,
        id: NodeId,
        node: &Node,
        frame: FrameId,
        by_name: &mut HashMap<Arc<str>, FrameId>,
    ) -> Result<()> {
        self.of[id.index()] = frame;
        if node.op.flow != Flow::Enter {
            return Ok(());
        }
        let name = node.attrs.str("frame_name")?;
        if name.is_empty() {
            return Err(invalid_argument!("The Enter {{{{node {}}}}} must have a frame name.", node.name));
        }
        let entered = match by_name.get(name) {
            Some(&entered) => {
                let parent = self.frame(entered).parent.unwrap_or(FrameId::ROOT);
                if parent != frame {
                    return Err(internal!(
                        "Invalid loop structure: Mismatched parent frames for \"{name}\": \"{}\" vs \"{}\". The node giving this \
                         error: {{{{node {}}}}}. This is an internal bug, please file a bug report with instructions on how to \
                         reproduce the error.",
                        self.frame(frame).name,
                        self.frame(parent).name,
                        node.name
                    ));
                }
                entered
            }
            None => {
                // TensorFlow lets any number pass; with none at a time a loop could not run.
                let parallel = node.attrs.int("parallel_iterations")?.max(1);
                let name: Arc<str> = Arc::from(name);
                // There are fewer frames than nodes, whose ids fit.
                let entered = FrameId(self.frames.len() as u32);
                self.frames.push(Frame {
                    name: name.clone(),
                    parent: Some(frame),
                    parallel_iterations: u32::try_from(parallel).unwrap_or(u32::MAX),
                    enters: Vec::new(),
                    exits: Vec::new(),
                    loop_cond: None,
                });
                by_name.insert(name, entered);
                entered
            }
        };
        self.frames[entered.index()].enters.push(id);
        self.enters.insert(id, EnterInfo { frame: entered, is_constant: node.attrs.bool("is_constant")? });
        Ok(())
    }

    /// Notes exits and conditions, of which each loop has one.
    fn check_loops(&mut self, graph: &Graph) -> Result<()> {
        for (id, node) in graph.nodes() {
            let frame = self.of(id);
            match node.op.flow {
                Flow::Exit if frame == FrameId::ROOT => {
                    return Err(
                        invalid_argument!("Invalid Exit op: Cannot find a corresponding Enter op.").at_node(&node.name)
                    );
                }
                Flow::Exit => self.frames[frame.index()].exits.push(id),
                Flow::LoopCond => {
                    let frame = &mut self.frames[frame.index()];
                    // The counters of a loop and of its gradient run in the frame of the loop.
                    let is_counter = |node: &Node| node.name.contains("LoopCounter");
                    if let Some(other) = frame.loop_cond.map(|other| graph.node(other))
                        && !is_counter(other)
                        && !is_counter(node)
                    {
                        return Err(invalid_argument!(
                            "Invalid loop structure: Loop \"{}\" has more than one LoopCond node: {{{{node {}}}}} and {{{{node \
                             {}}}}}. This is an internal bug, please file a bug report with instructions on how to reproduce the \
                             error.",
                            frame.name,
                            node.name,
                            other.name
                        ));
                    }
                    frame.loop_cond = Some(id);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
