//! What is run: a graph, or an exported model with a signature.

use super::names::suggestion;
use anyhow::{Result, anyhow, bail};
use graphmill_client::{
    Client, DType, GraphDef, Result as ClientResult, SavedModel, Session, Signature, Tensor, load_graph,
};
use graphmill_graph::{EndpointName, Graph, PartialShape};
use std::path::Path;

/// Graphs of older producers say the shape of a scalar where they mean any.
const SHAPES_ARE_MEANT: i32 = 24;

/// A graph, and how its tensors are called.
pub struct Model {
    source: Source,
    /// The graph with its types; absent if it has ops that only the server knows.
    graph: Result<Graph, graphmill_client::Status>,
}

enum Source {
    Graph(GraphDef),
    Exported { model: Box<SavedModel>, signature: Signature },
}

impl Model {
    /// A graph in a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn graph(file: &Path) -> ClientResult<Model> {
        let def = load_graph(file)?;
        Ok(Model { graph: Graph::from_def(&def), source: Source::Graph(def) })
    }

    /// An exported model in a directory.
    ///
    /// # Errors
    /// If it cannot be read, or has no such graph or signature.
    pub fn exported(directory: &Path, tags: &[&str], signature: &str) -> ClientResult<Model> {
        let model = SavedModel::load(directory, tags)?;
        let signature = model.signature(signature)?;
        Ok(Model {
            graph: Graph::from_def(&model.graph()),
            source: Source::Exported { model: Box::new(model), signature },
        })
    }

    /// Checks the graph, if it is to run `here`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, here: bool) -> Result<()> {
        match &self.graph {
            Err(error) if here => bail!("the graph cannot run in this process: {error}"),
            _ => Ok(()),
        }
    }

    /// Opens a session.
    ///
    /// # Errors
    /// What the server finds wrong with the graph.
    pub async fn session(&self, client: &Client) -> ClientResult<Session> {
        match &self.source {
            Source::Graph(def) => client.session(def.clone(), Default::default()).await,
            Source::Exported { model, .. } => model.session(client, Default::default()).await,
        }
    }

    /// The names of the signature's outputs.
    pub fn outputs(&self) -> Vec<String> {
        match &self.source {
            Source::Graph(_) => Vec::new(),
            Source::Exported { signature, .. } => signature.outputs.keys().cloned().collect(),
        }
    }

    /// The names of the signature's inputs.
    pub fn inputs(&self) -> Vec<&str> {
        match &self.source {
            Source::Graph(_) => Vec::new(),
            Source::Exported { signature, .. } => signature.inputs.keys().map(String::as_str).collect(),
        }
    }

    /// The tensor to fetch for a name: an output of the signature, or a tensor of the graph.
    ///
    /// # Errors
    /// If there is none.
    pub fn fetch(&self, name: &str) -> Result<String> {
        if let Source::Exported { signature, .. } = &self.source {
            if let Some(tensor) = signature.outputs.get(name) {
                return Ok(tensor.clone());
            }
            let outputs = signature.outputs.keys().map(String::as_str);
            return self.tensor(name).map_err(|_| anyhow!("no output is called {name}{}", suggestion(name, outputs)));
        }
        self.tensor(name)
    }

    /// The tensor to feed for a name: an input of the signature, or a tensor of the graph.
    ///
    /// # Errors
    /// If there is none.
    pub fn feed(&self, name: &str) -> Result<String> {
        if let Source::Exported { signature, .. } = &self.source {
            if let Some(tensor) = signature.inputs.get(name) {
                return Ok(tensor.clone());
            }
            let inputs = signature.inputs.keys().map(String::as_str);
            return self.tensor(name).map_err(|_| anyhow!("no input is called {name}{}", suggestion(name, inputs)));
        }
        self.tensor(name)
    }

    /// A node to run.
    ///
    /// # Errors
    /// If there is none.
    pub fn node(&self, name: &str) -> Result<String> {
        match &self.graph {
            Ok(graph) if graph.find(name).is_none() => bail!("no node is called {name}{}", self.near(name)),
            _ => Ok(name.to_owned()),
        }
    }

    fn tensor(&self, name: &str) -> Result<String> {
        let Ok(graph) = &self.graph else { return Ok(name.to_owned()) };
        let EndpointName { node, slot } = EndpointName::parse(name);
        let Some(found) = graph.find(node) else { bail!("no node is called {node}{}", self.near(node)) };
        let outputs = graph.node(found).output_types.len();
        match slot {
            _ if outputs == 0 => bail!("{node} has no outputs; a node that is only to run is given with --init"),
            Some(slot) if slot as usize >= outputs => {
                bail!("{node} has {outputs} outputs, the first of which is {node}:0")
            }
            _ => Ok(name.to_owned()),
        }
    }

    fn near(&self, name: &str) -> String {
        match &self.graph {
            Ok(graph) => suggestion(name, graph.nodes().map(|(_, node)| &*node.name)),
            Err(_) => String::new(),
        }
    }

    /// The element type of a tensor, where it is known.
    pub fn dtype(&self, tensor: &str) -> Option<DType> {
        let EndpointName { node, slot } = EndpointName::parse(tensor);
        let graph = self.graph.as_ref().ok()?;
        let types = &graph.node(graph.find(node)?).output_types;
        types.get(slot? as usize).map(|slot| slot.dtype)
    }

    /// Checks that a value can be fed.
    ///
    /// # Errors
    /// Says what is wanted, and what there is.
    pub fn check_feed(&self, tensor: &str, value: &Tensor) -> Result<()> {
        let Some(dtype) = self.dtype(tensor) else { return Ok(()) };
        let shape = self.shape(tensor).unwrap_or_else(PartialShape::unknown);
        if dtype == value.dtype() && shape.is_compatible_with(value.shape()) {
            return Ok(());
        }
        let hint = match dtype == value.dtype() {
            true => String::new(),
            false => format!("; convert it with array.astype(\"{}\")", numpy_name(dtype)),
        };
        let any = if shape.rank().is_none() { "any shape".to_owned() } else { format!("shape {shape}") };
        bail!("{dtype} of {any} is wanted, but there is {} of shape {}{hint}", value.dtype(), value.shape())
    }

    /// The shape that a placeholder declares.
    fn shape(&self, tensor: &str) -> Option<PartialShape> {
        let graph = self.graph.as_ref().ok()?;
        let node = graph.node(graph.find(EndpointName::parse(tensor).node)?);
        if !matches!(node.op_name(), "Placeholder" | "PlaceholderV2" | "PlaceholderWithDefault") {
            return None;
        }
        let shape = node.attrs.shape("shape").ok()?;
        (shape.rank() != Some(0) || graph.versions().producer >= SHAPES_ARE_MEANT).then_some(shape)
    }
}

/// What NumPy calls an element type.
fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Half => "float16",
        DType::Float => "float32",
        DType::Double => "float64",
        DType::String => "S",
        _ => dtype.name(),
    }
}
