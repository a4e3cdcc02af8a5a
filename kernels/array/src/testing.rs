//! What the tests of this crate share.

use graphmill_runtime::testing::OpRun;
use graphmill_runtime::{Context, Device, IntraOpPool, NodeInfo, Registry, Step};
use graphmill_tensor::{DType, Element, Shape, Status, Tensor};
use std::sync::Arc;

/// A registry with the kernels of this crate.
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    registry
}

/// Runs `body` with the context of an op without inputs and outputs.
pub(crate) fn with_context(body: impl FnOnce(&Context<'_>)) {
    let device = Arc::new(Device::cpu("/job:localhost/replica:0/task:0", "localhost", 0, 1, IntraOpPool::new(2)));
    let info = NodeInfo {
        name: "op".into(),
        op: "NoOp".into(),
        input_types: Default::default(),
        output_types: Default::default(),
    };
    let step = Arc::new(Step::new(1));
    body(&Context::new(&info, &step, &device, &mut [], &mut []));
}

/// A tensor.
pub(crate) fn tensor<T: Element>(dims: &[i64], values: &[T]) -> Tensor {
    Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
}

/// A tensor of the numbers 0, 1, 2, ...
pub(crate) fn counting(dims: &[i64]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let values: Vec<i32> = (0..shape.num_elements() as i32).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

/// The only output of an op on inputs whose type attribute is `T`.
pub(crate) fn run(op: OpRun, inputs: &[&Tensor]) -> Result<Tensor, Status> {
    let mut outputs = op.run(&registry(), inputs.iter().map(|&t| t.clone()).collect())?;
    assert_eq!(outputs.len(), 1);
    Ok(outputs.remove(0))
}

/// An op with the attribute `T` = int32.
pub(crate) fn int_op(op: &str) -> OpRun {
    OpRun::new(op).attr_type("T", DType::Int32)
}

/// Sizes and elements of an int32 tensor.
#[track_caller]
pub(crate) fn assert_ints(tensor: &Tensor, dims: &[usize], values: &[i32]) {
    assert_eq!(tensor.shape().dims(), dims);
    assert_eq!(tensor.as_slice::<i32>().unwrap(), values);
}

/// The text of an error.
#[track_caller]
pub(crate) fn assert_error<T: std::fmt::Debug>(result: Result<T, Status>, text: &str) {
    assert_eq!(result.unwrap_err().message(), text);
}
