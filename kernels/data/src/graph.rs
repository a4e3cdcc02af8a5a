//! Datasets as graphs: `DatasetToGraph`, `DatasetToGraphV2`, `DatasetFromGraph`.

use crate::dataset::{input_dataset, scalar_string};
use crate::recipe::{StatePolicy, recipe_of, run_maker};
use graphmill_graph::{Graph, topological_order};
use graphmill_runtime::{Construction, Context, FunctionRuntime, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, internal, invalid_argument, unimplemented_op};
use graphmill_wire::tensorflow::attr_value::Value as AttrKind;
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Weak;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("DatasetToGraph").kernel(ToGraph::new);
    registry.op("DatasetToGraphV2").kernel(ToGraph::new);
    registry.op("DatasetFromGraph").kernel(|c| {
        let functions = c.handle(Default::default()).runtime();
        Ok(FromGraph(functions.as_ref().map_or_else(Weak::new, std::sync::Arc::downgrade)))
    });
}

/// The graph of a dataset, serialized.
struct ToGraph {
    policy: StatePolicy,
}

impl ToGraph {
    fn new(c: &Construction<'_>) -> Result<ToGraph> {
        if c.attrs().has("allow_stateful") {
            return Ok(ToGraph { policy: StatePolicy::of(!c.attrs().bool("allow_stateful")?) });
        }
        Ok(ToGraph { policy: StatePolicy::new(c)? })
    }
}

impl Kernel for ToGraph {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        input_dataset(ctx, 0)?;
        let tensor = ctx.input(0)?;
        self.policy.check(tensor)?;
        let Some(recipe) = recipe_of(tensor) else {
            return Err(unimplemented_op!("This dataset cannot be turned into a graph"));
        };
        let mut graph = GraphDef::default();
        let name = recipe.add_to(&mut graph)?;
        let attr = BTreeMap::from([
            ("T".to_owned(), AttrValue { value: Some(AttrKind::Type(DType::Variant.number())) }),
            ("index".to_owned(), AttrValue { value: Some(AttrKind::I(0)) }),
        ]);
        let result = NodeDef {
            name: "dataset".to_owned(),
            op: "_Retval".to_owned(),
            input: vec![name],
            attr,
            ..NodeDef::default()
        };
        graph.node.push(result);
        let bytes = Bytes::from(graph.encode_to_vec());
        ctx.set_output(0, Tensor::from_strings(Shape::scalar(), vec![bytes])?)
    }
}

/// The dataset of a graph that [`ToGraph`] or TensorFlow's own op has made: constants and ops on datasets.
struct FromGraph(Weak<FunctionRuntime>);

impl Kernel for FromGraph {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let text = scalar_string(ctx, 0, "graph_def")?;
        let Ok(mut def) = GraphDef::decode(text) else {
            return Err(invalid_argument!("Could not parse the graph of a dataset"));
        };
        let Some(result) = def.node.iter().position(|node| node.op == "_Retval") else {
            return Err(invalid_argument!("The graph of a dataset has no result"));
        };
        let result = def.node.remove(result).input.into_iter().next().unwrap_or_default();
        let result = result.split(':').next().unwrap_or_default();
        let graph = Graph::from_def(&def)?;
        let Some(runtime) = self.0.upgrade() else {
            return Err(internal!("There are no kernels to make datasets with"));
        };
        // The dataset keeps its library by the functions that it holds.
        let runtime = runtime.for_graph(&graph);
        let mut made: Vec<Option<Tensor>> = vec![None; graph.len()];
        for id in topological_order(&graph)? {
            let node = graph.node(id);
            let tensor = if node.op_name() == "Const" {
                node.attrs.tensor("value")?
            } else if node.op_name().contains("Dataset") {
                let input = |endpoint: &graphmill_graph::Endpoint| {
                    let tensor = made.get(endpoint.node.index()).cloned().flatten();
                    tensor.ok_or_else(|| internal!("a node of a dataset's graph has no value"))
                };
                let inputs = node.inputs.iter().map(input).collect::<Result<_>>()?;
                run_maker(runtime.registry(), &Construction::with_functions(node, ctx.device(), &runtime), inputs)?
            } else {
                return Err(unimplemented_op!("Op {} in the graph of a dataset", node.op_name()));
            };
            if let Some(slot) = made.get_mut(id.index()) {
                *slot = Some(tensor);
            }
        }
        let dataset = graph.find(result).and_then(|id| made.get(id.index()).cloned().flatten());
        let dataset = dataset.ok_or_else(|| invalid_argument!("The graph of a dataset has no node {result}"))?;
        ctx.set_output(0, dataset)
    }
}
