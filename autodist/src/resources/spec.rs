//! The resource specification.

use super::{DeviceKind, DeviceName, Host, parse};
use graphmill_tensor::{Result, Status, not_found, unavailable};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The nodes of a cluster and their devices, in the order of the file. There is at least one node.
#[derive(Clone, PartialEq, Debug)]
pub struct ResourceSpec {
    pub(super) nodes: Vec<Node>,
    pub(super) chief: usize,
    pub(super) ssh: BTreeMap<String, SshSettings>,
    pub(super) launcher: Launcher,
    pub(super) warnings: Vec<String>,
}

/// One machine, or one of several servers on a machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Where it is.
    pub host: Host,
    /// The port of its server; `None` takes the next free number.
    pub port: Option<u16>,
    /// Its number among the tasks; `None` for all or for no node.
    pub task: Option<usize>,
    /// What devices of this node call it: the address, with the port where several nodes share the address.
    pub name: String,
    /// Numbers of its processors, ascending, from 0; 0 alone if there are graphics processors.
    pub cpus: Vec<u32>,
    /// Numbers of its graphics processors, ascending.
    pub gpus: Vec<u32>,
    /// Gigabits a second.
    pub network_bandwidth: f64,
    /// The entry of `ssh` that says how to reach it.
    pub ssh_config: Option<String>,
    /// What is known of its speed.
    pub measured: Measured,
}

/// Measurements of a node that the file may give, for choosing a strategy by cost.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Measured {
    /// Microseconds of a message to another node.
    pub latency_us: Option<f64>,
    /// Gigabits a second among the devices of the node.
    pub intra_bandwidth: Option<f64>,
    /// 10^12 floating-point operations a second of one device.
    pub compute_tflops: Option<f64>,
}

/// How to log in to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SshSettings {
    /// Empty for the current user.
    pub username: String,
    /// 22 unless the file says otherwise.
    pub port: u16,
    /// A shell command to run before others; empty for none.
    pub python_venv: String,
    /// The private key's path on the chief; empty for the defaults of ssh.
    pub key_file: String,
    /// Environment of the remote commands. `TF_CPP_MIN_LOG_LEVEL` is 0 unless the file says otherwise.
    pub shared_envs: BTreeMap<String, String>,
}

/// Who starts the processes of the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Launcher {
    /// The chief, through ssh; on its own machine directly.
    Ssh,
    /// A scheduler or a person; each process starts its own server.
    External,
    /// Nobody: servers already run on the ports that the file gives.
    Running,
}

impl ResourceSpec {
    /// Reads the text of a resource file.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for text that is no YAML, and for nodes that cannot make a cluster, saying which and why.
    pub fn parse(text: &str) -> Result<ResourceSpec> {
        parse::parse(text)
    }

    /// Reads a resource file.
    ///
    /// # Errors
    /// As [`ResourceSpec::parse`], with the file's name; `NOT_FOUND` and `UNAVAILABLE` if it cannot be read.
    pub fn read(path: &Path) -> Result<ResourceSpec> {
        let text = fs::read_to_string(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => not_found!("There is no resource file {}", path.display()),
            _ => unavailable!("Cannot read resource file {}: {error}", path.display()),
        })?;
        ResourceSpec::parse(&text).map_err(|error: Status| {
            let message = format!("Resource file {}: {}", path.display(), error.message());
            error.with_message(message)
        })
    }

    /// The nodes, in the order of the file.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node where the user starts the program.
    pub fn chief(&self) -> &Node {
        // Parsing sets the index of a node.
        &self.nodes[self.chief]
    }

    /// Who starts the processes.
    pub fn launcher(&self) -> Launcher {
        self.launcher
    }

    /// How to log in to a node; `None` if the file does not say.
    pub fn ssh_settings(&self, node: &Node) -> Option<&SshSettings> {
        self.ssh.get(node.ssh_config.as_deref()?)
    }

    /// What in the file has no effect and was perhaps meant to: unknown keys, processors of a node that has graphics processors.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// All devices: by node, processors first, then graphics processors.
    pub fn devices(&self) -> Vec<DeviceName> {
        self.nodes.iter().flat_map(|node| [node.cpu_devices(), node.gpu_devices()].concat()).collect()
    }

    /// Where variables of parameter servers may lie: the processors of all nodes.
    pub fn destinations(&self) -> Vec<DeviceName> {
        self.nodes.iter().flat_map(Node::cpu_devices).collect()
    }

    /// Devices with a copy of the model each: all graphics processors, then the processors of the nodes that have none.
    pub fn replicas(&self) -> Vec<DeviceName> {
        let gpus = self.nodes.iter().flat_map(Node::gpu_devices);
        let cpus = self.nodes.iter().filter(|node| node.gpus.is_empty()).flat_map(Node::cpu_devices);
        gpus.chain(cpus).collect()
    }

    /// The node that a device belongs to, if the node has it.
    pub fn node_of(&self, device: &DeviceName) -> Option<&Node> {
        let node = self.nodes.iter().find(|node| node.name == device.node)?;
        let indices = match device.kind {
            DeviceKind::Cpu => &node.cpus,
            DeviceKind::Gpu => &node.gpus,
        };
        indices.contains(&device.index).then_some(node)
    }
}

impl Node {
    /// The processors.
    pub fn cpu_devices(&self) -> Vec<DeviceName> {
        self.named(DeviceKind::Cpu, &self.cpus)
    }

    /// The graphics processors.
    pub fn gpu_devices(&self) -> Vec<DeviceName> {
        self.named(DeviceKind::Gpu, &self.gpus)
    }

    fn named(&self, kind: DeviceKind, indices: &[u32]) -> Vec<DeviceName> {
        indices.iter().map(|&index| DeviceName { node: self.name.clone(), kind, index }).collect()
    }
}
