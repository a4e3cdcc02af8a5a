//! `CountUpTo` and `ResourceCountUpTo`: the value of a counter, which is then raised, up to a limit.

use crate::access::{Form, check_type, make_unique, uninitialized};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Tensor, internal, invalid_argument, out_of_range};

pub(crate) fn register(registry: &mut Registry) {
    for (op, form) in [("CountUpTo", Form::Reference), ("ResourceCountUpTo", Form::Resource)] {
        registry.op(op).types("T", &[DType::Int32, DType::Int64]).kernel(move |c| CountUpTo::new(c, form));
    }
}

struct CountUpTo {
    form: Form,
    dtype: DType,
    limit: i64,
}

impl CountUpTo {
    fn new(c: &Construction<'_>, form: Form) -> Result<CountUpTo> {
        let dtype = c.dtype("T")?;
        let limit =
            if dtype == DType::Int32 { i64::from(c.attrs().int32("limit")?) } else { c.attrs().int("limit")? };
        Ok(CountUpTo { form, dtype, limit })
    }

    fn count<T: Element + Into<i64>>(&self, counter: &mut Tensor, next: impl Fn(T) -> T) -> Result<Tensor> {
        if !counter.shape().is_scalar() {
            return Err(invalid_argument!("input is not a scalar: {}", counter.shape()));
        }
        let value = counter.scalar_value::<T>()?;
        if value.into() >= self.limit {
            return Err(out_of_range!("Reached limit of {}", self.limit));
        }
        let output = Tensor::scalar(value)?;
        make_unique(counter)?;
        counter.as_mut_slice::<T>()?.fill(next(value));
        Ok(output)
    }
}

impl Kernel for CountUpTo {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let variable = self.form.variable(ctx, 0)?;
        check_type(&variable, self.dtype)?;
        let output = {
            let mut held = variable.lock();
            let counter = held.as_mut().ok_or_else(|| uninitialized(&variable))?;
            // The value is below a limit of its own type, so the next one exists.
            match self.dtype {
                DType::Int32 => self.count(counter, |value: i32| value.saturating_add(1))?,
                DType::Int64 => self.count(counter, |value: i64| value.saturating_add(1))?,
                other => return Err(internal!("a counter cannot be of type {other}")),
            }
        };
        ctx.set_output(0, output)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_runtime::testing::OpRun;
    use graphmill_runtime::{Registry, Value, Variable};
    use graphmill_tensor::{Code, DType, Tensor};
    use std::sync::Arc;

    #[test]
    fn counts_up_to_the_limit_and_stays_there() {
        let mut registry = Registry::new();
        crate::register(&mut registry);
        let counter = Arc::new(Variable::new("c", DType::Int64));
        counter.write(Tensor::scalar(1i64).unwrap());
        let op = OpRun::new("CountUpTo").attr_type("T", DType::Int64).attr_int("limit", 3);
        let next = || op.run_values(&registry, vec![Value::Ref(counter.clone())]);
        for expected in [1, 2] {
            assert_eq!(next().unwrap()[0].snapshot().unwrap().scalar_value::<i64>().unwrap(), expected);
        }
        let error = next().unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::OutOfRange, "Reached limit of 3"));
        assert_eq!(counter.read().unwrap().scalar_value::<i64>().unwrap(), 3);
    }
}
