//! How a dataset was made: by which op with which attributes from which inputs. A dataset leaves the process as its recipe.

use crate::dataset::{Dataset, DatasetVariant, tensor_dataset};
use graphmill_graph::{Attrs, FunctionLibrary, Node, OpDef, op_def};
use graphmill_runtime::{
    AnyKernel, Construction, Context, Device, FunctionRuntime, NodeInfo, Outputs, Registry, Step, Value,
};
use graphmill_tensor::{Bytes, DType, Result, Tensor, Variant, failed_precondition, internal, invalid_argument};
use graphmill_wire::tensorflow::attr_value::Value as AttrKind;
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef};
use prost::Message;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};

/// The registered name of the variant that holds a dataset.
pub(crate) const TYPE_NAME: &str = "tensorflow::DatasetVariantWrapper";

/// What a dataset was made by.
#[derive(Clone)]
pub(crate) struct Recipe {
    op: Arc<OpDef>,
    attrs: Attrs,
    inputs: Vec<Tensor>,
    /// Where the functions come from that the attributes name.
    functions: Weak<FunctionRuntime>,
}

impl Recipe {
    /// Of the node that makes it, without inputs.
    pub fn new(c: &Construction<'_>) -> Recipe {
        let functions = c.handle(Default::default()).runtime();
        Recipe {
            op: c.node().op.clone(),
            attrs: c.attrs().clone(),
            inputs: Vec::new(),
            functions: functions.as_ref().map_or_else(Weak::new, Arc::downgrade),
        }
    }

    /// With the inputs of one execution.
    pub fn with_inputs(&self, ctx: &Context<'_>) -> Result<Recipe> {
        let inputs = crate::dataset::inputs(ctx, 0..ctx.num_inputs())?;
        Ok(Recipe { inputs, ..self.clone() })
    }

