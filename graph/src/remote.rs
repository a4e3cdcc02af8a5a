//! A function's body as a graph that another task runs.

use crate::{Graph, ImportOptions, instantiate};
use graphmill_tensor::Result;
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NameAttrList, NodeDef};
use std::sync::Arc;

/// What stands for the incarnation of a device in the names of arguments and results. These cross by request and answer, not from
/// device to device, so that no other life of the device can be meant.
pub const REMOTE_INCARNATION: u64 = 1;

/// A function's body, all on one device of another task.
#[derive(Debug)]
pub struct RemoteBody {
    /// The body, with a `_Recv` from the caller for each argument and a `_Send` to it for each result, and the functions that it needs.
    pub graph: Graph,
    /// The names under which the arguments are received, in their order.
    pub args: Vec<String>,
    /// The names under which the results are sent.
    pub results: Vec<String>,
}

/// Makes the body of a function of `graph`'s library for a device of another task, as TensorFlow's workers send it to each other.
///
/// # Errors
/// As [`instantiate`].
pub fn remote_body(graph: &Graph, function: &NameAttrList, device: &str) -> Result<RemoteBody> {
    let body = instantiate(graph, function)?;
    let (mut args, mut results) = (vec![String::new(); body.args.len()], vec![String::new(); body.results.len()]);
    let mut nodes = Vec::with_capacity(body.graph.len());
    for (_, node) in body.graph.nodes() {
        let mut def = NodeDef { device: device.to_owned(), ..body.graph.node_to_def(node) };
        let ports = match def.op.as_str() {
            "_Arg" => Some(("_Recv", "tensor_type", &mut args)),
            "_Retval" => Some(("_Send", "T", &mut results)),
            _ => None,
        };
        if let Some((op, type_attr, names)) = ports {
            let at = usize::try_from(node.attrs.int("index")?).ok();
            if let Some(name) = at.and_then(|at| names.get_mut(at)) {
                def.name.clone_into(name);
            }
            op.clone_into(&mut def.op);
            let text = |text: &str| Value::S(text.as_bytes().to_vec().into());
            let attrs = [
                (type_attr, Value::Type(node.attrs.dtype("T")?.number())),
                ("tensor_name", text(&def.name)),
                ("send_device", text(device)),
                ("recv_device", text(device)),
                ("send_device_incarnation", Value::I(REMOTE_INCARNATION.cast_signed())),
                ("client_terminated", Value::B(true)),
            ];
            def.attr = attrs.map(|(name, value)| (name.to_owned(), AttrValue { value: Some(value) })).into();
        }
        nodes.push(def);
    }
    let mut made = Graph::like(graph);
    let def = GraphDef { node: nodes, versions: Some(graph.versions().clone()), ..Default::default() };
    made.extend_with(def, ImportOptions { allow_internal_names: true, expect_device: true })?;
    made.library = Arc::new(made.library.reachable(made.nodes().map(|(_, node)| &**node)));
    Ok(RemoteBody { graph: made, args, results })
}
