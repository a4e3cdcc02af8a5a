//! One truth for first values: the chief's. Every other node and replica takes its own from there.

use super::nodes::node;
use super::writer::{Spot, Writer, after, bytes, set, ty};
use super::job::scope;
use graphmill_tensor::{DType, Result};
use graphmill_wire::tensorflow::NodeDef;
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_graph::EndpointName;

impl Writer<'_> {
    /// The tensor that a replica's own variable begins with; `None` for the value that the graph gives it.
    pub fn first_value(&mut self, variable: usize, replica: usize) -> Result<Option<String>> {
        let known = self.roles.item.variables().iter().find(|known| known.node == variable);
        let Some(known) = known else { return Ok(None) };
        if self.job.is_chief() {
            // The first replica's.
            let initializer = self.roles.item.index().find(EndpointName::parse(&known.def.initializer_name).node);
            let value = initializer.and_then(|at| self.roles.item.index().data_input(at, 1));
            return Ok(value.map(|value| self.tensor(value, 0)));
        }
        let spot = Spot { scope: format!("autodist-between/chief/{}", known.op_name()), device: self.job.chief_replica() };
        let read = spot.name("read");
        if replica > 0 {
            return Ok(Some(read));
        }
        let dtype = known.dtype;
        let mut handle = self.variable_node(variable);
        handle.name = spot.name("variable");
        handle.device.clone_from(&spot.device);
        let is_resource = handle.op == "VarHandleOp";
        let handle = self.out.add(handle)?;
        let (op, attr) = if is_resource { ("ReadVariableOp", "dtype") } else { ("Identity", "T") };
        Ok(Some(self.add(&spot, "read", op, &[&handle], &[(attr, ty(dtype))])?))
    }

    /// Writes the node that gives all variables and tables of this task their first values, and the one that tells whether the
    /// chief's have theirs.
    pub fn write_initialisers(&mut self, prepare: Vec<String>) -> Result<(String, String)> {
        let spot = Spot { scope: "autodist-between".to_owned(), device: self.job.chief_processor() };
        let mut names = Vec::new();
        for initializer in self.roles.item.initializers() {
            let name = EndpointName::parse(initializer).node;
            if self.roles.item.index().find(name).is_some() {
                names.extend((0..self.job.replicas.len()).map(|i| format!("{}/{name}", scope(i))));
            }
        }
        names.extend(prepare);
        let local = Spot { device: self.job.processor(), ..spot.clone() };
        let mut flag = NodeDef { name: spot.name("flag"), op: "VarHandleOp".to_owned(), ..NodeDef::default() };
        flag.device.clone_from(&spot.device);
        let shared = format!("{}/initialised", self.job.strategy.id);
        set(
            &mut flag,
            &[
                ("dtype", ty(DType::Bool)),
                ("shape", Value::Shape(super::nodes::shape(&[]))),
                ("container", bytes("")),
                ("shared_name", bytes(&shared)),
            ],
        );
        let flag = self.out.add(flag)?;
        let ready = self.add(&spot, "ready", "VarIsInitializedOp", &[&flag], &[])?;
        if !self.job.is_chief() {
            return Ok((self.group(&local, "initialise", &names)?, ready));
        }
        let all = self.group(&local, "first_values", &names)?;
        let token = self.number(&spot, "done", DType::Bool, 1)?;
        let tell = self.add(
            &spot,
            "tell",
            "AssignVariableOp",
            &[&flag, &token, &after(&all)],
            &[("dtype", ty(DType::Bool))],
        )?;
        Ok((self.out.add(node("NoOp", local.name("initialise"), &local.device, vec![after(&tell)]))?, ready))
    }
}
