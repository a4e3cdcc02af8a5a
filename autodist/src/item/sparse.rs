//! The pieces of sparse gradients.

use super::index::Source;
use super::update_ops::is_control_flow;
use super::updates::Search;
use super::variables::Variable;
use graphmill_tensor::Tensor;
use graphmill_wire::tensorflow::attr_value::Value;
use std::collections::{HashSet, VecDeque};

/// How many nodes to look at for the shape of a sparse gradient; it is near the values.
const SHAPE_SEARCH: usize = 256;

/// Optimisers sum rows of the same number before they use them: `Unique` of the indices, `UnsortedSegmentSum` of the values. The gradient is
/// what went in.
pub(super) fn before_deduplication(search: &Search<'_>, indices: Source, values: Source) -> (Source, Source) {
    let inputs = |op: &str, source: Source| {
        let is_op = search.graph.node[source.node].op.starts_with(op);
        is_op.then(|| (search.index.data_input(source.node, 0), search.index.data_input(source.node, 1)))
    };
    if indices.slot == Some(0)
        && let Some((Some(all_indices), _)) = inputs("Unique", indices)
        && let Some((Some(all_values), Some(segments))) = inputs("UnsortedSegmentSum", values)
        && segments == (Source { node: indices.node, slot: Some(1) })
    {
        return (all_indices, all_values);
    }
    (indices, values)
}

/// The tensor that holds the variable's shape for the gradient with these values: the nearest one that they come from.
/// Values that come from the branches of a condition have theirs from there too.
pub(super) fn dense_shape(search: &Search<'_>, variable: &Variable, values: Source) -> Option<Source> {
    let is_merge = |node: usize| search.graph.node[node].op == "Merge";
    if !is_merge(values.node) {
        return nearest_shape(search, variable, values);
    }
    search.index.data_inputs(values.node).enumerate().find_map(|(branch, source)| {
        let shape = nearest_shape(search, variable, source)?;
        let mut merges = search.index.data_consumers(shape.node).filter(|&node| is_merge(node));
        let merge = merges.find(|&node| search.index.data_input(node, branch) == Some(shape))?;
        Some(Source { node: merge, slot: Some(0) })
    })
}

/// The nearest tensor with the variable's shape that the values come from, on this side of branches and loops.
fn nearest_shape(search: &Search<'_>, variable: &Variable, values: Source) -> Option<Source> {
    let mut seen = HashSet::new();
    let mut queue = VecDeque::from([values]);
    while let Some(source) = queue.pop_front() {
        if !seen.insert(source.node) {
            continue;
        }
        if seen.len() > SHAPE_SEARCH {
            return None;
        }
        if is_shape_of(search, variable, source.node) {
            return Some(source);
        }
        if !is_control_flow(&search.graph.node[source.node].op) {
            queue.extend(search.index.data_inputs(source.node));
        }
    }
    None
}

fn is_shape_of(search: &Search<'_>, variable: &Variable, node: usize) -> bool {
    let reads_variable = |node: usize| {
        search.index.data_input(node, 0).is_some_and(|source| {
            let reads = matches!(search.graph.node[source.node].op.as_str(), "ReadVariableOp" | "Identity");
            source.node == variable.node
                || reads && search.index.data_input(source.node, 0).is_some_and(|handle| handle.node == variable.node)
        })
    };
    let node_def = &search.graph.node[node];
    match node_def.op.as_str() {
        "VariableShape" | "Shape" => reads_variable(node),
        // A shape in 64 bits that is read in 32.
        "Cast" => {
            search.index.data_input(node, 0).is_some_and(|source| is_shape_of_leaf(search, variable, source.node))
        }
        "Const" => constant_is(search, node, variable),
        _ => false,
    }
}

fn is_shape_of_leaf(search: &Search<'_>, variable: &Variable, node: usize) -> bool {
    search.graph.node[node].op != "Cast" && is_shape_of(search, variable, node)
}

/// Whether a constant lists the sizes of the variable.
fn constant_is(search: &Search<'_>, node: usize, variable: &Variable) -> bool {
    let value = search.graph.node[node].attr.get("value").and_then(|attr| attr.value.as_ref());
    let (Some(Value::Tensor(proto)), Some(dims)) = (value, variable.shape.dims()) else { return false };
    let Ok(tensor) = Tensor::from_proto(proto) else { return false };
    let sizes: Vec<i64> = match (tensor.as_slice::<i32>(), tensor.as_slice::<i64>()) {
        (Ok(sizes), _) => sizes.iter().map(|&size| i64::from(size)).collect(),
        (_, Ok(sizes)) => sizes.to_vec(),
        _ => return false,
    };
    tensor.shape().rank() == 1 && sizes == dims
}
