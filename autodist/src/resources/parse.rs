//! The grammar of resource files.

use super::{Host, Launcher, Measured, Node, ResourceSpec, SshSettings};
use graphmill_tensor::{Result, Status, invalid_argument};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashSet};

const NODE_KEYS: &[&str] = &[
    "address",
    "chief",
    "cpus",
    "gpus",
    "network_bandwidth",
    "bandwidth",
    "ssh_config",
    "port",
    "task",
    "latency_us",
    "intra_bandwidth",
    "compute_tflops",
];
const SSH_KEYS: &[&str] = &["username", "port", "python_venv", "key_file", "shared_envs"];
const FILE_KEYS: &[&str] = &["nodes", "ssh", "launcher"];
const DEFAULT_SSH_PORT: u16 = 22;

/// A mapping of the file, and what to call it in messages.
struct Section<'a> {
    name: String,
    map: &'a Map<String, Value>,
}

pub(super) fn parse(text: &str) -> Result<ResourceSpec> {
    let root: Value = serde_saphyr::from_str(text).map_err(|error| {
        invalid_argument!("not valid YAML: {}", error.to_string().lines().next().unwrap_or_default())
    })?;
    let root = Section::new("the file".to_owned(), &root)?;
    let mut warnings = Vec::new();
    root.note_unknown(FILE_KEYS, &mut warnings);

    let launcher = match root.text("launcher")?.as_deref() {
        None | Some("ssh") => Launcher::Ssh,
        Some("external") => Launcher::External,
        Some("running") => Launcher::Running,
        Some(other) => return Err(invalid_argument!("launcher is \"{other}\"; write ssh, external or running")),
    };
    let ssh = match root.get("ssh") {
        None => BTreeMap::new(),
        Some(groups) => read_ssh(&Section::new("ssh".to_owned(), groups)?, &mut warnings)?,
    };
    let entries = match root.get("nodes") {
        Some(Value::Array(entries)) if !entries.is_empty() => entries,
        _ => return Err(invalid_argument!("it needs a list \"nodes\" with at least one node")),
    };
    let mut nodes = Vec::with_capacity(entries.len());
    let mut chiefs = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let section = Section::new(format!("node {}", i + 1), entry)?;
        section.note_unknown(NODE_KEYS, &mut warnings);
        if section.flag("chief")? {
            chiefs.push(i);
        }
        nodes.push(read_node(&section, &mut warnings)?);
    }
    let chief = find_chief(&nodes, &chiefs)?;
    name_nodes(&mut nodes)?;
    check_tasks(&nodes)?;
    check_launch(&nodes, chief, &ssh, launcher)?;
    Ok(ResourceSpec { nodes, chief, ssh, launcher, warnings })
}

fn read_node(section: &Section<'_>, warnings: &mut Vec<String>) -> Result<Node> {
    let Some(address) = section.text("address")? else {
        return Err(invalid_argument!("{} has no address; give it one", section.name));
    };
    let host = Host::parse(&address).map_err(|error| section.at("address", &error))?;
    let gpus = section.indices("gpus")?;
    let mut cpus = section.indices("cpus")?;
    cpus.insert(0);
    if !gpus.is_empty() && cpus.len() > 1 {
        warnings.push(format!("{} has gpus, so of its cpus only 0 is used", section.name));
        cpus = BTreeSet::from([0]);
    }
    let bandwidth = match section.number("network_bandwidth")? {
        Some(bandwidth) => Some(bandwidth),
        None => section.number("bandwidth")?,
    };
    Ok(Node {
        port: section.port("port")?,
        task: section.whole("task")?.map(|task| task as usize),
        name: host.as_str().to_owned(),
        host,
        cpus: cpus.into_iter().collect(),
        gpus: gpus.into_iter().collect(),
        // Missing and 0 have always meant 1.
        network_bandwidth: bandwidth.filter(|&bandwidth| bandwidth > 0.0).unwrap_or(1.0),
        ssh_config: section.text("ssh_config")?,
        measured: Measured {
            latency_us: section.number("latency_us")?,
            intra_bandwidth: section.number("intra_bandwidth")?,
            compute_tflops: section.number("compute_tflops")?,
        },
    })
}

fn read_ssh(groups: &Section<'_>, warnings: &mut Vec<String>) -> Result<BTreeMap<String, SshSettings>> {
    let mut ssh = BTreeMap::new();
    for (name, settings) in groups.map {
        let section = Section::new(format!("ssh group \"{name}\""), settings)?;
        section.note_unknown(SSH_KEYS, warnings);
        let mut shared_envs = BTreeMap::from([("TF_CPP_MIN_LOG_LEVEL".to_owned(), "0".to_owned())]);
        if let Some(envs) = section.get("shared_envs") {
            let envs = Section::new(format!("shared_envs of {}", section.name), envs)?;
            for key in envs.map.keys() {
                shared_envs.insert(key.clone(), envs.text(key)?.unwrap_or_default());
            }
        }
        let settings = SshSettings {
            username: section.text("username")?.unwrap_or_default(),
            port: section.port("port")?.unwrap_or(DEFAULT_SSH_PORT),
            python_venv: section.text("python_venv")?.unwrap_or_default(),
            key_file: section.text("key_file")?.unwrap_or_default(),
            shared_envs,
        };
        ssh.insert(name.clone(), settings);
    }
    Ok(ssh)
}

fn find_chief(nodes: &[Node], chiefs: &[usize]) -> Result<usize> {
    match chiefs {
        _ if nodes.len() == 1 => Ok(0),
        [chief] => Ok(*chief),
        [] => {
            Err(invalid_argument!("one node must be chief; write \"chief: true\" in one of the {} nodes", nodes.len()))
        }
        [first, second, ..] => {
            Err(invalid_argument!("nodes {} and {} are both chief; only one can be", first + 1, second + 1))
        }
    }
}

