//! Graph items from what clients export.

use super::index::GraphIndex;
use super::variables::Variable;
use super::{GraphItem, updates};
use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::collection_def::{BytesList, Kind, NodeList};
use graphmill_wire::tensorflow::{CollectionDef, GraphDef, MetaGraphDef, SaverDef, VariableDef};
use prost::Message;
use std::collections::HashSet;

impl GraphItem {
    /// Takes a graph with its collections apart. Gradients are found from the graph alone: they are what the update of each
    /// trained variable takes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for graphs whose edges or collections do not fit, and for variables that two optimisers update.
    pub fn from_meta_graph(meta: MetaGraphDef) -> Result<GraphItem> {
        let trainable: Vec<VariableDef> = messages(&meta, "trainable_variables")?;
        let mut variables: Vec<VariableDef> = messages(&meta, "variables")?;
        for def in &trainable {
            if !variables.iter().any(|other| other.variable_name == def.variable_name) {
                variables.push(def.clone());
            }
        }
        let trainable: HashSet<&str> = trainable.iter().map(|def| def.variable_name.as_str()).collect();
        // Graphs of old releases say which are trained in the collection alone.
        for def in &mut variables {
            def.trainable |= trainable.contains(def.variable_name.as_str());
        }
        let mut savers: Vec<SaverDef> = messages(&meta, "savers")?;
        if let Some(saver) = &meta.saver_def
            && !savers.contains(saver)
        {
            savers.insert(0, saver.clone());
        }
        let table_initializers = names(&meta, "table_initializer");
        let graph = meta.graph_def.unwrap_or_default();
        GraphItem::from_parts(graph, variables, table_initializers, savers)
    }

    /// The item as clients import it.
    pub fn to_meta_graph(&self) -> MetaGraphDef {
        let variables = self.variables().iter().map(|variable| variable.def.clone()).collect();
        meta_graph(self.graph().clone(), variables, self.table_initializers().to_vec(), self.savers().to_vec())
    }

    /// An item of its parts, with the updates that the graph shows.
    pub(crate) fn from_parts(
        graph: GraphDef,
        variables: Vec<VariableDef>,
        table_initializers: Vec<String>,
        savers: Vec<SaverDef>,
    ) -> Result<GraphItem> {
        let index = GraphIndex::new(&graph)?;
        let variables =
            variables.into_iter().map(|def| Variable::new(def, &graph, &index)).collect::<Result<Vec<_>>>()?;
        let updates = updates::find(&graph, &index, &variables)?;
        Ok(GraphItem { graph, index, variables, updates, table_initializers, savers })
    }
}

/// A graph with its collections.
pub(crate) fn meta_graph(
    graph: GraphDef,
    variables: Vec<VariableDef>,
    table_initializers: Vec<String>,
    savers: Vec<SaverDef>,
) -> MetaGraphDef {
    let definitions = |trainable: bool| {
        let listed = variables.iter().filter(move |def| def.trainable || !trainable);
        collection(listed.map(Message::encode_to_vec))
    };
    let tables = NodeList { value: table_initializers };
    MetaGraphDef {
        graph_def: Some(graph),
        saver_def: savers.first().cloned(),
        collection_def: [
            ("variables", definitions(false)),
            ("trainable_variables", definitions(true)),
            ("savers", collection(savers.iter().map(Message::encode_to_vec))),
            ("table_initializer", CollectionDef { kind: Some(Kind::NodeList(tables)) }),
        ]
        .map(|(name, collection)| (name.to_owned(), collection))
        .into(),
        ..MetaGraphDef::default()
    }
}

fn collection(messages: impl Iterator<Item = Vec<u8>>) -> CollectionDef {
    let value = messages.map(Into::into).collect();
    CollectionDef { kind: Some(Kind::BytesList(BytesList { value })) }
}

/// The messages of a collection; none if it is not there.
fn messages<M: Message + Default>(meta: &MetaGraphDef, collection: &str) -> Result<Vec<M>> {
    match meta.collection_def.get(collection).and_then(|collection| collection.kind.as_ref()) {
        Some(Kind::BytesList(list)) => list
            .value
            .iter()
            .map(|bytes| {
                M::decode(bytes.clone())
                    .map_err(|error| invalid_argument!("The collection \"{collection}\" is damaged: {error}"))
            })
            .collect(),
        Some(_) => Err(invalid_argument!("The collection \"{collection}\" must hold messages; export the graph again")),
        None => Ok(Vec::new()),
    }
}

/// The names of a collection; none if it is not there.
fn names(meta: &MetaGraphDef, collection: &str) -> Vec<String> {
    match meta.collection_def.get(collection).and_then(|collection| collection.kind.as_ref()) {
        Some(Kind::NodeList(list)) => list.value.clone(),
        _ => Vec::new(),
    }
}
