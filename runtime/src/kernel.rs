//! What a kernel is, how one is made, and what it sees when it runs.

use crate::{Device, FunctionHandle, FunctionRuntime, Registry, Step, Value, Variable};
use graphmill_graph::{ArgType, Attrs, Graph, Node};
use graphmill_tensor::{DType, Element, Result, Shape, SlotType, Tensor, internal, invalid_argument};
use graphmill_wire::tensorflow::NameAttrList;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// The outputs of a node.
pub type Outputs = SmallVec<[Value; 1]>;

/// A kernel that computes its outputs before it returns. It must not wait for anything but the processor.
pub trait Kernel: Send + Sync {
    /// Reads the inputs of `ctx`, sets its outputs. Outputs left unset are dead (`Switch` uses this).
    ///
    /// # Errors
    /// The status becomes the step's; the executor adds the node's name.
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()>;
}

/// A kernel that may wait: it starts, returns, and completes later from any thread. It holds no thread while it waits, and
/// registers with the step's cancellation.
pub trait AsyncKernel: Send + Sync {
    /// Starts; [`AsyncContext::complete`] must be called once, now or later. Dropping the context fails the step.
    fn start(&self, ctx: AsyncContext);
}

/// A kernel of either form.
pub enum AnyKernel {
    /// Computes on the calling thread.
    Sync(Box<dyn Kernel>),
    /// Completes later.
    Async(Box<dyn AsyncKernel>),
}

/// What a kernel's constructor sees: the node, with its attributes checked against the schema, and the device.
pub struct Construction<'a> {
    pub(crate) node: &'a Node,
    pub(crate) device: &'a Arc<Device>,
    pub(crate) functions: Weak<FunctionRuntime>,
    /// Where the kernel is made from, once that has begun.
    pub(crate) registry: Option<&'a Registry>,
    /// What the node is part of, if that is known.
    pub(crate) graph: Option<&'a Graph>,
}

impl<'a> Construction<'a> {
    /// For a node on a device.
    pub fn new(node: &'a Node, device: &'a Arc<Device>) -> Construction<'a> {
        Construction { node, device, functions: Weak::new(), registry: None, graph: None }
    }

    /// For a node that may call functions, on the device that it is on itself.
    pub fn with_functions(node: &'a Node, device: &'a Arc<Device>, runtime: &Arc<FunctionRuntime>) -> Construction<'a> {
        Construction { node, device, functions: Arc::downgrade(runtime), registry: None, graph: None }
    }

    /// This construction for a node of `graph`.
    pub(crate) fn in_graph(self, graph: &'a Graph) -> Construction<'a> {
        Construction { graph: Some(graph), ..self }
    }

    /// What input `i` is called in the node's definition, for texts of errors; empty for a node outside of a graph.
    pub fn input_name(&self, i: usize) -> String {
        let endpoint = self.node.inputs.get(i);
        self.graph.zip(endpoint).map_or_else(String::new, |(graph, endpoint)| endpoint.name_in(graph))
    }

    /// The node.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// The node's name.
    pub fn name(&self) -> &'a str {
        &self.node.name
    }

    /// The device.
    pub fn device(&self) -> &'a Arc<Device> {
        self.device
    }

    /// The attributes.
    pub fn attrs(&self) -> &'a Attrs {
        &self.node.attrs
    }

    /// The element type in attribute `name`.
    ///
    /// # Errors
    /// As [`Attrs::dtype`].
    pub fn dtype(&self, name: &str) -> Result<DType> {
        self.attrs().dtype(name)
    }

    /// The function that attribute `name` names, to be bound when it is first called.
    ///
    /// # Errors
    /// As [`Attrs::func`].
    pub fn function(&self, name: &str) -> Result<FunctionHandle> {
        Ok(self.handle(self.attrs().func(name)?.clone()))
    }

    /// The functions that the list in attribute `name` names.
    ///
    /// # Errors
    /// As [`Attrs::func_list`].
    pub fn functions(&self, name: &str) -> Result<Vec<FunctionHandle>> {
        Ok(self.attrs().func_list(name)?.iter().map(|function| self.handle(function.clone())).collect())
    }

    /// A function of the graph's library.
    pub fn handle(&self, function: NameAttrList) -> FunctionHandle {
        FunctionHandle::new(function, self.functions.clone(), self.device.clone())
    }

    /// Types of the inputs, lists expanded.
    pub fn input_types(&self) -> &'a [SlotType] {
        &self.node.input_types
    }

    /// Types of the outputs, lists expanded.
    pub fn output_types(&self) -> &'a [SlotType] {
        &self.node.output_types
    }

    /// The number of inputs, lists expanded.
    #[inline]
    pub fn num_inputs(&self) -> usize {
        self.node.input_types.len()
    }

    /// The positions among all inputs of those that belong to the input argument `name` of the op's schema.
    ///
    /// # Errors
    /// `INTERNAL` if the schema has no such argument.
    pub fn input_range(&self, name: &str) -> Result<Range<usize>> {
        let mut start = 0;
        for arg in &self.node.op.inputs {
            let per_slot = match &arg.ty {
                ArgType::TypeListAttr(attr) => self.attrs().dtype_list(attr)?.len(),
                _ => 1,
            };
            let repeats = match &arg.number_attr {
                Some(attr) => usize::try_from(self.attrs().int(attr)?).unwrap_or(0),
                None => 1,
            };
            let end = start + per_slot * repeats;
            if &*arg.name == name {
                return Ok(start..end);
            }
            start = end;
        }
        Err(internal!("op {} has no input argument {name}", self.node.op.name))
    }
}

