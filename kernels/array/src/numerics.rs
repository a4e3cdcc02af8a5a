//! Checks for values that are not finite.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Tensor, dispatch, internal, invalid_argument};
use num_traits::Float as Number;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

const NAN: u8 = 1;
const POSITIVE: u8 = 2;
const NEGATIVE: u8 = 4;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("CheckNumerics").types("T", DType::FLOATS).kernel(|c| CheckNumerics::new(c, false));
    registry.op("CheckNumericsV2").types("T", DType::FLOATS).kernel(|c| CheckNumerics::new(c, true));
}

/// `y = x`, or `INVALID_ARGUMENT` if an element is infinite or NaN. The second version tells the infinities apart.
struct CheckNumerics {
    message: String,
    signed: bool,
}

impl CheckNumerics {
    fn new(construction: &Construction<'_>, signed: bool) -> Result<CheckNumerics> {
        let message = String::from_utf8_lossy(construction.attrs().string("message")?).into_owned();
        Ok(CheckNumerics { message, signed })
    }

    fn text(&self, found: u8) -> String {
        let names: &[(u8, &str)] = if self.signed {
            &[(NEGATIVE, "-Inf"), (POSITIVE, "+Inf"), (NAN, "NaN")]
        } else {
            &[(NEGATIVE | POSITIVE, "Inf"), (NAN, "NaN")]
        };
        let present: Vec<&str> = names.iter().filter(|(bits, _)| found & bits != 0).map(|&(_, name)| name).collect();
        match present.as_slice() {
            [a, b, c] => format!("{a}, {b}, and {c}"),
            some => some.join(" and "),
        }
    }
}

fn find<T: Element + Number>(ctx: &Context<'_>, tensor: &Tensor) -> Result<u8> {
    let values = tensor.as_slice::<T>()?;
    let found = AtomicU8::new(0);
    ctx.parallel_for(values.len(), 0.3, |range| {
        let part = &values[range];
        // Counted without a branch, so that the usual case is one fast pass.
        if part.iter().fold(true, |all, v| all & v.is_finite()) {
            return;
        }
        let kind = |v: &T| match (v.is_nan(), v.is_infinite(), v.is_sign_negative()) {
            (true, ..) => NAN,
            (_, true, true) => NEGATIVE,
            (_, true, false) => POSITIVE,
            _ => 0,
        };
        found.fetch_or(part.iter().fold(0, |bits, v| bits | kind(v)), Relaxed);
    });
    Ok(found.into_inner())
}

impl Kernel for CheckNumerics {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?;
        let found = dispatch!(tensor.dtype(), T in floats => find::<T>(ctx, tensor)?)
            .ok_or_else(|| internal!("{} elements cannot be checked", tensor.dtype()))?;
        if found != 0 {
            return Err(invalid_argument!("{} : Tensor had {} values", self.message, self.text(found)));
        }
        let tensor = ctx.take_input(0)?;
        ctx.set_output(0, tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, run};
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::f16;

    #[test]
    fn what_is_not_finite_is_told() {
        let op = |name: &str, dtype| OpRun::new(name).attr_type("T", dtype).attr_str("message", "m");
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        for (values, first, second) in [
            (&[1.0, nan][..], "m : Tensor had NaN values", "m : Tensor had NaN values"),
            (&[inf], "m : Tensor had Inf values", "m : Tensor had +Inf values"),
            (&[-inf, nan], "m : Tensor had Inf and NaN values", "m : Tensor had -Inf and NaN values"),
            (&[-inf, nan, inf], "m : Tensor had Inf and NaN values", "m : Tensor had -Inf, +Inf, and NaN values"),
        ] {
            let x = Tensor::vector(values).unwrap();
            assert_error(run(op("CheckNumerics", DType::Float), &[&x]), first);
            assert_error(run(op("CheckNumericsV2", DType::Float), &[&x]), second);
        }
        let x = Tensor::vector(&[f16::MAX; 100]).unwrap();
        assert_eq!(run(op("CheckNumerics", DType::Half), &[&x]).unwrap().num_elements(), 100);
    }
}
