//! Chains of functions of one element.

use super::of_type;
use graphmill_runtime::{Construction, Context, Kernel, Part, Registry, Value};
use graphmill_tensor::{DType, Result, invalid_argument};

/// The functions that TensorFlow composes, in any floating-point type.
const FUNCTIONS: &[&str] = &[
    "Abs",
    "Ceil",
    "Cos",
    "Elu",
    "Exp",
    "Expm1",
    "Floor",
    "Inv",
    "Log",
    "Log1p",
    "Neg",
    "Reciprocal",
    "Relu",
    "Relu6",
    "Round",
    "Rsqrt",
    "Selu",
    "Sigmoid",
    "Sin",
    "Sqrt",
    "Square",
    "Tanh",
];
/// Those that it does not compose in half precision.
const WIDE_FUNCTIONS: &[&str] = &["Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Rint", "Sinh", "Tan"];

/// `_UnaryOpsComposition(x)`: the functions in `op_names`, one after the other.
struct Chain(Vec<Part>);

impl Chain {
    fn new(c: &Construction<'_>) -> Result<Chain> {
        let dtype = c.dtype("T")?;
        let names = c.attrs().string_list("op_names")?;
        if names.is_empty() {
            return Err(invalid_argument!("Unary op composition must have at least one op"));
        }
        let part = |name: &[u8]| {
            let known = |list: &[&'static str]| list.iter().copied().find(|known| known.as_bytes() == name);
            let found = known(FUNCTIONS).or_else(|| known(WIDE_FUNCTIONS).filter(|_| dtype != DType::Half));
            let op = found.ok_or_else(|| {
                let name = String::from_utf8_lossy(name);
                invalid_argument!("Do not have a compute function registered for op: {name}")
            })?;
            c.part(op, of_type(dtype))
        };
        Ok(Chain(names.iter().map(|name| part(name)).collect::<Result<_>>()?))
    }
}

impl Kernel for Chain {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let mut value = ctx.take_value(0)?;
        for part in &self.0 {
            value = Value::Tensor(part.run_one(ctx, &mut [value])?);
        }
        ctx.set_value(0, value)
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.op("_UnaryOpsComposition").types("T", &[DType::Double, DType::Float, DType::Half]).kernel(Chain::new);
}
