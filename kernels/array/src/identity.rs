//! Ops that pass a value on. None of them copies.

use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    for op in ["Identity", "IdentityN", "StopGradient", "PreventGradient", "PlaceholderWithDefault"] {
        registry.op(op).kernel(|_| Ok(Forward));
    }
    registry.op("Snapshot").types("T", DType::NUMBERS_AND_BOOL).kernel(|_| Ok(Forward));
    registry.op("GuaranteeConst").kernel(|construction| match construction.dtype("T")? {
        DType::Resource => Err(invalid_argument!("Input tensor cannot be a resource variable handle.")),
        _ => Ok(Forward),
    });
    registry.op("EnsureShape").kernel(EnsureShape::new);
    registry.op("DeepCopy").kernel(|_| Ok(DeepCopy));
}

/// `y = x`, for each input. `PlaceholderWithDefault` runs when nothing is fed.
struct Forward;

impl Kernel for Forward {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        for i in 0..ctx.num_inputs() {
            let tensor = ctx.take_input(i)?;
            ctx.set_output(i, tensor)?;
        }
        Ok(())
    }
}

/// `y = x` in memory of its own.
struct DeepCopy;

impl Kernel for DeepCopy {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let copy = ctx.input(0)?.deep_copy()?;
        ctx.set_output(0, copy)
    }
}

/// `y = x` if the shape is as declared.
struct EnsureShape {
    expected: PartialShape,
    input: String,
}

impl EnsureShape {
    fn new(construction: &Construction<'_>) -> Result<EnsureShape> {
        Ok(EnsureShape { expected: construction.attrs().shape("shape")?, input: construction.input_name(0) })
    }

    fn check(&self, tensor: &Tensor) -> Result<()> {
        if self.expected.is_compatible_with(tensor.shape()) {
            return Ok(());
        }
        Err(invalid_argument!(
            "Shape of tensor {} {} is not compatible with expected shape {}.",
            self.input,
            tensor.shape(),
            self.expected
        ))
    }
}

impl Kernel for EnsureShape {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        self.check(ctx.input(0)?)?;
        let tensor = ctx.take_input(0)?;
        ctx.set_output(0, tensor)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{assert_error, counting, int_op, registry, run};
    use graphmill_graph::PartialShape;
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::{DType, Shape, Tensor};
    use graphmill_wire::tensorflow::attr_value::Value;

    #[test]
    fn values_are_passed_on_in_place() {
        let x = counting(&[2, 3]);
        let at = x.as_bytes().unwrap().as_ptr();
        for op in ["Identity", "Snapshot", "StopGradient", "PreventGradient", "GuaranteeConst"] {
            assert_eq!(run(int_op(op), &[&x]).unwrap().as_bytes().unwrap().as_ptr(), at, "{op}");
        }
        assert_ne!(run(int_op("DeepCopy"), &[&x]).unwrap().as_bytes().unwrap().as_ptr(), at);
        let types = [DType::Int32, DType::Int32];
        let outputs =
            OpRun::new("IdentityN").attr_types("T", &types).run(&registry(), vec![x.clone(), x.clone()]).unwrap();
        assert_eq!(outputs.len(), 2);
        assert_eq!(outputs[1].as_bytes().unwrap().as_ptr(), at);
    }

    #[test]
    fn handles_are_no_constants() {
        let handle = Tensor::alloc(DType::Resource, Shape::vector(0)).unwrap();
        let op = OpRun::new("GuaranteeConst").attr_type("T", DType::Resource);
        assert_error(run(op, &[&handle]), "Input tensor cannot be a resource variable handle.");
    }

    #[test]
    fn shapes_are_ensured() {
        let op = |dims: &[i64]| {
            int_op("EnsureShape").attr("shape", Value::Shape(PartialShape::new(dims).unwrap().to_proto()))
        };
        assert!(run(op(&[2, -1]), &[&counting(&[2, 3])]).is_ok());
        assert_error(
            run(op(&[3, -1]), &[&counting(&[2, 3])]),
            // A node outside of a graph has no input with a name.
            "Shape of tensor  [2,3] is not compatible with expected shape [3,?].",
        );
    }
}
