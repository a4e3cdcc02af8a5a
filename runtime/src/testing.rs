//! Running one kernel alone, for tests of kernels.

use crate::{
    AnyKernel, AsyncContext, Construction, Context, Device, IntraOpPool, NodeInfo, Outputs, Registration, Registry,
    Step, Value,
};
use graphmill_graph::{Graph, NodeId};
use graphmill_tensor::{DType, Result, Tensor, internal};
use graphmill_wire::tensorflow::tensor_shape_proto::Dim;
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef, TensorShapeProto, VersionDef, attr_value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// One op with attributes, run on tensors: `OpRun::new("MatMul").attr_type("T", DType::Float).run(&registry, vec![a, b])`.
pub struct OpRun {
    op: String,
    attrs: BTreeMap<String, AttrValue>,
}

impl OpRun {
    /// The op without attributes; defaults are filled in.
    pub fn new(op: &str) -> OpRun {
        OpRun { op: op.to_owned(), attrs: BTreeMap::new() }
    }

    /// Sets an attribute.
    pub fn attr(mut self, name: &str, value: attr_value::Value) -> OpRun {
        self.attrs.insert(name.to_owned(), AttrValue { value: Some(value) });
        self
    }

    /// Sets a type attribute.
    pub fn attr_type(self, name: &str, dtype: DType) -> OpRun {
        self.attr(name, attr_value::Value::Type(dtype.number()))
    }

    /// Sets an integer attribute.
    pub fn attr_int(self, name: &str, value: i64) -> OpRun {
        self.attr(name, attr_value::Value::I(value))
    }

    /// Sets a truth value.
    pub fn attr_bool(self, name: &str, value: bool) -> OpRun {
        self.attr(name, attr_value::Value::B(value))
    }

    /// Sets a float.
    pub fn attr_float(self, name: &str, value: f32) -> OpRun {
        self.attr(name, attr_value::Value::F(value))
    }

    /// Sets a string.
    pub fn attr_str(self, name: &str, value: &str) -> OpRun {
        self.attr(name, attr_value::Value::S(value.to_owned().into_bytes().into()))
    }

    /// Sets a list of integers.
    pub fn attr_ints(self, name: &str, values: &[i64]) -> OpRun {
        let list = attr_value::ListValue { i: values.to_vec(), ..Default::default() };
        self.attr(name, attr_value::Value::List(Box::new(list)))
    }