/// What is fixed about a node at run time.
pub struct NodeInfo {
    /// The node's name.
    pub name: Arc<str>,
    /// The op.
    pub op: Arc<str>,
    /// Types of the inputs, lists expanded.
    pub input_types: SlotTypes,
    /// Types of the outputs, lists expanded.
    pub output_types: SlotTypes,
}

/// Types of inputs or of outputs. Few of them need no memory of their own, which steps of tiny nodes would miss in the cache.
pub type SlotTypes = SmallVec<[SlotType; 8]>;

/// What a kernel sees when it runs.
pub struct Context<'a> {
    pub(crate) node: &'a NodeInfo,
    pub(crate) step: &'a Arc<Step>,
    pub(crate) device: &'a Arc<Device>,
    pub(crate) inputs: &'a mut [Value],
    pub(crate) outputs: &'a mut [Value],
}

impl<'a> Context<'a> {
    /// For one run of a node. `outputs` has one place for each output.
    pub fn new(
        node: &'a NodeInfo,
        step: &'a Arc<Step>,
        device: &'a Arc<Device>,
        inputs: &'a mut [Value],
        outputs: &'a mut [Value],
    ) -> Context<'a> {
        Context { node, step, device, inputs, outputs }
    }

    /// The node.
    pub fn node(&self) -> &'a NodeInfo {
        self.node
    }

    /// The step.
    pub fn step(&self) -> &'a Arc<Step> {
        self.step
    }

    /// The device.
    pub fn device(&self) -> &'a Arc<Device> {
        self.device
    }

    /// The number of inputs, lists expanded.
    #[inline]
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs, lists expanded.
    pub fn num_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Input `i` as a tensor. The executor has replaced references by snapshots where the op does not ask for a reference.
    ///
    /// # Errors
    /// `INTERNAL` if there is no such input or it is a reference.
    #[inline]
    pub fn input(&self, i: usize) -> Result<&Tensor> {
        match self.inputs.get(i) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            Some(Value::Ref(_)) => Err(internal!("input {i} is a reference")),
            _ => Err(internal!("input {i} has no value")),
        }
    }

    /// Whether input `i` has a value. Only `Merge` runs with inputs that have none.
    #[inline]
    pub fn has_input(&self, i: usize) -> bool {
        self.inputs.get(i).is_some_and(|value| !value.is_none())
    }

    /// Input `i` by move, so that it can be passed on or, if [`Tensor::is_unique`], overwritten.
    ///
    /// # Errors
    /// As [`Context::input`].
    #[inline]
    pub fn take_input(&mut self, i: usize) -> Result<Tensor> {
        self.input(i)?;
        match self.inputs.get_mut(i).map(std::mem::take) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            _ => Err(internal!("input {i} has no value")),
        }
    }

    /// The variable that the reference input `i` refers to.
    ///
    /// # Errors
    /// `INTERNAL` if the input is not a reference.
    pub fn input_ref(&self, i: usize) -> Result<&Arc<Variable>> {
        match self.inputs.get(i) {
            Some(Value::Ref(variable)) => Ok(variable),
            _ => Err(internal!("input {i} is not a reference")),
        }
    }

    /// Input `i` as it came, tensor or reference, by move. For ops that only pass values on.
    ///
    /// # Errors
    /// `INTERNAL` if there is no such input or it has no value.
    pub fn take_value(&mut self, i: usize) -> Result<Value> {
        match self.inputs.get_mut(i).map(std::mem::take) {
            None | Some(Value::None) => Err(internal!("input {i} has no value")),
            Some(value) => Ok(value),
        }
    }

    /// The declared element type of output `i`.
    ///
    /// # Errors
    /// `INTERNAL` if there is no such output.
    #[inline]
    pub fn output_type(&self, i: usize) -> Result<DType> {
        match self.node.output_types.get(i) {
            Some(slot) => Ok(slot.dtype),
            None => Err(internal!("there is no output {i}")),
        }
    }

    /// A tensor for output `i`, of its declared type. The caller fills it and hands it to [`Context::set_output`].
    ///
    /// # Errors
    /// As [`Tensor::alloc`].
    pub fn alloc_output(&self, i: usize, shape: Shape) -> Result<Tensor> {
        Tensor::alloc(self.output_type(i)?, shape)
    }

    /// A tensor for output `i` that may be one of the inputs in `candidates`, if that has this type and shape and nobody else
    /// needs it (the input is then gone from the context, its elements still in the returned tensor). The second value is the
    /// input that was taken.
    ///
    /// # Errors
    /// As [`Tensor::alloc`].
    #[inline]
    pub fn reuse_or_alloc(&mut self, candidates: &[usize], i: usize, shape: &Shape) -> Result<(Tensor, Option<usize>)> {
        let dtype = self.output_type(i)?;
        for &candidate in candidates {
            if let Some(slot) = self.inputs.get_mut(candidate)
                && let Value::Tensor(tensor) = slot
                && tensor.dtype() == dtype
                && tensor.shape() == shape
                && tensor.is_unique()
                && let Value::Tensor(tensor) = std::mem::take(slot)
            {
                return Ok((tensor, Some(candidate)));
            }
        }
        Ok((Tensor::alloc(dtype, shape.clone())?, None))
    }

    /// As [`Context::reuse_or_alloc`], with the tensor as output `i` already: the caller fills it where it is.
    ///
    /// # Errors
    /// As [`Tensor::alloc`], and `INTERNAL` if there is no such output.
    #[inline]
    pub fn overwrite(&mut self, candidates: &[usize], i: usize, shape: &Shape) -> Result<&mut Tensor> {
        let (tensor, _) = self.reuse_or_alloc(candidates, i, shape)?;
        match self.outputs.get_mut(i) {
            Some(slot) => {
                *slot = Value::Tensor(tensor);
                match slot {
                    Value::Tensor(tensor) => Ok(tensor),
                    _ => Err(internal!("there is no output {i}")),
                }
            }
            None => Err(internal!("there is no output {i}")),
        }
    }

    /// Sets output `i`.
    ///
    /// # Errors
    /// `INTERNAL` if there is no such output or the tensor is not of its declared type.
    #[inline]
    pub fn set_output(&mut self, i: usize, tensor: Tensor) -> Result<()> {
        let declared = self.output_type(i)?;
        if tensor.dtype() != declared {
            return Err(internal!("output {i} is declared as {declared}, the kernel made {}", tensor.dtype()));
        }
        self.set_value(i, Value::Tensor(tensor))
    }

    /// Makes output `i` a reference to a variable.
    ///
    /// # Errors
    /// `INTERNAL` if there is no such output.
    pub fn set_output_ref(&mut self, i: usize, variable: Arc<Variable>) -> Result<()> {
        self.set_value(i, Value::Ref(variable))
    }

    /// Sets output `i` to a value as it came from [`Context::take_value`].
    ///
    /// # Errors
    /// `INTERNAL` if there is no such output.
    #[inline]
    pub fn set_value(&mut self, i: usize, value: Value) -> Result<()> {
        match self.outputs.get_mut(i) {
            Some(slot) => {
                *slot = value;
                Ok(())
            }
            None => Err(internal!("there is no output {i}")),
        }
    }

    /// Sets output `i` to a scalar.
    ///
    /// # Errors
    /// As [`Context::set_output`].
    pub fn set_scalar<T: Element>(&mut self, i: usize, value: T) -> Result<()> {
        self.set_output(i, Tensor::scalar(value)?)
    }

    /// Splits a loop over the threads of the device; see [`crate::IntraOpPool::parallel_for`].
    pub fn parallel_for(&self, total: usize, cost: f64, body: impl Fn(Range<usize>) + Sync) {
        self.device.pool().parallel_for(total, cost, body);
    }

    /// Splits a loop that fills a slice; see [`crate::IntraOpPool::parallel_chunks`].
    pub fn parallel_chunks<T: Send>(
        &self,
        data: &mut [T],
        unit: usize,
        cost: f64,
        body: impl Fn(Range<usize>, &mut [T]) + Sync,
    ) {
        self.device.pool().parallel_chunks(data, unit, cost, body);
    }

    /// The shape that the int32 or int64 vector in input `i` spells out.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not a vector of sizes.
    pub fn input_as_shape(&self, i: usize) -> Result<Shape> {
        let tensor = self.input(i)?;
        if !tensor.shape().is_vector() {
            return Err(invalid_argument!("shape must be a vector of {{int32,int64}}, got shape {}", tensor.shape()));
        }
        Shape::new(&tensor.to_i64_vec()?)
    }
}

