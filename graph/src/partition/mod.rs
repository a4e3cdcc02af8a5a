//! A placed graph, cut into one graph for each place that runs a part of it.
//!
//! Values cross from part to part through pairs of `_Send` and `_Recv`, as TensorFlow's workers expect them. Loops whose bodies are on
//! several devices get a loop of their own on each, which tells the receives of every iteration to run.

mod colocate;
mod control_loop;
mod memory;
mod split;

pub use colocate::colocate_control_flow;

use crate::{Graph, NodeId};
use graphmill_tensor::{Result, internal, invalid_argument};
use split::{Splitter, once_each};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a graph is cut.
pub struct PartitionOptions<'a> {
    /// The number that tells this life of a device's process from others; `None` for a device that is not known.
    pub incarnation: &'a dyn Fn(&str) -> Option<u64>,
    /// Counts the names `NODE_S<number>` of new nodes.
    pub next_name: &'a AtomicU64,
    /// Whether floats cross as bfloat16.
    pub bfloat16_sendrecv: bool,
    /// The part that a device's nodes are in, such as the name of its task, or its own.
    pub location: &'a dyn Fn(&str) -> String,
}

/// A part of a graph.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Where it runs.
    pub location: String,
    /// Its nodes, with the versions of the whole graph and the functions that they need.
    pub graph: Graph,
}

/// Cuts a placed and pruned graph. Parts come in the order in which the graph's nodes reach them; a graph with a single device is its
/// only part, unchanged, and a graph without nodes has none. Control flow is moved to the devices of its data first, as by
/// [`colocate_control_flow`]. A graph with the control loops of another master gets none of its own.
///
/// # Errors
/// `INTERNAL` for nodes without a device; `INVALID_ARGUMENT` for a loop over several devices without a `LoopCond`, a device that is
/// not known, and frames that do not fit.
pub fn partition(graph: &Graph, options: &PartitionOptions<'_>) -> Result<Vec<Partition>> {
    let Some((_, first)) = graph.nodes().next() else {
        return Ok(Vec::new());
    };
    if let Some((_, node)) = graph.nodes().find(|(_, node)| node.assigned_device.is_empty()) {
        return Err(internal!("Malformed assigned device '' of node {{{{node {}}}}}", node.name));
    }
    if has_one_device(graph) {
        let location = (options.location)(&first.assigned_device);
        return Ok(vec![Partition { location, graph: graph.clone() }]);
    }
    let mut graph = graph.clone();
    colocate_control_flow(&mut graph)?;
    control_loop::add(&mut graph, options)?;
    let places = Places::of(&graph, options);
    if let [location] = places.locations.as_slice() {
        for at in 0..graph.len() {
            let id = NodeId(at as u32);
            if graph.node(id).control_inputs.len() > 1 {
                once_each(&mut graph.node_mut(id).control_inputs);
            }
        }
        return Ok(vec![Partition { location: location.clone(), graph }]);
    }
    Splitter::new(&graph, &places, options)?.run()
}

/// Checks that each node of a part that a master registers is on a device of this worker.
///
/// # Errors
/// `INVALID_ARGUMENT` with TensorFlow's texts for a node without a device or with one that is not `known`, be it for a short
/// spelling.
pub fn check_partition_devices(graph: &Graph, known: &dyn Fn(&str) -> bool) -> Result<()> {
    let mut checked: Option<&Arc<str>> = None;
    for (_, node) in graph.nodes() {
        let device = if node.assigned_device.is_empty() { &node.device } else { &node.assigned_device };
        if device.is_empty() {
            return Err(invalid_argument!("Node '{}' is missing a device specification", node.name));
        }
        if checked.is_some_and(|last| same(last, device)) {
            continue;
        }
        if !known(device) {
            return Err(invalid_argument!("{device} unknown device."));
        }
        checked = Some(device);
    }
    Ok(())
}

/// Whether two names are equal; those of neighbours are mostly one allocation.
fn same(a: &Arc<str>, b: &Arc<str>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

fn has_one_device(graph: &Graph) -> bool {
    let mut devices = graph.nodes().map(|(_, node)| &node.assigned_device);
    match devices.next() {
        Some(first) => devices.all(|device| same(first, device)),
        None => true,
    }
}

/// Which part each node is in.
struct Places {
    /// The part of each node.
    of: Vec<usize>,
    /// The names of the parts.
    locations: Vec<String>,
}

impl Places {
    fn of(graph: &Graph, options: &PartitionOptions<'_>) -> Places {
        let mut of = Vec::with_capacity(graph.len());
        let mut locations: Vec<String> = Vec::new();
        let mut by_device: HashMap<&str, usize> = HashMap::new();
        for (_, node) in graph.nodes() {
            let place = *by_device.entry(&node.assigned_device).or_insert_with(|| {
                let location = (options.location)(&node.assigned_device);
                locations.iter().position(|known| *known == location).unwrap_or_else(|| {
                    locations.push(location);
                    locations.len() - 1
                })
            });
            of.push(place);
        }
        Places { of, locations }
    }
}

/// A name for a new node that stands for `base`.
fn fresh_name(graph: &Graph, options: &PartitionOptions<'_>, prefix: &str, base: &str) -> String {
    loop {
        let name = format!("{prefix}{base}_S{}", options.next_name.fetch_add(1, Ordering::Relaxed));
        if graph.find(&name).is_none() {
            return name;
        }
    }
}