/// Nodes on one host are told apart by their ports.
fn name_nodes(nodes: &mut [Node]) -> Result<()> {
    let loopback = nodes.iter().filter(|node| node.host.is_loopback()).count();
    if let Some(node) = nodes.iter().find(|node| node.host.is_loopback())
        && loopback < nodes.len()
    {
        return Err(invalid_argument!(
            "\"{}\" cannot be reached from the other nodes; give its real address",
            node.host
        ));
    }
    let hosts: Vec<Host> = nodes.iter().map(|node| node.host.clone()).collect();
    let shared = |host: &Host| loopback > 1 || hosts.iter().filter(|&other| other == host).count() > 1;
    let mut names = HashSet::new();
    for node in nodes.iter_mut().filter(|node| shared(&node.host)) {
        let Some(port) = node.port else {
            return Err(invalid_argument!(
                "several nodes are on \"{}\"; give each of them a port of its own",
                node.host
            ));
        };
        node.name = node.host.with_port(port);
        // Loopback addresses are one machine whatever their spelling.
        let machine = if node.host.is_loopback() { "localhost" } else { node.host.as_str() };
        if !names.insert((machine.to_owned(), port)) {
            return Err(invalid_argument!(
                "two nodes have port {port} on \"{}\"; give each a port of its own",
                node.host
            ));
        }
    }
    Ok(())
}

fn check_tasks(nodes: &[Node]) -> Result<()> {
    let tasks: BTreeSet<usize> = nodes.iter().filter_map(|node| node.task).collect();
    if nodes.iter().all(|node| node.task.is_none()) || tasks.iter().copied().eq(0..nodes.len()) {
        return Ok(());
    }
    Err(invalid_argument!(
        "the tasks of the nodes must be the numbers 0 to {}, each once; or give none",
        nodes.len() - 1
    ))
}

fn check_launch(nodes: &[Node], chief: usize, ssh: &BTreeMap<String, SshSettings>, launcher: Launcher) -> Result<()> {
    for (i, node) in nodes.iter().enumerate() {
        if launcher == Launcher::Running && node.port.is_none() {
            return Err(invalid_argument!("node \"{}\" has no port; a running server needs one", node.host));
        }
        let is_local = i == chief || node.host.is_loopback() || node.host == nodes[chief].host;
        match &node.ssh_config {
            None if launcher == Launcher::Ssh && !is_local => {
                return Err(invalid_argument!(
                    "node \"{}\" has no ssh_config, which says how to start it; name a group of \"ssh\", or write \"launcher: \
                     external\" if something else starts it",
                    node.host
                ));
            }
            Some(group) if launcher == Launcher::Ssh && !is_local && !ssh.contains_key(group) => {
                return Err(invalid_argument!(
                    "node \"{}\" names the ssh group \"{group}\", which the file does not describe",
                    node.host
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

impl<'a> Section<'a> {
    fn new(name: String, value: &'a Value) -> Result<Section<'a>> {
        match value.as_object() {
            Some(map) => Ok(Section { name, map }),
            None => Err(invalid_argument!("{name} must be a mapping, \"key: value\" line by line")),
        }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &str, expected: &str) -> Status {
        let value = self.get(key).map(Value::to_string).unwrap_or_default();
        invalid_argument!("{key} of {} is {value}; it must be {expected}", self.name)
    }

    fn at(&self, key: &str, error: &Status) -> Status {
        invalid_argument!("{key} of {}: {}", self.name, error.message())
    }

    fn note_unknown(&self, known: &[&str], warnings: &mut Vec<String>) {
        let unknown = self.map.keys().filter(|key| !known.contains(&key.as_str()));
        warnings.extend(unknown.map(|key| format!("\"{key}\" of {} is not a known key and has no effect", self.name)));
    }

    /// A string; numbers and truth values keep their spelling.
    fn text(&self, key: &str) -> Result<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(value.to_string())),
            Some(_) => Err(self.wrong(key, "text")),
        }
    }

    /// A truth value, in the spellings of YAML 1.1 too; false if missing.
    fn flag(&self, key: &str) -> Result<bool> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Ok(true),
                "false" | "no" | "off" => Ok(false),
                _ => Err(self.wrong(key, "true or false")),
            },
            Some(_) => Err(self.wrong(key, "true or false")),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_f64().filter(|number| number.is_finite() && *number >= 0.0);
        number.map(Some).ok_or_else(|| self.wrong(key, "a number of at least 0"))
    }

    fn whole(&self, key: &str) -> Result<Option<u32>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        as_index(value).map(Some).ok_or_else(|| self.wrong(key, "a whole number of at least 0"))
    }

    fn port(&self, key: &str) -> Result<Option<u16>> {
        let Some(port) = self.whole(key)? else { return Ok(None) };
        let port = u16::try_from(port).ok().filter(|&port| port > 0);
        port.map(Some).ok_or_else(|| self.wrong(key, "a port, 1 to 65535"))
    }

    fn indices(&self, key: &str) -> Result<BTreeSet<u32>> {
        let indices = match self.get(key) {
            None => Some(BTreeSet::new()),
            Some(Value::Array(entries)) => entries.iter().map(as_index).collect(),
            Some(_) => None,
        };
        indices.ok_or_else(|| self.wrong(key, "a list of device numbers, such as [0, 1]"))
    }
}

fn as_index(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

#[cfg(test)]
mod tests;
