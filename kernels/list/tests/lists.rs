//! What the comparison with TensorFlow does not see: that lists are changed in place, and that handles may come from the wire.

// The helpers run inside tests alone, where a panic is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use graphmill_graph::PartialShape;
use graphmill_runtime::testing::{OpRun, test_device};
use graphmill_runtime::{AnyKernel, Construction, Context, NodeInfo};
use graphmill_runtime::{Optional, Registry, Step, Stored, TensorList, Value};
use graphmill_tensor::{Code, DType, Result, Tensor};
use std::sync::Arc;

fn registry() -> Registry {
    let mut registry = Registry::new();
    graphmill_kernels_list::register(&mut registry);
    registry
}

fn op(name: &str) -> OpRun {
    OpRun::new(name).attr_type("element_dtype", DType::Float)
}

fn list(length: usize) -> TensorList {
    let tensors = (0..length).map(|i| Some(Tensor::scalar(i as f32).unwrap())).collect();
    TensorList::new(DType::Float, PartialShape::new(&[]).unwrap(), tensors)
}

/// The address of the elements of the list in a tensor.
fn elements(tensor: &Tensor) -> *const Option<Tensor> {
    tensor.variants().unwrap()[0].get::<TensorList>().unwrap().tensors.as_ptr()
}

fn length(tensor: &Tensor) -> usize {
    tensor.variants().unwrap()[0].get::<TensorList>().unwrap().tensors.len()
}

#[test]
fn a_list_that_nobody_else_holds_is_changed_in_place() {
    let item = || Tensor::scalar(9f32).unwrap();
    let index = Tensor::scalar(1i32).unwrap();
    let alone = list(4).into_tensor().unwrap();
    let before = elements(&alone);
    let inputs = vec![alone, index.clone(), item()];
    let changed = op("TensorListSetItem").run(&registry(), inputs).unwrap().remove(0);
    assert_eq!(elements(&changed), before);

    let shared = changed.clone();
    let copy = op("TensorListSetItem").run(&registry(), vec![changed, index, item()]).unwrap().remove(0);
    assert_ne!(elements(&copy), elements(&shared));

    let popped = op("TensorListPopBack").run(&registry(), vec![copy, Tensor::vector::<i32>(&[]).unwrap()]).unwrap();
    assert_eq!(length(&popped[0]), 3);
    assert_eq!(popped[1].scalar_value::<f32>().unwrap(), 3.0);
    assert_eq!(length(&shared), 4);
}

#[test]
fn handles_come_from_the_wire() {
    let sent = list(3).into_tensor().unwrap().to_proto();
    let received = Tensor::from_proto(&sent).unwrap();
    assert!(received.variants().unwrap()[0].object.is_none());
    let pushed = op("TensorListPushBack").run(&registry(), vec![received, Tensor::scalar(3f32).unwrap()]).unwrap();
    let all = Tensor::vector::<i32>(&[]).unwrap();
    let stacked = op("TensorListStack").run(&registry(), vec![pushed[0].clone(), all]).unwrap();
    assert_eq!(stacked[0].as_slice::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0]);

    let optional = Optional(Some(vec![Tensor::scalar(5i32).unwrap()])).into_tensor().unwrap();
    let received = Tensor::from_proto(&optional.to_proto()).unwrap();
    let has = OpRun::new("OptionalHasValue").run(&registry(), vec![received]).unwrap();
    assert!(has[0].scalar_value::<bool>().unwrap());
}

#[test]
fn absurd_sizes_are_refused_before_memory_is_taken() {
    let unknown = || Tensor::scalar(-1i32).unwrap();
    let huge = Tensor::scalar(i32::MAX).unwrap();
    let reserve = op("TensorListReserve").attr_type("shape_type", DType::Int32);
    let error = reserve.run(&registry(), vec![unknown(), huge.clone()]).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    let handle = list(1).into_tensor().unwrap();
    let error = OpRun::new("TensorListResize").run(&registry(), vec![handle, huge.clone()]).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    let error = OpRun::new("TensorArrayV3").attr_type("dtype", DType::Float).run(&registry(), vec![huge]).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
}

/// Runs ops in one step, as tensor arrays belong to it.
struct Run {
    registry: Registry,
    step: Arc<Step>,
    device: Arc<graphmill_runtime::Device>,
}

impl Run {
    fn new() -> Run {
        Run { registry: registry(), step: Arc::new(Step::new(1)), device: test_device() }
    }

    fn op(&self, name: &str, inputs: Vec<Value>) -> Result<Vec<Value>> {
        use graphmill_wire::tensorflow::attr_value::Value as Attr;
        let schema = graphmill_graph::op_def(name).unwrap();
        let mut attrs = graphmill_graph::Attrs::new();
        for attr in ["T", "dtype"].into_iter().filter(|attr| schema.attr(attr).is_some()) {
            attrs.set(attr, Attr::Type(DType::Float.number()));
        }
        let node = graphmill_graph::Node::new("node", schema, attrs)?;
        let info = NodeInfo {
            name: node.name.clone(),
            op: node.op.name.clone(),
            input_types: node.input_types.as_slice().into(),
            output_types: node.output_types.as_slice().into(),
        };
        let AnyKernel::Sync(kernel) = self.registry.build(&Construction::new(&node, &self.device))? else {
            panic!("no kernel of {name} waits");
        };
        let (mut inputs, mut outputs) = (inputs, vec![Value::None; node.output_types.len()]);
        kernel.compute(&mut Context::new(&info, &self.step, &self.device, &mut inputs, &mut outputs))?;
        Ok(outputs)
    }
}

#[test]
fn all_generations_of_handles_name_arrays() {
    for suffix in ["", "V2", "V3"] {
        let run = Run::new();
        let tensor = |value: Tensor| Value::Tensor(value);
        let int = |value: i32| tensor(Tensor::scalar(value).unwrap());
        let flow = || tensor(Tensor::scalar(0f32).unwrap());
        let handle = run.op(&format!("TensorArray{suffix}"), vec![int(2)]).unwrap().remove(0);
        let write = |index: i32| {
            let value = tensor(Tensor::scalar(index as f32).unwrap());
            run.op(&format!("TensorArrayWrite{suffix}"), vec![handle.clone(), int(index), value, flow()])
        };
        write(0).unwrap();
        write(1).unwrap();
        assert!(write(2).unwrap_err().message().contains("not resizeable and size is: 2"), "{suffix}");
        assert!(write(0).unwrap_err().message().ends_with("because it has already been written to."), "{suffix}");
        let read = || run.op(&format!("TensorArrayRead{suffix}"), vec![handle.clone(), int(1), flow()]);
        assert_eq!(read().unwrap()[0].snapshot().unwrap().scalar_value::<f32>().unwrap(), 1.0);
        assert!(read().unwrap_err().message().contains("twice because it was cleared"), "{suffix}");
        run.op(&format!("TensorArrayClose{suffix}"), vec![handle.clone()]).unwrap();
        assert!(read().unwrap_err().message().ends_with("has already been closed."), "{suffix}");
        let other = Run::new();
        let size = other.op(&format!("TensorArraySize{suffix}"), vec![handle.clone(), flow()]);
        assert_eq!(size.unwrap_err().code(), Code::NotFound, "{suffix}");
    }
}
