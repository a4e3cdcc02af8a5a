//! Values that stand in for others: `FakeParam`, and `DeviceIndex`.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, Shape, Tensor, internal};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("FakeParam").kernel(FakeParam::new);
    registry.op("DeviceIndex").kernel(DeviceIndex::new);
}

/// A tensor that nobody looks at, of the shape that is declared as far as it is known.
struct FakeParam(Tensor);

impl FakeParam {
    fn new(c: &Construction<'_>) -> Result<FakeParam> {
        let shape = c.attrs().shape("shape")?;
        let dims: Vec<i64> = shape.dims().unwrap_or_default().iter().map(|&dim| dim.max(0)).collect();
        Ok(FakeParam(Tensor::zeros(c.dtype("dtype")?, Shape::new(&dims)?)?))
    }
}

impl Kernel for FakeParam {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_output(0, self.0.clone())
    }
}

/// The position of the device's type in `device_names`; their number if it is not there.
struct DeviceIndex(i32);

impl DeviceIndex {
    fn new(c: &Construction<'_>) -> Result<DeviceIndex> {
        let names = c.attrs().string_list("device_names")?;
        let own = c.device().device_type().as_bytes();
        let index = names.iter().position(|name| name == own).unwrap_or(names.len());
        Ok(DeviceIndex(i32::try_from(index).map_err(|_| internal!("there are too many device names"))?))
    }
}

impl Kernel for DeviceIndex {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_scalar(0, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_graph::PartialShape;
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::DType;
    use graphmill_wire::tensorflow::attr_value::{ListValue, Value};

    #[test]
    fn unknown_sizes_are_zero() {
        let mut registry = Registry::new();
        register(&mut registry);
        let fake = |shape: PartialShape| {
            let op =
                OpRun::new("FakeParam").attr_type("dtype", DType::Int32).attr("shape", Value::Shape(shape.to_proto()));
            op.run(&registry, vec![]).unwrap()[0].shape().to_string()
        };
        assert_eq!(fake(PartialShape::new(&[-1, 3]).unwrap()), "[0,3]");
        assert_eq!(fake(PartialShape::unknown()), "[]");
    }

    #[test]
    fn the_index_of_the_device() {
        let mut registry = Registry::new();
        register(&mut registry);
        for (names, expected) in [(&["GPU", "CPU"][..], 1), (&["TPU"], 1), (&[], 0)] {
            let s = names.iter().map(|name| (*name).into()).collect();
            let list = Value::List(Box::new(ListValue { s, ..Default::default() }));
            let outputs = OpRun::new("DeviceIndex").attr("device_names", list).run(&registry, vec![]).unwrap();
            assert_eq!(outputs[0].scalar_value::<i32>().unwrap(), expected);
        }
    }
}