/// What an asynchronous kernel sees; it owns everything, and is consumed by completing.
pub struct AsyncContext {
    pub(crate) node: Arc<NodeInfo>,
    pub(crate) step: Arc<Step>,
    pub(crate) device: Arc<Device>,
    pub(crate) inputs: SmallVec<[Value; 4]>,
    frame: (u64, u64),
    pub(crate) done: Option<Done>,
}

type Done = Box<dyn FnOnce(Result<Outputs>) + Send>;

impl AsyncContext {
    /// For one run of a node; `done` gets the outcome.
    pub fn new(
        node: Arc<NodeInfo>,
        step: Arc<Step>,
        device: Arc<Device>,
        inputs: SmallVec<[Value; 4]>,
        done: impl FnOnce(Result<Outputs>) + Send + 'static,
    ) -> AsyncContext {
        AsyncContext { node, step, device, inputs, frame: (0, 0), done: Some(Box::new(done)) }
    }

    /// This run as one in an iteration of a frame.
    pub fn in_frame(mut self, frame: u64, iteration: u64) -> AsyncContext {
        self.frame = (frame, iteration);
        self
    }

    /// The number by which all tasks know the frame, and the iteration; both are 0 outside of loops.
    pub fn frame_and_iteration(&self) -> (u64, u64) {
        self.frame
    }

