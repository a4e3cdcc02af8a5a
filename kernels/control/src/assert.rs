//! `Assert`.

use crate::summarize::summarize;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Assert").kernel(Assert::new);
}

/// Fails the step with the values in `data` unless `condition` holds.
struct Assert {
    summarize: i64,
}

impl Assert {
    fn new(c: &Construction<'_>) -> Result<Assert> {
        Ok(Assert { summarize: c.attrs().int("summarize")? })
    }
}

impl Kernel for Assert {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let condition = ctx.input(0)?;
        if !condition.shape().is_scalar() {
            return Err(invalid_argument!("In[0] should be a scalar: {}", condition.shape()));
        }
        if condition.scalar_value::<bool>()? {
            return Ok(());
        }
        let mut parts = Vec::new();
        for i in 1..ctx.num_inputs() {
            parts.push(format!("[{}]", summarize(ctx.input(i)?, self.summarize)?));
        }
        Err(invalid_argument!("assertion failed: {}", parts.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use graphmill_runtime::{Registry, testing::OpRun};
    use graphmill_tensor::{Code, DType, Tensor};

    #[test]
    fn a_failed_assertion_shows_its_data() {
        let mut registry = Registry::new();
        crate::register(&mut registry);
        let op = OpRun::new("Assert").attr_types("T", &[DType::Int32, DType::Float]);
        let inputs = |ok: bool| {
            let data = Tensor::vector(&[1i32, 2, 3, 4]).unwrap();
            vec![Tensor::scalar(ok).unwrap(), data, Tensor::scalar(0.5f32).unwrap()]
        };
        assert!(op.run(&registry, inputs(true)).unwrap().is_empty());
        let error = op.run(&registry, inputs(false)).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert_eq!(error.message(), "assertion failed: [1 2 3...] [0.5]");
        let bad =
            vec![Tensor::vector(&[true]).unwrap(), Tensor::scalar(1i32).unwrap(), Tensor::scalar(0.5f32).unwrap()];
        assert_eq!(op.run(&registry, bad).unwrap_err().message(), "In[0] should be a scalar: [1]");
    }
}
