//! Placing the nodes of a session's graph.

use super::session::SessionOptions;
use super::workers::Workers;
use graphmill_graph::{Graph, PlacementOptions, place};
use graphmill_runtime::Registry;
use graphmill_tensor::Result;

/// Gives each node that has none yet a device of the session.
///
/// # Errors
/// `INVALID_ARGUMENT` with TensorFlow's text for nodes that ask for a device which does not exist, or that have to be together but
/// ask for different ones.
pub(super) fn place_graph(
    graph: &mut Graph,
    workers: &Workers,
    registry: &Registry,
    options: &SessionOptions,
) -> Result<()> {
    let devices = workers.placement_devices(!options.own_cluster);
    let has_kernel = |node: &graphmill_graph::Node, device_type: &str| registry.has_kernel(&node.op.name, device_type);
    let placement = PlacementOptions { soft: options.soft_placement, log: options.log_placement };
    for line in place(graph, &devices, &has_kernel, &placement)? {
        tracing::info!("{line}");
    }
    Ok(())
}
