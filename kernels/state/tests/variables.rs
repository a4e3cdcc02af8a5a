//! Making, finding and removing variables.
// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used)]

use graphmill_runtime::testing::{OpRun, test_device};
use graphmill_runtime::{Device, Registry, Value};
use graphmill_tensor::{Bytes, Code, DType, Shape, Tensor};
use std::sync::Arc;

fn registry() -> Registry {
    let mut registry = Registry::new();
    graphmill_kernels_state::register(&mut registry);
    registry
}

/// The one output of a run.
fn run(op: OpRun, device: &Arc<Device>, inputs: &[Value]) -> graphmill_tensor::Result<Value> {
    op.run_on(&registry(), device, inputs.to_vec()).map(|outputs| outputs.into_iter().next().unwrap_or_default())
}

fn handle(device: &Arc<Device>, name: &str, dtype: DType) -> Value {
    let op = OpRun::new("VarHandleOp").attr_type("dtype", dtype).attr_str("shared_name", name);
    run(op.attr("shape", unknown_shape()), device, &[]).unwrap()
}

fn unknown_shape() -> graphmill_wire::tensorflow::attr_value::Value {
    let shape = graphmill_wire::tensorflow::TensorShapeProto { unknown_rank: true, ..Default::default() };
    graphmill_wire::tensorflow::attr_value::Value::Shape(shape)
}

fn typed(op: &str, dtype: DType) -> OpRun {
    OpRun::new(op).attr_type("dtype", dtype)
}

/// A value of each type that variables take.
fn sample(dtype: DType) -> Tensor {
    if dtype == DType::String {
        return Tensor::from_strings(Shape::vector(2), vec![Bytes::from("a"), Bytes::from("b\0")]).unwrap();
    }
    Tensor::zeros(dtype, Shape::new(&[2, 3]).unwrap()).unwrap()
}

const TYPES: [DType; 17] = [
    DType::Half,
    DType::BFloat16,
    DType::Float,
    DType::Double,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Bool,
    DType::Complex64,
    DType::Complex128,
    DType::String,
    DType::Variant,
];

#[test]
fn variables_of_every_type_are_made_read_and_removed() {
    let device = test_device();
    for dtype in TYPES {
        let handle = handle(&device, "v", dtype);
        let inputs = std::slice::from_ref(&handle);
        let initialized = || run(OpRun::new("VarIsInitializedOp"), &device, inputs).unwrap().snapshot().unwrap();
        assert!(!initialized().scalar_value::<bool>().unwrap());
        let value = sample(dtype);
        run(typed("AssignVariableOp", dtype), &device, &[handle.clone(), value.clone().into()]).unwrap();
        assert!(initialized().scalar_value::<bool>().unwrap());
        let read = run(typed("ReadVariableOp", dtype), &device, inputs).unwrap().snapshot().unwrap();
        assert_eq!((read.dtype(), read.shape()), (dtype, value.shape()));
        let shape = run(OpRun::new("VariableShape"), &device, inputs).unwrap().snapshot().unwrap();
        assert_eq!(shape.to_i64_vec().unwrap(), value.shape().dims_i64().collect::<Vec<_>>());
        run(OpRun::new("DestroyResourceOp").attr_bool("ignore_lookup_error", false), &device, inputs).unwrap();
        assert!(!initialized().scalar_value::<bool>().unwrap());
    }
}

#[test]
fn what_is_missing_is_named() {
    let device = test_device();
    let gone = handle(&device, "v", DType::Float);
    let one = Value::Tensor(Tensor::scalar(1f32).unwrap());
    let inputs = std::slice::from_ref(&gone);
    let add = || run(typed("AssignAddVariableOp", DType::Float), &device, &[gone.clone(), one.clone()]).unwrap_err();
    let read = || run(typed("ReadVariableOp", DType::Float), &device, inputs).unwrap_err();
    let prefix = "Could not find variable v. This could mean that the variable has been deleted. In TF1, it can also mean the \
                  variable is uninitialized. Debug info: container=localhost, status error message=";
    let missing = "Container localhost does not exist. (Could not find resource: localhost/v)";
    assert_eq!((add().code(), add().message()), (Code::NotFound, missing));
    assert_eq!((read().code(), read().message().to_owned()), (Code::FailedPrecondition, format!("{prefix}{missing}")));

    let other = handle(&device, "w", DType::Float);
    run(typed("AssignVariableOp", DType::Float), &device, &[other, one.clone()]).unwrap();
    let missing = "Resource localhost/v/N10tensorflow3VarE does not exist.";
    assert_eq!(add().message(), missing);
    assert_eq!(read().message(), format!("{prefix}{missing}"));
    let destroy =
        |ignore| run(OpRun::new("DestroyResourceOp").attr_bool("ignore_lookup_error", ignore), &device, inputs);
    assert_eq!(destroy(false).unwrap_err().message(), missing);
    assert!(destroy(true).is_ok());
}

