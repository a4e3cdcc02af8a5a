//! One truth for first values: the chief's. Every other node and replica takes its own from there.

use super::job::scope;
use super::writer::{Spot, Writer, after, bytes, set, ty};
use graphmill_graph::EndpointName;
use graphmill_tensor::{DType, Result};
use graphmill_wire::tensorflow::NodeDef;
use graphmill_wire::tensorflow::attr_value::Value;

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
        let spot =
            Spot { scope: format!("autodist-between/chief/{}", known.op_name()), device: self.job.chief_replica() };
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

    /// Writes the node that gives all variables and tables of this task their first values, and those that tell whether the chief's have
    /// theirs, and whether all tasks' have.
    pub fn write_initialisers(&mut self, prepare: Vec<String>) -> Result<Start> {
        let spot = Spot { scope: "autodist-between".to_owned(), device: self.job.chief_processor() };
        let local = Spot { device: self.job.processor(), ..spot.clone() };
        let mut names = Vec::new();
        for initializer in self.roles.item.initializers() {
            let name = EndpointName::parse(initializer).node;
            if self.roles.item.index().find(name).is_some() {
                names.extend((0..self.job.replicas.len()).map(|i| format!("{}/{name}", scope(i))));
            }
        }
        names.extend(prepare);
        let all = self.group(&local, "first_values", &names)?;
        let mut answers = Vec::new();
        let mut ready = String::new();
        let mut initialise = String::new();
        for (number, &task) in self.job.strategy.participants.iter().enumerate() {
            let flag = self.flag(&spot, number)?;
            let known = self.add(&spot, &format!("initialised_{number}"), "VarIsInitializedOp", &[&flag], &[])?;
            if task == self.job.strategy.chief {
                ready.clone_from(&known);
            }
            if task == self.job.task {
                let token = self.number(&spot, "done", DType::Bool, 1)?;
                let attrs = [("dtype", ty(DType::Bool))];
                let tell = self.add(&spot, "tell", "AssignVariableOp", &[&flag, &token, &after(&all)], &attrs)?;
                initialise = self.group(&local, "initialise", &[tell])?;
            }
            answers.push(known);
        }
        let count = Value::I(answers.len() as i64);
        let inputs: Vec<&str> = answers.iter().map(String::as_str).collect();
        let attrs = [("T", ty(DType::Bool)), ("N", count), ("axis", Value::I(0))];
        let packed = self.add(&spot, "answers", "Pack", &inputs, &attrs)?;
        let axis = self.number(&spot, "answers/axis", DType::Int32, 0)?;
        let attrs = [("Tidx", ty(DType::Int32)), ("keep_dims", Value::B(false))];
        let started = self.add(&spot, "started", "All", &[&packed, &axis], &attrs)?;
        Ok(Start { initialise, ready, started })
    }

    /// The variable that has a value once a task is initialised.
    fn flag(&mut self, spot: &Spot, number: usize) -> Result<String> {
        let mut flag = NodeDef { name: spot.name(&format!("flag_{number}")), ..NodeDef::default() };
        flag.op = "VarHandleOp".to_owned();
        flag.device.clone_from(&spot.device);
        let shared = format!("{}/initialised_{number}", self.job.strategy.id);
        let attrs = [
            ("dtype", ty(DType::Bool)),
            ("shape", Value::Shape(super::nodes::shape(&[]))),
            ("container", bytes("")),
            ("shared_name", bytes(&shared)),
        ];
        set(&mut flag, &attrs);
        self.out.add(flag)
    }
}

/// Nodes that a job begins with.
pub(super) struct Start {
    /// Gives this task's variables and tables their first values.
    pub initialise: String,
    /// Tells whether the chief's have theirs.
    pub ready: String,
    /// Tells whether all tasks' have theirs.
    pub started: String,
}
