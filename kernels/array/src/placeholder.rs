//! Placeholders, which run only when the client did not feed them.

use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Placeholder").kernel(Placeholder::new);
    registry.op("PlaceholderV2").kernel(Placeholder::new);
}

/// Fails: a feed would have taken its place.
struct Placeholder {
    name: String,
    dtype: DType,
    shape: PartialShape,
}

impl Placeholder {
    fn new(construction: &Construction<'_>) -> Result<Placeholder> {
        Ok(Placeholder {
            name: construction.name().to_owned(),
            dtype: construction.dtype("dtype")?,
            shape: construction.attrs().shape("shape")?,
        })
    }
}

impl Kernel for Placeholder {
    fn compute(&self, _ctx: &mut Context<'_>) -> Result<()> {
        let (name, dtype) = (&self.name, self.dtype);
        // TensorFlow leaves out the shape of a scalar too.
        Err(match self.shape.rank() {
            None | Some(0) => {
                invalid_argument!("You must feed a value for placeholder tensor '{name}' with dtype {dtype}")
            }
            Some(_) => invalid_argument!(
                "You must feed a value for placeholder tensor '{name}' with dtype {dtype} and shape {}",
                self.shape
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, registry};
    use graphmill_runtime::testing::OpRun;
    use graphmill_wire::tensorflow::attr_value::Value;

    #[test]
    fn a_missing_feed_is_named() {
        let op = |shape: PartialShape| {
            OpRun::new("Placeholder").attr_type("dtype", DType::Int32).attr("shape", Value::Shape(shape.to_proto()))
        };
        let without = "You must feed a value for placeholder tensor 'op' with dtype int32";
        assert_error(op(PartialShape::unknown()).run(&registry(), vec![]), without);
        assert_error(op(PartialShape::new(&[]).unwrap()).run(&registry(), vec![]), without);
        let with = format!("{without} and shape [2,?]");
        assert_error(op(PartialShape::new(&[2, -1]).unwrap()).run(&registry(), vec![]), &with);
    }
}