#[test]
fn a_clash_of_types_names_both() {
    let device = test_device();
    let float = handle(&device, "v", DType::Float);
    run(typed("AssignVariableOp", DType::Float), &device, &[float.clone(), Tensor::scalar(1f32).unwrap().into()])
        .unwrap();
    let int = handle(&device, "v", DType::Int32);
    let value = Value::Tensor(Tensor::scalar(1i32).unwrap());
    let error = run(typed("AssignVariableOp", DType::Int32), &device, &[int.clone(), value.clone()]).unwrap_err();
    let text = "Trying to assign variable with wrong dtype. Expected float got int32";
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, text));
    let error = run(typed("ReadVariableOp", DType::Int32), &device, std::slice::from_ref(&int)).unwrap_err();
    assert_eq!(error.message(), "Trying to read variable with wrong dtype. Expected int32 got float");
    let error = run(typed("AssignAddVariableOp", DType::Int32), &device, &[int, value]).unwrap_err();
    assert_eq!(error.message(), "DType of variable handle and value does not match.");

    let reference = |dtype| {
        let shape = graphmill_wire::tensorflow::attr_value::Value::Shape(Default::default());
        typed("VariableV2", dtype).attr("shape", shape).attr_str("shared_name", "v")
    };
    assert!(run(reference(DType::Double), &device, &[]).is_ok());
    let error = run(reference(DType::Int64), &device, &[]).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("double") && error.message().contains("int64"), "{error}");
}

#[test]
fn reference_variables_are_shared_by_name_and_container() {
    let device = test_device();
    let shape = graphmill_wire::tensorflow::attr_value::Value::Shape(Default::default());
    let variable = |container: &str, name: &str| {
        let op = typed("VariableV2", DType::Float).attr("shape", shape.clone());
        run(op.attr_str("container", container).attr_str("shared_name", name), &device, &[])
    };
    let first = variable("", "v").unwrap();
    let one = Value::Tensor(Tensor::scalar(1f32).unwrap());
    let initialized = |reference: &Value| {
        let op = typed("IsVariableInitialized", DType::Float);
        let value = run(op, &device, std::slice::from_ref(reference)).unwrap().snapshot().unwrap();
        value.scalar_value::<bool>().unwrap()
    };
    assert!(!initialized(&first));
    run(OpRun::new("Assign").attr_type("T", DType::Float), &device, &[first.clone(), one]).unwrap();
    assert!(initialized(&first));
    assert!(initialized(&variable("localhost", "v").unwrap()));
    assert!(!initialized(&variable("other", "v").unwrap()));
    assert!(!initialized(&variable("", "").unwrap()));
    let error = variable("a_b", "v").unwrap_err();
    assert_eq!(error.message(), "container contains invalid characters: a_b");
    assert_eq!(variable("", "_v").unwrap_err().message(), "shared_name cannot start with '_':_v");
    device.resources().cleanup("localhost");
    assert!(!initialized(&variable("", "v").unwrap()));
    assert!(initialized(&first));
}

#[test]
fn a_variable_of_no_elements_needs_no_initialiser() {
    let device = test_device();
    let dim = graphmill_wire::tensorflow::tensor_shape_proto::Dim { size: 0, name: String::new() };
    let shape = graphmill_wire::tensorflow::TensorShapeProto { dim: vec![dim], unknown_rank: false };
    let op =
        typed("VariableV2", DType::Float).attr("shape", graphmill_wire::tensorflow::attr_value::Value::Shape(shape));
    assert_eq!(run(op, &device, &[]).unwrap().snapshot().unwrap().shape().dims(), [0]);
    let op = typed("VariableV2", DType::Float).attr("shape", unknown_shape());
    let declared = run(op.attr_str("shared_name", "u"), &device, &[]).unwrap();
    let value = Tensor::vector(&[1f32]).unwrap();
    let error = run(OpRun::new("Assign").attr_type("T", DType::Float), &device, &[declared, value.into()]).unwrap_err();
    assert!(error.message().contains("lhs shape= [] rhs shape= [1]"), "{error}");
}
