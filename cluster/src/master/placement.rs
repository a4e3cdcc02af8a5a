//! Placing the nodes of a session's graph.

use super::session::SessionOptions;
use super::workers::Workers;
use graphmill_graph::Graph;
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

/// TEMPORARY
fn place(
    graph: &mut Graph,
    devices: &[PlacementDevice],
    _k: &dyn Fn(&graphmill_graph::Node, &str) -> bool,
    options: &PlacementOptions,
) -> Result<Vec<String>> {
    use crate::DeviceSpec;
    for at in 0..graph.len() {
        let id = graphmill_graph::NodeId(at as u32);
        let node = graph.node(id);
        if !node.assigned_device.is_empty() {
            continue;
        }
        let wanted = DeviceSpec::parse(&node.device).unwrap_or_default();
        let find = |w: &DeviceSpec| {
            devices.iter().find(|d| DeviceSpec::parse(&d.name).is_some_and(|s| w.matches(&s))).map(|d| d.name.clone())
        };
        let mut found = find(&wanted);
        if found.is_none() && options.soft {
            found = find(&wanted.clone().without_device());
        }
        let Some(found) = found else {
            return Err(graphmill_tensor::invalid_argument!(
                "Cannot assign a device for operation {0}: {{{{node {0}}}}} was explicitly assigned to {1}",
                node.name,
                node.device
            )
            .at_node(&node.name));
        };
        let mut found = found;
        for input in node.inputs.clone() {
            let s = graph.node(input.node);
            let t = s.output_types[input.slot as usize];
            if t.is_ref || t.dtype == graphmill_tensor::DType::Resource {
                if !s.assigned_device.is_empty() {
                    found = s.assigned_device.to_string();
                }
            }
        }
        graph.node_mut(id).assigned_device = std::sync::Arc::from(found.as_str());
    }
    Ok(Vec::new())
}
pub struct PlacementOptions {
    pub soft: bool,
    pub log: bool,
}
pub struct PlacementDevice {
    pub name: String,
    pub device_type: String,
    pub local: bool,
}