    /// Of a dataset of these elements, which are all of `types`.
    pub fn of_elements(
        types: &[DType],
        shapes: Vec<graphmill_graph::PartialShape>,
        inputs: Vec<Tensor>,
    ) -> Option<Recipe> {
        use graphmill_wire::tensorflow::attr_value::ListValue;
        let list = |types: Vec<i32>| AttrKind::List(Box::new(ListValue { r#type: types, ..ListValue::default() }));
        let mut attrs = Attrs::new();
        attrs.set("Tinput_types", list(inputs.iter().map(|t| t.dtype().number()).collect()));
        attrs.set("output_types", list(types.iter().map(|t| t.number()).collect()));
        let shapes = ListValue { shape: shapes.iter().map(|s| s.to_proto()).collect(), ..ListValue::default() };
        attrs.set("output_shapes", AttrKind::List(Box::new(shapes)));
        Some(Recipe { op: op_def("ListDataset")?.clone(), attrs, inputs, functions: Weak::new() })
    }

    /// The op.
    pub fn op(&self) -> &str {
        &self.op.name
    }

    /// The attributes.
    pub fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// The inputs.
    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    /// A function that attributes may name, and the library that it is in.
    pub fn functions(&self) -> Option<Arc<FunctionRuntime>> {
        self.functions.upgrade()
    }

    /// Makes another dataset by `op`, with these attributes and inputs, where this one was made.
    pub fn make_other(&self, op: &str, attrs: Attrs, inputs: Vec<Tensor>) -> Result<Tensor> {
        let schema = op_def(op).ok_or_else(|| internal!("there is no op {op}"))?;
        let runtime = self.functions.upgrade().ok_or_else(|| internal!("The graph of a dataset is gone"))?;
        let node = Node::new("dataset", schema, attrs)?;
        run_maker(runtime.registry(), &Construction::with_functions(&node, runtime.devices().first(), &runtime), inputs)
    }

    /// The serialized form.
    pub fn serialize(&self) -> Variant {
        let node = NodeDef { op: self.op.name.to_string(), attr: self.attrs.to_proto(), ..NodeDef::default() };
        Variant {
            type_name: TYPE_NAME.to_owned(),
            metadata: Bytes::from(node.encode_to_vec()),
            tensors: self.inputs.clone(),
            object: None,
        }
    }

    /// `FAILED_PRECONDITION` if a function that it calls, or one of the datasets it is made of, has state outside the dataset.
    pub fn check_external_state(&self) -> Result<()> {
        for input in self.inputs.iter().filter_map(recipe_of) {
            input.check_external_state()?;
        }
        let runtime = self.functions.upgrade();
        let Some(library) = runtime.as_ref().map(|runtime| runtime.graph().library()) else { return Ok(()) };
        let mut seen = HashSet::new();
        called_functions(&self.attrs.to_proto()).try_for_each(|name| check_function(library, name, &mut seen))
    }

    /// Adds the nodes of the dataset to a graph; the name of its own node.
    pub fn add_to(&self, graph: &mut GraphDef) -> Result<String> {
        let mut input = Vec::with_capacity(self.inputs.len());
        for tensor in &self.inputs {
            input.push(match recipe_of(tensor) {
                Some(recipe) => recipe.add_to(graph)?,
                None => add_constant(graph, tensor),
            });
        }
        let name = format!("{}/_{}", self.op.name, graph.node.len());
        let attr = self.attrs.to_proto();
        graph.node.push(NodeDef {
            name: name.clone(),
            op: self.op.name.to_string(),
            input,
            attr,
            ..NodeDef::default()
        });
        if let Some(runtime) = self.functions.upgrade()
            && graph.library.is_none()
        {
            graph.library = Some(runtime.graph().library().to_proto());
        }
        Ok(name)
    }
}

fn add_constant(graph: &mut GraphDef, tensor: &Tensor) -> String {
    let name = format!("Const/_{}", graph.node.len());
    let attr = BTreeMap::from([
        ("dtype".to_owned(), AttrValue { value: Some(AttrKind::Type(tensor.dtype().number())) }),
        ("value".to_owned(), AttrValue { value: Some(AttrKind::Tensor(Box::new(tensor.to_proto()))) }),
    ]);
    graph.node.push(NodeDef { name: name.clone(), op: "Const".to_owned(), attr, ..NodeDef::default() });
    name
}

/// The recipe of the dataset in a tensor.
pub(crate) fn recipe_of(tensor: &Tensor) -> Option<&Recipe> {
    tensor.variants().ok()?.first()?.get::<DatasetVariant>()?.recipe.as_ref()
}

/// The functions that attributes name.
fn called_functions(attrs: &BTreeMap<String, AttrValue>) -> impl Iterator<Item = &str> {
    attrs.values().flat_map(|attr| match &attr.value {
        Some(AttrKind::Func(function)) => vec![function.name.as_str()],
        Some(AttrKind::List(list)) => list.func.iter().map(|function| function.name.as_str()).collect(),
        _ => Vec::new(),
    })
}

/// Fails if a function, or one that it calls, has a node with state. Nodes that make datasets have none that counts.
fn check_function<'a>(library: &'a FunctionLibrary, name: &'a str, seen: &mut HashSet<&'a str>) -> Result<()> {
    let Some(function) = library.get(name).filter(|_| seen.insert(name)) else { return Ok(()) };
    for node in &function.def.node_def {
        let called: Vec<&str> = std::iter::once(node.op.as_str())
            .chain(called_functions(&node.attr))
            .filter(|name| library.get(name).is_some())
            .collect();
        for name in &called {
            check_function(library, name, seen)?;
        }
        let Some(op) = op_def(&node.op).filter(|_| called.is_empty()) else { continue };
        let harmless =
            ["Assert", "Placeholder", "Print", "PrintV2"].contains(&&*op.name) || op.name.contains("Dataset");
        if op.is_stateful && !harmless {
            return Err(failed_precondition!("{} is stateful.", op.name));
        }
    }
    Ok(())
}

/// The kernels by which datasets are made anew: those that need no files.
fn makers() -> &'static Registry {
    static MAKERS: OnceLock<Registry> = OnceLock::new();
    MAKERS.get_or_init(|| {
        let mut registry = Registry::new();
        crate::register_without_files(&mut registry);
        registry
    })
}

/// Makes the dataset of a serialized variant.
pub(crate) fn rebuild(variant: &Variant, device: &Arc<Device>) -> Result<Arc<dyn Dataset>> {
    let node = NodeDef::decode(variant.metadata.clone())
        .map_err(|_| invalid_argument!("The serialized form of a dataset is broken"))?;
    let Some(op) = op_def(&node.op).filter(|_| node.op.contains("Dataset")) else {
        return Err(invalid_argument!("Tensor must be a Dataset object."));
    };
    let node = Node::new("dataset", op, Attrs::from_proto(&node.attr))?;
    let given: Vec<DType> = variant.tensors.iter().map(Tensor::dtype).collect();
    if !node.input_types.iter().map(|slot| slot.dtype).eq(given) {
        return Err(invalid_argument!("The serialized form of a dataset has other inputs than its op"));
    }
    let construction = Construction::new(&node, device);
    tensor_dataset(&run_maker(makers(), &construction, variant.tensors.clone())?, device)
}

/// Runs an op that makes a dataset; the tensor that stands for it.
pub(crate) fn run_maker(registry: &Registry, c: &Construction<'_>, inputs: Vec<Tensor>) -> Result<Tensor> {
    let AnyKernel::Sync(kernel) = registry.build(c)? else {
        return Err(internal!("a dataset op must not wait"));
    };
    let node = c.node();
    let info = NodeInfo {
        name: node.name.clone(),
        op: node.op.name.clone(),
        input_types: node.input_types.as_slice().into(),
        output_types: node.output_types.as_slice().into(),
    };
    let mut inputs: Vec<Value> = inputs.into_iter().map(Value::Tensor).collect();
    let mut outputs: Outputs = smallvec::smallvec![Value::None; info.output_types.len()];
    kernel.compute(&mut Context::new(&info, &Arc::new(Step::new(0)), c.device(), &mut inputs, &mut outputs))?;
    match outputs.into_iter().next() {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        _ => Err(internal!("a dataset op gave no dataset")),
    }
}

/// What is done about state outside a dataset when it is saved.
pub(crate) struct StatePolicy {
    fails: bool,
}

impl StatePolicy {
    /// Fails, or not.
    pub fn of(fails: bool) -> StatePolicy {
        StatePolicy { fails }
    }

    /// From the attribute `external_state_policy`, where 2 means to fail.
    pub fn new(c: &Construction<'_>) -> Result<StatePolicy> {
        let has = c.attrs().has("external_state_policy");
        Ok(StatePolicy { fails: has && c.attrs().int("external_state_policy")? == 2 })
    }

    /// Fails if the policy says so.
    pub fn check(&self, dataset: &Tensor) -> Result<()> {
        match recipe_of(dataset) {
            Some(recipe) if self.fails => recipe.check_external_state(),
            _ => Ok(()),
        }
    }
}