    /// Sets a list of types.
    pub fn attr_types(self, name: &str, values: &[DType]) -> OpRun {
        let list = attr_value::ListValue { r#type: values.iter().map(|d| d.number()).collect(), ..Default::default() };
        self.attr(name, attr_value::Value::List(Box::new(list)))
    }

    /// Sets a list of shapes; -1 is a size that is not known.
    pub fn attr_shapes(self, name: &str, shapes: &[&[i64]]) -> OpRun {
        let dim = |&size: &i64| Dim { size, ..Default::default() };
        let shape = |dims: &&[i64]| TensorShapeProto { dim: dims.iter().map(dim).collect(), unknown_rank: false };
        let list = attr_value::ListValue { shape: shapes.iter().map(shape).collect(), ..Default::default() };
        self.attr(name, attr_value::Value::List(Box::new(list)))
    }

    /// Validates the one-op graph, makes the kernel and runs it.
    ///
    /// # Errors
    /// What validation, construction or the kernel return.
    pub fn run(&self, registry: &Registry, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let outputs = self.run_values(registry, inputs.into_iter().map(Value::Tensor).collect())?;
        outputs.into_iter().map(|value| value.snapshot()).collect()
    }

    /// As [`OpRun::run`], with inputs and outputs that may be references or absent.
    ///
    /// # Errors
    /// As [`OpRun::run`].
    pub fn run_values(&self, registry: &Registry, inputs: Vec<Value>) -> Result<Outputs> {
        self.run_on(registry, &test_device(), inputs)
    }

    /// As [`OpRun::run_values`], on a device whose resources the caller looks after.
    ///
    /// # Errors
    /// As [`OpRun::run`].
    pub fn run_on(&self, registry: &Registry, device: &Arc<Device>, mut inputs: Vec<Value>) -> Result<Outputs> {
        let graph = self.graph(&inputs)?;
        let id = graph.find("op").ok_or_else(|| internal!("the op is not in its graph"))?;
        run_node(registry, device, &graph, id, &mut inputs)
    }

    fn graph(&self, inputs: &[Value]) -> Result<Graph> {
        let mut nodes = Vec::new();
        for (i, input) in inputs.iter().enumerate() {
            let (op, dtype) = match input {
                Value::Ref(variable) => ("VariableV2", variable.dtype()),
                Value::Tensor(tensor) => ("Placeholder", tensor.dtype()),
                Value::None => ("Placeholder", DType::Float),
            };
            let dtype_attr = AttrValue { value: Some(attr_value::Value::Type(dtype.number())) };
            let shape = AttrValue { value: Some(attr_value::Value::Shape(Default::default())) };
            nodes.push(NodeDef {
                name: format!("input{i}"),
                op: op.to_owned(),
                attr: [("dtype".to_owned(), dtype_attr), ("shape".to_owned(), shape)].into(),
                ..Default::default()
            });
        }
        nodes.push(NodeDef {
            name: "op".to_owned(),
            op: self.op.clone(),
            input: (0..inputs.len()).map(|i| format!("input{i}")).collect(),
            attr: self.attrs.clone(),
            ..Default::default()
        });
        let versions = Some(VersionDef { producer: 2474, ..Default::default() });
        Graph::from_def(&GraphDef { node: nodes, versions, ..Default::default() })
    }
}

/// A device for tests, with two threads for loops.
pub fn test_device() -> Arc<Device> {
    Arc::new(Device::cpu("/job:localhost/replica:0/task:0", "localhost", 0, 1, IntraOpPool::new(2)))
}

fn run_node(
    registry: &Registry,
    device: &Arc<Device>,
    graph: &Graph,
    id: NodeId,
    inputs: &mut [Value],
) -> Result<Outputs> {
    let node = graph.node(id);
    let info = NodeInfo {
        name: node.name.clone(),
        op: node.op.name.clone(),
        input_types: node.input_types.as_slice().into(),
        output_types: node.output_types.as_slice().into(),
    };
    let step = Arc::new(Step::new(1));
    match registry.build(&Construction::new(node, device))? {
        AnyKernel::Sync(kernel) => {
            let mut outputs: Outputs = smallvec::smallvec![Value::None; info.output_types.len()];
            kernel.compute(&mut Context::new(&info, &step, device, inputs, &mut outputs))?;
            Ok(outputs)
        }
        AnyKernel::Async(kernel) => {
            let (sender, receiver) = mpsc::channel();
            let inputs = inputs.iter_mut().map(std::mem::take).collect();
            let done = move |outcome| drop(sender.send(outcome));
            kernel.start(AsyncContext::new(Arc::new(info), step, device.clone(), inputs, done));
            receiver.recv_timeout(Duration::from_secs(60)).map_err(|_| internal!("the kernel did not complete"))?
        }
    }
}

/// How the kernels of a family differ from a table of TensorFlow's: lines of an op and, behind a tab, the element types of each
/// kernel as `T=float,Tidx=int32 ; T=double,Tidx=int32`. Every combination must be taken by one kernel, and no other by any;
/// `own` names ops that TensorFlow has no kernel for. Empty if they agree.
pub fn kernel_differences(registry: &Registry, table: &str, own: &[&str]) -> Vec<String> {
    let mut differences = Vec::new();
    let mut listed = BTreeMap::new();
    for (op, list) in table.lines().filter_map(|line| line.split_once('\t')).filter(|(op, _)| *op != "op") {
        listed.insert(op, list.split(" ; ").map(combination).collect::<BTreeSet<_>>());
    }
    for (&op, combinations) in &listed {
        for wanted in combinations {
            let takes = |(attr, types): &(&str, Vec<DType>)| {
                wanted.iter().any(|(name, dtype)| name == attr && types.iter().any(|t| t.name() == *dtype))
            };
            let found = registry.kernels_of(op).iter().filter(|k| k.constraints().iter().all(takes)).count();
            if found != 1 {
                differences.push(format!("{op} has {found} kernels for {wanted:?}"));
            }
        }
    }
    for (op, kernels) in registry.ops().filter(|(op, _)| !own.contains(op)) {
        let count =
            |kernel: &Registration| kernel.constraints().iter().map(|(_, types)| types.len()).product::<usize>();
        let (here, there) = (kernels.iter().map(count).sum::<usize>(), listed.get(op).map_or(0, BTreeSet::len));
        if here != there {
            differences.push(format!("{op} takes {here} combinations of types, TensorFlow's {there}"));
        }
    }
    differences
}

/// The type attributes of a kernel in the table; some kernels are told apart by their data format too.
fn combination(text: &str) -> Vec<(&str, &str)> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .filter(|(a, d)| *a != "data_format" && !d.is_empty())
        .collect()
}
