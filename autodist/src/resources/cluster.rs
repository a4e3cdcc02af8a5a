//! The nodes as tasks of a TensorFlow cluster.

use super::{DeviceKind, DeviceName, ResourceSpec};
use graphmill_tensor::{Result, invalid_argument, resource_exhausted};
use graphmill_wire::tensorflow::{ClusterDef, JobDef};

/// The job of all tasks.
const JOB: &str = "worker";

/// Hands out the ports of servers, from 15000 to 15999. Clusters that live at the same time share one.
#[derive(Clone, Debug)]
pub struct PortCounter {
    next: u16,
}

/// A server of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// The number of its node in the resource file.
    pub node: usize,
    /// `host:port`.
    pub address: String,
}

/// Which task and port each node has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterLayout {
    tasks: Vec<Task>,
    /// By node.
    task_of_node: Vec<usize>,
    chief: usize,
}

impl PortCounter {
    const FIRST: u16 = 15_000;
    const END: u16 = 16_000;

    /// A counter that has given nothing away.
    pub fn new() -> PortCounter {
        PortCounter { next: PortCounter::FIRST }
    }

    fn take(&mut self) -> Result<u16> {
        if self.next >= PortCounter::END {
            return Err(resource_exhausted!(
                "The ports 15000 to 15999 are all given away; write ports into the resource file"
            ));
        }
        let port = self.next;
        self.next += 1;
        Ok(port)
    }
}

impl Default for PortCounter {
    fn default() -> PortCounter {
        PortCounter::new()
    }
}

impl ClusterLayout {
    /// Numbers the nodes: as the file says, or else by their addresses in the order of strings, which AutoDist's strategy files rely on; so
    /// task 0 need not be the chief.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the ports run out.
    pub fn new(spec: &ResourceSpec, ports: &mut PortCounter) -> Result<ClusterLayout> {
        let nodes = spec.nodes();
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|&i| (nodes[i].task, nodes[i].host.as_str(), nodes[i].port));
        let mut tasks = Vec::with_capacity(nodes.len());
        let mut task_of_node = vec![0; nodes.len()];
        for (task, &node) in order.iter().enumerate() {
            let port = match nodes[node].port {
                Some(port) => port,
                None => ports.take()?,
            };
            task_of_node[node] = task;
            tasks.push(Task { node, address: nodes[node].host.with_port(port) });
        }
        let chief = task_of_node[spec.chief];
        Ok(ClusterLayout { tasks, task_of_node, chief })
    }

    /// The tasks by number.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// The task of the chief.
    pub fn chief(&self) -> usize {
        self.chief
    }

    /// The cluster as servers take it.
    pub fn to_cluster_def(&self) -> ClusterDef {
        let tasks = (0i32..).zip(&self.tasks).map(|(i, task)| (i, task.address.clone())).collect();
        ClusterDef { job: vec![JobDef { name: JOB.to_owned(), tasks }] }
    }

    /// The text of `cluster_spec.json`.
    pub fn to_json(&self) -> String {
        let addresses: Vec<&str> = self.tasks.iter().map(|task| task.address.as_str()).collect();
        serde_json::json!({ JOB: addresses }).to_string()
    }

    /// The task of a device.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `spec`, which this layout was made of, has no such device.
    pub fn task_of(&self, spec: &ResourceSpec, device: &DeviceName) -> Result<usize> {
        let node = spec.nodes().iter().position(|node| node.name == device.node);
        match (node, spec.node_of(device)) {
            (Some(node), Some(_)) => Ok(self.task_of_node[node]),
            (Some(_), None) => Err(invalid_argument!(
                "device \"{device}\" does not exist; its node in the resource file does not list it"
            )),
            (None, _) => {
                let nodes: Vec<&str> = spec.nodes().iter().map(|node| node.name.as_str()).collect();
                Err(invalid_argument!(
                    "device \"{device}\" is on no node of the resource file, which has {}",
                    nodes.join(", ")
                ))
            }
        }
    }

    /// TensorFlow's name of a device: `/job:worker/task:1/device:GPU:0` for `10.0.0.2:GPU:0`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for names that are no devices of `spec`.
    pub fn resolve(&self, spec: &ResourceSpec, device: &str) -> Result<String> {
        let device: DeviceName = device.parse()?;
        let task = self.task_of(spec, &device)?;
        Ok(tensorflow_device(task, device.kind, device.index))
    }
}

/// TensorFlow's name of a device of this task.
pub(crate) fn tensorflow_device(task: usize, kind: DeviceKind, index: u32) -> String {
    format!("/job:{JOB}/task:{task}/device:{kind}:{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: &str = "launcher: external\nnodes:\n  - {address: 10.20.41.57, gpus: [0, 1], chief: true}\n  - {address: \
                        10.20.41.146, gpus: [0]}\n";

    #[test]
    fn tasks_are_sorted_by_address() {
        let spec = ResourceSpec::parse(PAIR).unwrap();
        let mut ports = PortCounter::new();
        let layout = ClusterLayout::new(&spec, &mut ports).unwrap();
        assert_eq!(layout.to_json(), r#"{"worker":["10.20.41.146:15000","10.20.41.57:15001"]}"#);
        assert_eq!(layout.chief(), 1);
        assert_eq!(layout.resolve(&spec, "10.20.41.57:GPU:1").unwrap(), "/job:worker/task:1/device:GPU:1");
        assert!(layout.resolve(&spec, "10.20.41.146:GPU:1").unwrap_err().message().contains("does not list it"));
        assert!(layout.resolve(&spec, "10.20.41.5:GPU:1").unwrap_err().message().contains("no node"));
        let second = ClusterLayout::new(&spec, &mut ports).unwrap();
        assert_eq!(second.tasks()[0].address, "10.20.41.146:15002");
    }

    #[test]
    fn the_file_may_give_tasks_and_ports() {
        let spec = ResourceSpec::parse(
            "nodes:\n  - {address: localhost, port: 90, task: 1, chief: true}\n  - {address: localhost, port: 1000, task: 0}\n",
        )
        .unwrap();
        let layout = ClusterLayout::new(&spec, &mut PortCounter::new()).unwrap();
        assert_eq!(layout.to_json(), r#"{"worker":["localhost:1000","localhost:90"]}"#);
        assert_eq!(layout.to_cluster_def().job[0].tasks[&1], "localhost:90");
        assert_eq!(layout.resolve(&spec, "localhost:90:CPU:0").unwrap(), "/job:worker/task:1/device:CPU:0");
    }
}
