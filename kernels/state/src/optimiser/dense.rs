//! `Apply...` and `ResourceApply...`: a gradient for every element of a variable.

use super::rule::{Field, Rule, Step, same_shape, scalars, slices, variables};
use super::sweep::parallel_sweep;
use crate::access::{Form, Locked};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::Result;
use std::marker::PhantomData;

/// Registers a rule for one type under an op's name.
pub(crate) fn register<R: Step<T, V, S>, T: Field, const V: usize, const S: usize>(
    registry: &mut Registry,
    op: &'static str,
    form: Form,
) {
    registry
        .op(op)
        .types("T", &[T::DTYPE])
        .kernel(move |c| Ok(Dense::<R, T, V, S> { form, rule: R::new(c)?, number: PhantomData }));
}

struct Dense<R, T, const V: usize, const S: usize> {
    form: Form,
    rule: R,
    number: PhantomData<T>,
}

impl<R: Step<T, V, S>, T: Field, const V: usize, const S: usize> Dense<R, T, V, S> {
    fn apply(&self, ctx: &Context<'_>) -> Result<()> {
        let variables = variables::<V>(ctx, self.form, T::DTYPE)?;
        let mut locked = Locked::new(&variables)?;
        let scalars = scalars(&self.rule, ctx, false)?;
        let names = <R as Rule<V, S>>::VARIABLES;
        let var = locked.tensor(0)?.shape();
        for (i, name) in names.iter().enumerate().skip(1) {
            same_shape([names[0], name], [var, locked.tensor(i)?.shape()])?;
        }
        let gradient = ctx.input(R::GRADIENT_INPUT)?;
        same_shape([names[0], R::GRADIENT], [var, gradient.shape()])?;
        let gradient = gradient.as_slice::<T>()?;
        let state = slices(locked.tensors_mut()?)?;
        parallel_sweep(ctx, &self.rule, state, gradient, &scalars);
        Ok(())
    }
}

impl<R: Step<T, V, S>, T: Field, const V: usize, const S: usize> Kernel for Dense<R, T, V, S> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        self.apply(ctx)?;
        self.form.pass_on(ctx)
    }
}
