//! Where the nodes of a graph are and who reads them.

use graphmill_graph::EndpointName;
use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::{GraphDef, NodeDef};
use std::collections::HashMap;
use std::mem;

/// A node's input: another node's output, or a node to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source {
    /// The number of the node in the graph.
    pub node: usize,
    /// The output; `None` for control edges.
    pub slot: Option<u32>,
}

/// The edges of a `GraphDef` by numbers of nodes.
#[derive(Clone, Debug)]
pub struct GraphIndex {
    by_name: HashMap<String, usize>,
    inputs: Vec<Vec<Source>>,
    consumers: Vec<Vec<usize>>,
    positions: Vec<usize>,
}

impl GraphIndex {
    /// Resolves every edge of the graph.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for two nodes of one name and for inputs that do not exist.
    pub fn new(graph: &GraphDef) -> Result<GraphIndex> {
        let mut by_name = HashMap::with_capacity(graph.node.len());
        for (i, node) in graph.node.iter().enumerate() {
            if by_name.insert(node.name.clone(), i).is_some() {
                return Err(invalid_argument!("The graph has two nodes named \"{}\"; names must be unique", node.name));
            }
        }
        let mut inputs = Vec::with_capacity(graph.node.len());
        let mut consumers = vec![Vec::new(); graph.node.len()];
        for (i, node) in graph.node.iter().enumerate() {
            let mut sources = Vec::with_capacity(node.input.len());
            for input in &node.input {
                let name = EndpointName::parse(input);
                let Some(&source) = by_name.get(name.node) else {
                    return Err(invalid_argument!(
                        "Node \"{}\" reads \"{input}\", but the graph has no node \"{}\"",
                        node.name,
                        name.node
                    ));
                };
                sources.push(Source { node: source, slot: name.slot });
                if consumers[source].last() != Some(&i) {
                    consumers[source].push(i);
                }
            }
            inputs.push(sources);
        }
        let positions = positions(&inputs);
        Ok(GraphIndex { by_name, inputs, consumers, positions })
    }

    /// The number of the node of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The inputs of a node, data first.
    pub fn inputs(&self, node: usize) -> &[Source] {
        &self.inputs[node]
    }

    /// The data input of this number.
    pub fn data_input(&self, node: usize, index: usize) -> Option<Source> {
        self.inputs[node].get(index).copied().filter(|source| source.slot.is_some())
    }

    /// The data inputs of a node.
    pub fn data_inputs(&self, node: usize) -> impl Iterator<Item = Source> + '_ {
        self.inputs[node].iter().copied().filter(|source| source.slot.is_some())
    }

    /// Where a node stands when every node comes after those that it reads; edges that close a loop do not count.
    pub fn position(&self, node: usize) -> usize {
        self.positions[node]
    }

    /// The nodes that read an output of this node or wait for it, in the order of the graph.
    pub fn consumers(&self, node: usize) -> &[usize] {
        &self.consumers[node]
    }

    /// The nodes that read an output of this node.
    pub fn data_consumers(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.consumers[node].iter().copied().filter(move |&c| self.data_inputs(c).any(|source| source.node == node))
    }
}

/// The name of a node's output as TensorFlow's clients write it: `node:0`.
pub(crate) fn tensor_name(node: &NodeDef, slot: u32) -> String {
    format!("{}:{slot}", node.name)
}

/// Numbers the nodes in depth-first order of their inputs.
fn positions(inputs: &[Vec<Source>]) -> Vec<usize> {
    let mut positions = vec![0; inputs.len()];
    let mut entered = vec![false; inputs.len()];
    let mut next = 0;
    let mut stack: Vec<(usize, usize)> = Vec::new();
    for root in 0..inputs.len() {
        if !mem::replace(&mut entered[root], true) {
            stack.push((root, 0));
        }
        while let Some((node, at)) = stack.last_mut() {
            match inputs[*node].get(*at) {
                Some(source) => {
                    *at += 1;
                    if !mem::replace(&mut entered[source.node], true) {
                        stack.push((source.node, 0));
                    }
                }
                None => {
                    positions[*node] = next;
                    next += 1;
                    stack.pop();
                }
            }
        }
    }
    positions
}
