//! Which values TensorFlow's kernels keep in the host's memory. Between tasks of CPUs this decides nothing but the names of the ops that
//! send and receive.

use crate::{ArgDef, ArgType, Node};
use graphmill_tensor::DType;

/// Whether an output is in the host's memory.
pub(super) fn is_host_output(node: &Node, slot: usize) -> bool {
    node.output_types.get(slot).is_some_and(|output| is_host_type(node, output.dtype))
        || argument(node, &node.op.outputs, slot).is_some_and(|arg| host_arguments(&node.op.name).contains(&arg))
}

/// Whether an input is wanted in the host's memory.
pub(super) fn is_host_input(node: &Node, slot: usize) -> bool {
    node.input_types.get(slot).is_some_and(|input| is_host_type(node, input.dtype))
        || argument(node, &node.op.inputs, slot).is_some_and(|arg| host_arguments(&node.op.name).contains(&arg))
}

fn is_host_type(node: &Node, dtype: DType) -> bool {
    // Calls, and `NextIteration`, have no kernel for CPUs of their own that would say otherwise.
    let keeps_int32 = || {
        matches!(
            &*node.op.name,
            "NextIteration"
                | "SymbolicGradient"
                | "PartitionedCall"
                | "StatefulPartitionedCall"
                | "While"
                | "StatelessWhile"
        )
    };
    matches!(dtype, DType::String | DType::Resource) || dtype == DType::Int32 && keeps_int32()
}

/// The name of the argument that a slot belongs to.
fn argument<'a>(node: &Node, args: &'a [ArgDef], slot: usize) -> Option<&'a str> {
    let mut end = 0usize;
    args.iter().find_map(|arg| {
        let slots = match (&arg.ty, &arg.number_attr) {
            (ArgType::TypeListAttr(attr), _) => node.attrs.dtype_list(attr).map_or(0, |list| list.len()),
            (_, Some(attr)) => node.attrs.int(attr).ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
            _ => 1,
        };
        end = end.saturating_add(slots);
        (slot < end).then_some(&*arg.name)
    })
}

/// The arguments that TensorFlow's kernels for CPUs declare to be in the host's memory.
fn host_arguments(op: &str) -> &'static [&'static str] {
    match op {
        "All" | "Any" => &["reduction_indices"],
        "ArgMax" | "ArgMin" => &["dimension"],
        "AvgPoolGrad" => &["orig_input_shape"],
        "BatchToSpace" => &["crops"],
        "BatchToSpaceND" => &["block_shape", "crops"],
        "BroadcastArgs" => &["s0", "s1", "r0"],
        "BroadcastGradientArgs" => &["s0", "s1", "r0", "r1"],
        "Concat" | "QuantizedConcat" => &["concat_dim"],
        "ConcatV2" | "ReverseV2" => &["axis"],
        "ConjugateTranspose" | "Transpose" => &["perm"],
        "DynamicStitch" | "ParallelDynamicStitch" => &["indices"],
        "ExpandDims" => &["dim"],
        "InTopK" => &["predictions", "targets", "precision"],
        "InTopKV2" => &["predictions", "targets", "k", "precision"],
        "NonDeterministicInts"
        | "QuantizedReshape"
        | "RandomStandardNormal"
        | "RandomUniform"
        | "Reshape"
        | "TruncatedNormal" => &["shape"],
        "OneHot" => &["depth"],
        "Pad" | "SpaceToBatch" => &["paddings"],
        "PadV2" => &["paddings", "constant_values"],
        "QuantizedResizeBilinear" => &["size"],
        "RandomUniformInt" => &["shape", "minval", "maxval"],
        "Rank" | "Shape" | "ShapeN" | "Size" => &["output"],
        "RefSelect" => &["index"],
        "RefSwitch" | "Switch" => &["pred"],
        "RemoteCall" => &["target"],
        "ResourceStridedSliceAssign" | "StridedSlice" | "StridedSliceAssign" | "TensorStridedSliceUpdate" => {
            &["begin", "end", "strides"]
        }
        "Reverse" => &["dims"],
        "Roll" => &["shift", "axis"],
        "Slice" => &["begin", "size"],
        "SpaceToBatchND" => &["block_shape", "paddings"],
        "SparseTensorDenseMatMul" => &["a_shape"],
        "Split" => &["split_dim"],
        "SplitV" => &["size_splits", "split_dim"],
        "StatefulRandomBinomial" => &["algorithm", "shape", "counts", "probs"],
        "StatefulStandardNormal" => &["shape"],
        "StatelessParameterizedTruncatedNormal" => &["shape", "seed", "means", "stddevs", "minvals", "maxvals"],
        "StatelessRandomBinomial" => &["shape", "seed", "counts", "probs"],
        "StatelessRandomGammaV2" => &["shape", "seed", "alpha"],
        "StatelessRandomPoisson" => &["shape", "seed", "lam"],
        "StridedSliceGrad" => &["shape", "begin", "end", "strides"],
        "TensorArrayConcat" | "TensorArrayConcatV2" | "TensorArrayConcatV3" => &["lengths", "handle"],
        "Tile" | "TileGrad" => &["multiples"],
        "_SwitchN" => &["output_index"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attrs, op_def};
    use graphmill_wire::tensorflow::attr_value::Value;

    fn node(op: &str, types: &[(&str, DType)], n: Option<i64>) -> Node {
        let mut attrs = Attrs::new();
        for (name, dtype) in types {
            attrs.set(name, Value::Type(dtype.number()));
        }
        if let Some(n) = n {
            attrs.set("N", Value::I(n));
        }
        Node::new("n", op_def(op).unwrap(), attrs).unwrap()
    }

    #[test]
    fn memory_of_inputs_and_outputs() {
        let switch = node("Switch", &[("T", DType::Float)], None);
        assert_eq!([0, 1].map(|slot| is_host_input(&switch, slot)), [false, true]);
        let concat = node("ConcatV2", &[("T", DType::Float), ("Tidx", DType::Int32)], Some(3));
        assert_eq!([0, 2, 3, 4].map(|slot| is_host_input(&concat, slot)), [false, false, true, false]);
        assert!(is_host_output(&node("Shape", &[("T", DType::Float), ("out_type", DType::Int64)], None), 0));
        for (dtype, host) in [(DType::Int32, true), (DType::Bool, false), (DType::String, true), (DType::Float, false)]
        {
            assert_eq!(is_host_input(&node("NextIteration", &[("T", dtype)], None), 0), host, "{dtype}");
        }
        assert!(!is_host_input(&node("Identity", &[("T", DType::Int32)], None), 0));
        assert!(is_host_output(&node("Identity", &[("T", DType::Resource)], None), 0));
    }
}
