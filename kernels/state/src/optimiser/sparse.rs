//! `SparseApply...` and `ResourceSparseApply...`: gradients for some rows of a variable. A row that is named twice is moved twice, in
//! the order of the indices.

use super::rule::{Field, Rule, Step, same_shape, scalars, slices, variables};
use super::sweep::sweep;
use crate::access::{Form, Locked};
use crate::rows::indices;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};
use std::array::from_fn;
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
        .types("Tindices", DType::INDICES)
        .kernel(move |c| Ok(Sparse::<R, T, V, S> { form, rule: R::new(c)?, number: PhantomData }));
}

struct Sparse<R, T, const V: usize, const S: usize> {
    form: Form,
    rule: R,
    number: PhantomData<T>,
}

impl<R: Step<T, V, S>, T: Field, const V: usize, const S: usize> Sparse<R, T, V, S> {
    fn apply(&self, ctx: &Context<'_>) -> Result<()> {
        let variables = variables::<V>(ctx, self.form, T::DTYPE)?;
        let mut locked = Locked::new(&variables)?;
        let names = <R as Rule<V, S>>::VARIABLES;
        let var = locked.tensor(0)?.shape();
        for (i, name) in names.iter().enumerate().skip(1) {
            same_shape([names[0], name], [var, locked.tensor(i)?.shape()])?;
        }
        if var.is_scalar() {
            return Err(invalid_argument!("var must be at least 1 dimensional"));
        }
        let scalars = scalars(&self.rule, ctx, true)?;
        let (gradient, indices) = (ctx.input(R::GRADIENT_INPUT)?, ctx.input(R::GRADIENT_INPUT + 1)?);
        check_shapes(var, gradient.shape(), indices.shape())?;
        let rows = rows(indices, var.dim(0))?;
        let width = var.stride(0);
        let gradient = gradient.as_slice::<T>()?;
        if width == 0 || rows.is_empty() {
            return Ok(());
        }
        let mut state: [&mut [T]; V] = slices(locked.tensors_mut()?)?;
        for (&row, gradient) in rows.iter().zip(gradient.chunks_exact(width)) {
            let mut rest = state.each_mut().into_iter();
            let here: [&mut [T]; V] =
                from_fn(|_| rest.next().map_or(&mut [][..], |s| &mut s[row * width..(row + 1) * width]));
            sweep(&self.rule, here, gradient, &scalars);
        }
        Ok(())
    }
}

impl<R: Step<T, V, S>, T: Field, const V: usize, const S: usize> Kernel for Sparse<R, T, V, S> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        self.apply(ctx)?;
        self.form.pass_on(ctx)
    }
}

fn check_shapes(var: &Shape, gradient: &Shape, indices: &Shape) -> Result<()> {
    if !indices.is_vector() {
        return Err(invalid_argument!("indices must be one-dimensional"));
    }
    if gradient.rank() != var.rank() {
        return Err(invalid_argument!("var and grad must have the same rank, got shapes {var} and {gradient}"));
    }
    if let Some(d) = (1..var.rank()).find(|&d| var.dim(d) != gradient.dim(d)) {
        return Err(invalid_argument!("var and grad must match in dimension {d}"));
    }
    if gradient.dim(0) != indices.dim(0) {
        return Err(invalid_argument!("grad must be the same size as indices in the first dimension."));
    }
    Ok(())
}

/// The rows that the indices name, all of them below `limit`.
fn rows(tensor: &Tensor, limit: usize) -> Result<Vec<usize>> {
    let indices = indices(tensor)?;
    let row = |i: usize| match usize::try_from(indices.get(i)) {
        Ok(row) if row < limit => Ok(row),
        _ => Err(invalid_argument!("Index {} at offset {i} in indices is out of range", indices.get(i))),
    };
    (0..indices.len()).map(row).collect()
}
