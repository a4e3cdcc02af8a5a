//! Graph items as messages.

use super::index::GraphIndex;
use super::{Gradient, GraphItem};
use crate::proto;
use crate::proto::graph_item::Info;
use graphmill_tensor::{Result, data_loss, invalid_argument};
use graphmill_wire::tensorflow::{GraphDef, SaverDef, VariableDef};
use prost::Message;
use prost_types::Any;
use std::collections::BTreeMap;

impl GraphItem {
    /// The message of AutoDist. Two variables with one gradient tensor have one entry there, the later one's, as in AutoDist itself.
    pub fn to_proto(&self) -> proto::GraphItem {
        let pairs = self.updates.iter().map(|update| (update.gradient.key(), update.variable.clone()));
        proto::GraphItem {
            graph_def: Some(pack("GraphDef", &self.graph)),
            grad_target_pairs: pairs.collect::<BTreeMap<_, _>>(),
            info: Some(Info {
                variables: self.variables.iter().map(|variable| pack("VariableDef", &variable.def)).collect(),
                table_initializers: self.table_initializers.clone(),
                savers: self.savers.iter().map(|saver| pack("SaverDef", saver)).collect(),
            }),
        }
    }

    /// Reads the bytes of AutoDist's message. The gradients that it records stand above what the graph shows.
    ///
    /// # Errors
    /// `DATA_LOSS` for damaged bytes, `INVALID_ARGUMENT` for contents that do not fit together.
    pub fn decode(bytes: &[u8]) -> Result<GraphItem> {
        let message = proto::GraphItem::decode(bytes)
            .map_err(|error| data_loss!("The graph item is damaged or cut short ({error}); write it again"))?;
        GraphItem::from_proto(message)
    }

    /// As [`GraphItem::decode`].
    ///
    /// # Errors
    /// As [`GraphItem::decode`].
    pub fn from_proto(message: proto::GraphItem) -> Result<GraphItem> {
        let Some(graph) = &message.graph_def else {
            return Err(data_loss!("The graph item holds no graph, so it is cut short; write it again"));
        };
        let graph: GraphDef = unpack(graph, "GraphDef")?;
        let info = message.info.unwrap_or_default();
        let variables =
            info.variables.iter().map(|def| unpack::<VariableDef>(def, "VariableDef")).collect::<Result<_>>()?;
        let savers = info.savers.iter().map(|saver| unpack::<SaverDef>(saver, "SaverDef")).collect::<Result<_>>()?;
        let mut item = GraphItem::from_parts(graph, variables, info.table_initializers, savers)?;
        for (key, target) in &message.grad_target_pairs {
            let gradient = read_key(key, target, &item.index)?;
            if let Some(update) = item.updates.iter_mut().find(|update| update.variable == *target) {
                update.gradient = gradient;
            }
        }
        Ok(item)
    }
}

fn read_key(key: &str, target: &str, index: &GraphIndex) -> Result<Gradient> {
    let pieces: Vec<&str> = key.split(';').collect();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        let node = graphmill_graph::EndpointName::parse(piece).node;
        if index.find(node).is_none() {
            return Err(invalid_argument!("The gradient \"{piece}\" of variable \"{target}\" is not in the graph"));
        }
    }
    match pieces[..] {
        [name] if !name.is_empty() => Ok(Gradient::Dense(name.to_owned())),
        [indices, values, shape] if !indices.is_empty() && !values.is_empty() => Ok(Gradient::Sparse {
            indices: indices.to_owned(),
            values: values.to_owned(),
            dense_shape: Some(shape.to_owned()).filter(|shape| !shape.is_empty()),
        }),
        _ => Err(invalid_argument!(
            "\"{key}\" is no gradient of variable \"{target}\"; write one tensor, or indices;values;shape"
        )),
    }
}

fn pack(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/tensorflow.{name}"), value: message.encode_to_vec() }
}

fn unpack<M: Message + Default>(any: &Any, name: &str) -> Result<M> {
    let found = any.type_url.rsplit('/').next().unwrap_or_default();
    if found != format!("tensorflow.{name}") {
        return Err(invalid_argument!("The graph item holds a \"{found}\" where a tensorflow.{name} belongs"));
    }
    M::decode(&*any.value).map_err(|error| data_loss!("The {name} in the graph item is damaged: {error}"))
}
