//! Copies of served variables for reading: each node keeps one, and takes the new value once a step.

use super::job::processor_of;
use super::roles::Learner;
use super::writer::{Spot, Writer, after, bytes, set, ty};
use crate::strategy::ParameterServer;
use graphmill_tensor::Result;
use graphmill_wire::tensorflow::NodeDef;
use graphmill_wire::tensorflow::attr_value::Value;

/// The copy of a variable on this task.
#[derive(Clone)]
pub(super) struct Proxy {
    /// Its node.
    pub handle: String,
    /// The read of the variable itself, for its own update.
    pub master: String,
    /// What nodes that change the variable take for their refreshes.
    spot: Spot,
}

impl Writer<'_> {
    /// Makes the copy of a variable that wants one and lies on another task; rows of a variable are fetched alone.
    pub fn make_proxy(&mut self, learner: &Learner<'_>, server: &ParameterServer) -> Result<()> {
        let device = self.job.device(&server.destination);
        let is_remote = !device.starts_with(&processor_of(self.job.task));
        let variable = learner.variable.node;
        let is_plain = learner.sources.len() == 1 && self.default_read(variable).is_some();
        if !server.local_replication || !server.sync || !is_remote || !is_plain {
            return Ok(());
        }
        let name = format!("AutoDist-Replica-CPU/{}", learner.op_name());
        let spot = Spot { scope: name.clone(), device };
        let mut handle = NodeDef { name: name.clone(), op: "VarHandleOp".to_owned(), ..NodeDef::default() };
        handle.device = self.job.processor();
        let shape = learner.variable.shape.to_proto();
        let shared = format!("{}/{name}", self.job.strategy.id);
        set(
            &mut handle,
            &[
                ("dtype", ty(learner.variable.dtype)),
                ("shape", Value::Shape(shape)),
                ("container", bytes("")),
                ("shared_name", bytes(&shared)),
            ],
        );
        let handle = self.out.add(handle)?;
        let master = self.read_master(&spot, "master", variable, &[])?;
        self.proxies.insert(variable, Proxy { handle, master, spot });
        Ok(())
    }

    /// Reads a shared variable itself after other nodes.
    fn read_master(&mut self, spot: &Spot, name: &str, variable: usize, done: &[String]) -> Result<String> {
        let is_resource = self.roles.item.graph().node[variable].op == "VarHandleOp";
        let (op, attr) = if is_resource { ("ReadVariableOp", "dtype") } else { ("Identity", "T") };
        let handle = self.node_name(variable, 0);
        let waits: Vec<String> = done.iter().map(|node| after(node)).collect();
        let inputs: Vec<&str> = [handle.as_str()].into_iter().chain(waits.iter().map(String::as_str)).collect();
        self.add(spot, name, op, &inputs, &[(attr, ty(self.dtype_of(variable)))])
    }

    /// Brings the copy of a variable up to date after these nodes; the result is what to wait for. Without a copy it is the nodes themselves.
    pub fn refresh(&mut self, variable: usize, name: &str, done: Vec<String>) -> Result<Vec<String>> {
        let Some(proxy) = self.proxies.get(&variable).cloned() else { return Ok(done) };
        let value = self.read_master(&proxy.spot, &format!("{name}/value"), variable, &done)?;
        let local = Spot { scope: proxy.spot.scope.clone(), device: self.job.processor() };
        let attrs = [("dtype", ty(self.dtype_of(variable)))];
        let assigned = self.add(&local, name, "AssignVariableOp", &[&proxy.handle, &value], &attrs)?;
        Ok(vec![assigned])
    }
}
