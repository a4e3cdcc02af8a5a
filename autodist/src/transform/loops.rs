//! Shared variables that loops read. A loop runs on one device, so what enters it is the variable's value, read once before the loop, in the
//! place of its handle.

use super::gradients::output_type;
use super::nodes::{constant, node};
use super::roles::Roles;
use super::writer::{Writer, set, ty};
use graphmill_tensor::{DType, Result, unimplemented_op};
use graphmill_wire::tensorflow::NodeDef;
use std::collections::HashMap;

impl Roles<'_> {
    /// Nodes in loops that have a shared variable's handle, with the variable.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` if a loop does more with a variable than read it.
    pub fn find_in_loops(&self) -> Result<HashMap<usize, usize>> {
        let nodes = &self.item.graph().node;
        let mut found: HashMap<usize, usize> = HashMap::new();
        let mut queue = Vec::new();
        for (at, def) in nodes.iter().enumerate().filter(|(_, def)| def.op == "Enter") {
            let variable = self.item.index().data_input(at, 0).and_then(|source| self.carried(source.node));
            if let Some(variable) = variable.filter(|&variable| self.shared(variable).is_some())
                && output_type(def, 0) == Some(DType::Resource)
            {
                queue.push((at, variable));
            }
        }
        while let Some((at, variable)) = queue.pop() {
            if found.insert(at, variable).is_some() {
                continue;
            }
            let def = &nodes[at];
            match def.op.as_str() {
                "Enter" | "Switch" | "Identity" | "Merge" | "NextIteration" | "Exit" => {
                    queue.extend(self.item.index().data_consumers(at).map(|next| (next, variable)));
                }
                "ReadVariableOp" | "ResourceGather" | "VariableShape" => {}
                op => {
                    return Err(unimplemented_op!(
                        "Variable \"{}\" cannot lie on a parameter server: in a loop, \"{}\" uses it in a {op}; choose AllReduce for it",
                        nodes[variable].name,
                        def.name
                    ));
                }
            }
        }
        Ok(found)
    }
}

impl Writer<'_> {
    /// Rewrites the copy of a node in a loop to take the value of the variable for its handle.
    pub fn take_value(&mut self, at: usize, variable: usize, copy: &mut NodeDef) -> Result<()> {
        let dtype = self.dtype_of(variable);
        let old = &self.roles.item.graph().node[at];
        match old.op.as_str() {
            "ReadVariableOp" => {
                *copy = node("Identity", copy.name.clone(), &copy.device, copy.input.clone());
                set(copy, &[("T", ty(dtype))]);
            }
            "VariableShape" => {
                copy.op = "Shape".to_owned();
                let out_type = copy.attr.remove("out_type");
                copy.attr.clear();
                copy.attr.extend(out_type.map(|out_type| ("out_type".to_owned(), out_type)));
                set(copy, &[("T", ty(dtype))]);
            }
            "ResourceGather" => {
                // The axis belongs to the loop's body through the indices.
                let mut axis = constant(format!("{}/axis", copy.name), &copy.device, DType::Int32, &[0], true);
                let indices = copy.input.get(1).map(|input| input.split(':').next().unwrap_or_default());
                axis.input = indices.map(|indices| format!("^{indices}")).into_iter().collect();
                let axis = self.out.add(axis)?;
                let index_type = copy.attr.remove("Tindices");
                let batch_dims = copy.attr.remove("batch_dims");
                copy.op = "GatherV2".to_owned();
                copy.attr.clear();
                copy.attr.extend(index_type.map(|value| ("Tindices".to_owned(), value)));
                copy.attr.extend(batch_dims.map(|value| ("batch_dims".to_owned(), value)));
                set(copy, &[("Tparams", ty(dtype)), ("Taxis", ty(DType::Int32))]);
                copy.input.insert(copy.input.len().min(2), axis);
            }
            op => {
                if op == "Enter"
                    && self.roles.item.index().data_input(at, 0).map(|source| source.node) == Some(variable)
                {
                    copy.input[0] = self.value_of(variable);
                }
                set(copy, &[("T", ty(dtype))]);
            }
        }
        Ok(())
    }
}
