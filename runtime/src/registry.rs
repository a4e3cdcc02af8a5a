//! Which kernels there are.

use crate::blocking::OnBlockingThread;
use crate::kernel::{AnyKernel, AsyncKernel, Construction, Kernel};
use graphmill_graph::Node;
use graphmill_tensor::{DType, Result, invalid_argument, unimplemented_op};
use std::collections::BTreeMap;
use std::sync::Arc;

type Build = Arc<dyn Fn(&Construction<'_>) -> Result<AnyKernel> + Send + Sync>;

/// One kernel: an op, a device type, and the element types it is for.
pub struct Registration {
    device_type: &'static str,
    constraints: Vec<(&'static str, Vec<DType>)>,
    build: Option<Build>,
}

impl Registration {
    /// The type of device it is for.
    pub fn device_type(&self) -> &'static str {
        self.device_type
    }

    /// For some type attributes, the element types it takes.
    pub fn constraints(&self) -> &[(&'static str, Vec<DType>)] {
        &self.constraints
    }

    fn matches(&self, node: &Node) -> bool {
        self.constraints.iter().all(|(attr, allowed)| match node.attrs.dtype(attr) {
            Ok(dtype) => allowed.contains(&dtype),
            Err(_) => node.attrs.dtype_list(attr).is_ok_and(|list| list.iter().all(|d| allowed.contains(d))),
        })
    }
}

/// All kernels, by op. Families add theirs in their `register` function.
#[derive(Default)]
pub struct Registry {
    kernels: BTreeMap<&'static str, Vec<Registration>>,
}

impl Registry {
    /// No kernels.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds a CPU kernel for an op: `registry.op("MatMul").types("T", &[DType::Float]).kernel(MatMul::new)`.
    pub fn op(&mut self, op: &'static str) -> Entry<'_> {
        let registration = Registration { device_type: "CPU", constraints: Vec::new(), build: None };
        Entry { registry: self, op, registration }
    }

    /// Every op with a kernel, in the order of the names, with its kernels.
    pub fn ops(&self) -> impl Iterator<Item = (&'static str, &[Registration])> {
        self.kernels.iter().map(|(op, list)| (*op, list.as_slice()))
    }

    /// The kernels of an op; empty if there are none.
    pub fn kernels_of(&self, op: &str) -> &[Registration] {
        self.kernels.get(op).map_or(&[], Vec::as_slice)
    }

    /// Whether an op may run on a type of device, as far as is known here: functions, and ops that only other tasks have, run on CPUs.
    pub fn has_kernel(&self, op: &str, device_type: &str) -> bool {
        let kernels = self.kernels_of(op);
        if kernels.is_empty() { device_type == "CPU" } else { kernels.iter().any(|k| k.device_type == device_type) }
    }

    /// Makes the kernel of a node.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` naming the op if it has no kernel here, `INVALID_ARGUMENT` if none of its kernels takes the node's types,
    /// and what the constructor returns.
    pub fn build(&self, construction: &Construction<'_>) -> Result<AnyKernel> {
        let node = construction.node();
        let op: &str = &node.op.name;
        let kernels = self.kernels_of(op);
        if kernels.is_empty() {
            return Err(unimplemented_op!("Op {op} is not implemented in graphmill"));
        }
        let device_type = construction.device().device_type();
        let found = kernels.iter().find(|k| k.device_type == device_type && k.matches(node));
        match found.and_then(|k| k.build.as_ref()) {
            Some(build) => build(&construction.within(self)),
            None => Err(no_kernel(node, kernels, device_type)),
        }
    }
}

fn no_kernel(node: &Node, kernels: &[Registration], device_type: &str) -> graphmill_tensor::Status {
    let mut registered = String::new();
    for kernel in kernels {
        registered.push_str(&format!("  device='{}'", kernel.device_type));
        for (attr, allowed) in &kernel.constraints {
            let names: Vec<String> = allowed.iter().map(|d| format!("DT_{}", d.name().to_uppercase())).collect();
            registered.push_str(&format!("; {attr} in [{}]", names.join(", ")));
        }
        registered.push('\n');
    }
    let op = &node.op.name;
    let types: Vec<String> = node
        .op
        .attrs
        .iter()
        .filter_map(|a| node.attrs.dtype(&a.name).ok().map(|d| format!("{}=DT_{}", a.name, d.name().to_uppercase())))
        .collect();
    invalid_argument!(
        "No OpKernel was registered to support Op '{op}' used by {{{{node {}}}}} with these attrs: [{}]\n\
         Registered devices: [{device_type}]\nRegistered kernels:\n{registered}",
        node.name,
        types.join(", ")
    )
}

/// A kernel being registered.
pub struct Entry<'a> {
    registry: &'a mut Registry,
    op: &'static str,
    registration: Registration,
}

impl Entry<'_> {
    /// The element types that the type attribute (or list of types) `attr` may have. Without this every type matches.
    pub fn types(mut self, attr: &'static str, allowed: &[DType]) -> Self {
        self.registration.constraints.push((attr, allowed.to_vec()));
        self
    }

    /// The constructor of a synchronous kernel.
    pub fn kernel<K: Kernel + 'static>(self, new: impl Fn(&Construction<'_>) -> Result<K> + Send + Sync + 'static) {
        self.finish(Arc::new(move |c| Ok(AnyKernel::Sync(Box::new(new(c)?)))));
    }

    /// The constructor of an asynchronous kernel.
    pub fn async_kernel<K: AsyncKernel + 'static>(
        self,
        new: impl Fn(&Construction<'_>) -> Result<K> + Send + Sync + 'static,
    ) {
        self.finish(Arc::new(move |c| Ok(AnyKernel::Async(Box::new(new(c)?)))));
    }

    /// The constructor of a kernel that waits for the system, such as for files: it computes on a thread that may do so.
    pub fn blocking_kernel<K: Kernel + 'static>(
        self,
        new: impl Fn(&Construction<'_>) -> Result<K> + Send + Sync + 'static,
    ) {
        self.async_kernel(move |c| Ok(OnBlockingThread::new(new(c)?)));
    }

    fn finish(self, build: Build) {
        let mut registration = self.registration;
        registration.build = Some(build);
        self.registry.kernels.entry(self.op).or_default().push(registration);
    }
}
