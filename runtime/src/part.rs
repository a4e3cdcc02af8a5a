//! Kernels within kernels: what a fused op consists of.

use crate::kernel::{AnyKernel, Construction, Context, Kernel, NodeInfo, Outputs};
use crate::{Registry, Value};
use graphmill_graph::{Attrs, Node, op_def};
use graphmill_tensor::{Result, Tensor, internal};

/// The kernel of another op, made and run by the kernel that it is a part of.
pub struct Part {
    info: NodeInfo,
    kernel: Box<dyn Kernel>,
}

impl Construction<'_> {
    /// The kernel of `op` with these attributes, as a part of the kernel under construction. Attributes left out have their
    /// defaults.
    ///
    /// # Errors
    /// What the checks of the attributes and the constructor return; `INTERNAL` if there is no such op or its kernel is
    /// asynchronous.
    pub fn part(&self, op: &str, attrs: Attrs) -> Result<Part> {
        let registry = self.registry.ok_or_else(|| internal!("a part is made outside of a registry"))?;
        let schema = op_def(op).ok_or_else(|| internal!("there is no op {op}"))?;
        let node = Node::new(self.name(), schema, attrs)?;
        let info = NodeInfo {
            name: node.name.clone(),
            op: node.op.name.clone(),
            input_types: node.input_types.as_slice().into(),
            output_types: node.output_types.as_slice().into(),
        };
        match registry.build(&self.of_node(&node))? {
            AnyKernel::Sync(kernel) => Ok(Part { info, kernel }),
            AnyKernel::Async(_) => Err(internal!("the kernel of {op} cannot be a part")),
        }
    }

    fn of_node<'b>(&'b self, node: &'b Node) -> Construction<'b> {
        let functions = self.functions.clone();
        Construction { node, device: self.device, functions, registry: self.registry, graph: None }
    }

    pub(crate) fn within<'b>(&'b self, registry: &'b Registry) -> Construction<'b> {
        Construction {
            node: self.node,
            device: self.device,
            functions: self.functions.clone(),
            registry: Some(registry),
            graph: self.graph,
        }
    }
}

impl Part {
    /// Runs the kernel on these inputs, in the step that `ctx` belongs to.
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn run(&self, ctx: &Context<'_>, inputs: &mut [Value]) -> Result<Outputs> {
        let mut outputs: Outputs = smallvec::smallvec![Value::None; self.info.output_types.len()];
        self.kernel.compute(&mut Context::new(&self.info, ctx.step, ctx.device, inputs, &mut outputs))?;
        Ok(outputs)
    }

    /// As [`Part::run`], for a kernel with one output.
    ///
    /// # Errors
    /// As [`Part::run`].
    pub fn run_one(&self, ctx: &Context<'_>, inputs: &mut [Value]) -> Result<Tensor> {
        match self.run(ctx, inputs)?.into_iter().next() {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            _ => Err(internal!("the kernel of {} gave no tensor", self.info.op)),
        }
    }
}
