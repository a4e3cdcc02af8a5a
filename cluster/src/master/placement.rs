//! Placing nodes on the one device that there is.

use crate::DeviceSpec;
use graphmill_graph::Graph;
use graphmill_tensor::{Result, invalid_argument};
use std::sync::Arc;

/// Checks that nodes from number `first` on may be on `device`. With `soft` placement a device of another type or number gives
/// way to it, another job or task does not.
///
/// # Errors
/// `INVALID_ARGUMENT` with TensorFlow's text for a node that asks for a device which does not exist.
pub(super) fn check(graph: &Graph, first: usize, device: &str, soft: bool) -> Result<()> {
    let Some(own) = DeviceSpec::parse(device) else {
        return Err(invalid_argument!("Malformed device name '{device}'"));
    };
    // Neighbouring nodes mostly ask for the same device, in the same allocation.
    let mut checked: Option<&Arc<str>> = None;
    for (_, node) in graph.nodes().skip(first) {
        if node.device.is_empty() || checked.is_some_and(|last| Arc::ptr_eq(last, &node.device)) {
            continue;
        }
        let Some(wanted) = DeviceSpec::parse(&node.device) else {
            return Err(invalid_argument!(
                "Malformed device specification '{}' in node: {{{{node {}}}}}",
                node.device,
                node.name
            ));
        };
        let fits = wanted.matches(&own) || soft && wanted.without_device().matches(&own);
        if !fits {
            let error = invalid_argument!(
                "Cannot assign a device for operation {0}: {{{{node {0}}}}} was explicitly assigned to {1} but available devices \
                 are [ {device} ]. Make sure the device specification refers to a valid device.",
                node.name,
                node.device
            );
            return Err(error.at_node(&node.name));
        }
        checked = Some(&node.device);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_wire::tensorflow::{GraphDef, NodeDef};

    const DEVICE: &str = "/job:worker/replica:0/task:0/device:CPU:0";

    fn graph(devices: &[&str]) -> Graph {
        let node = devices
            .iter()
            .enumerate()
            .map(|(at, device)| NodeDef {
                name: format!("n{at}"),
                op: "NoOp".to_owned(),
                device: (*device).to_owned(),
                ..Default::default()
            })
            .collect();
        Graph::from_def(&GraphDef { node, ..Default::default() }).unwrap()
    }

    #[test]
    fn nodes_that_fit() {
        check(&graph(&["", "/job:worker", "/device:CPU:0", "/device:CPU:0"]), 0, DEVICE, false).unwrap();
        check(&graph(&["/gpu:0", "/job:worker/cpu:7"]), 0, DEVICE, true).unwrap();
        check(&graph(&["/job:ps", ""]), 1, DEVICE, false).unwrap();
    }

    #[test]
    fn nodes_that_do_not_fit() {
        let error = check(&graph(&["/cpu:0", "/device:GPU:0"]), 0, DEVICE, false).unwrap_err();
        assert_eq!(
            error.message(),
            "Cannot assign a device for operation n1: {{node n1}} was explicitly assigned to /device:GPU:0 but available devices \
             are [ /job:worker/replica:0/task:0/device:CPU:0 ]. Make sure the device specification refers to a valid \
             device.\n\t [[n1]]"
        );
        assert!(check(&graph(&["/job:ps/cpu:0"]), 0, DEVICE, true).is_err());
        assert!(check(&graph(&["nonsense"]), 0, DEVICE, true).is_err());
    }
}