    /// The node.
    pub fn node(&self) -> &Arc<NodeInfo> {
        &self.node
    }

    /// The step.
    pub fn step(&self) -> &Arc<Step> {
        &self.step
    }

    /// The number of inputs, lists expanded.
    #[inline]
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The inputs in a range as tensors, by move.
    ///
    /// # Errors
    /// `INTERNAL` if one of them does not exist or is no tensor.
    pub fn take_tensors(&mut self, range: Range<usize>) -> Result<Vec<Tensor>> {
        let inputs = self.inputs.get_mut(range.clone());
        let inputs = inputs.ok_or_else(|| internal!("there are no inputs {range:?}"))?;
        let tensor = |value: &mut Value| match std::mem::take(value) {
            Value::Tensor(tensor) => Ok(tensor),
            _ => Err(internal!("an input has no value")),
        };
        inputs.iter_mut().map(tensor).collect()
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Runs `body` with the synchronous view of the same node, for checks and for reading inputs.
    ///
    /// # Errors
    /// What `body` returns.
    pub fn with_context<T>(&mut self, body: impl FnOnce(&mut Context<'_>) -> Result<T>) -> Result<(T, Outputs)> {
        let mut outputs: Outputs = smallvec::smallvec![Value::None; self.node.output_types.len()];
        let mut ctx = Context::new(&self.node, &self.step, &self.device, &mut self.inputs, &mut outputs);
        let result = body(&mut ctx)?;
        Ok((result, outputs))
    }

    /// Ends the run.
    pub fn complete(mut self, outcome: Result<Outputs>) {
        if let Some(done) = self.done.take() {
            done(outcome);
        }
    }
}

impl Drop for AsyncContext {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(internal!("a kernel gave up without an outcome")));
        }
    }
}
