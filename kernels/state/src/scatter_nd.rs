//! `ScatterNdUpdate`, `ScatterNdAdd`, `ScatterNdSub`, `ScatterNdMin`, `ScatterNdMax`, and their resource forms: changes of the slices of a
//! variable that index vectors name.

use crate::access::{Form, check_type, make_unique, uninitialized};
use crate::number::{Number, Ordered};
use crate::rows::{Parts, indices, position, slice_offsets, vector_text};
use crate::scatter::Change;
use crate::types::union;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    for (op, form, change) in [
        ("ScatterNdUpdate", Form::Reference, Change::Update),
        ("ScatterNdAdd", Form::Reference, Change::Add),
        ("ScatterNdSub", Form::Reference, Change::Sub),
        ("ScatterNdMin", Form::Reference, Change::Min),
        ("ScatterNdMax", Form::Reference, Change::Max),
        ("ResourceScatterNdUpdate", Form::Resource, Change::Update),
        ("ResourceScatterNdAdd", Form::Resource, Change::Add),
        ("ResourceScatterNdSub", Form::Resource, Change::Sub),
        ("ResourceScatterNdMin", Form::Resource, Change::Min),
        ("ResourceScatterNdMax", Form::Resource, Change::Max),
    ] {
        registry
            .op(op)
            .types("T", &types(change))
            .types("Tindices", DType::INDICES)
            .kernel(move |c| ScatterNd::new(c, form, change));
    }
}

/// What TensorFlow has kernels for.
fn types(change: Change) -> Vec<DType> {
    match change {
        Change::Update => union(&[DType::NUMBERS, &[DType::Bool, DType::String]]),
        Change::Min | Change::Max => DType::REALS.to_vec(),
        _ => union(&[DType::NUMBERS, &[DType::Bool]]),
    }
}

struct ScatterNd {
    form: Form,
    change: Change,
    dtype: DType,
    /// Whether index vectors that name no slice are passed over.
    ignore_bad: bool,
}

impl ScatterNd {
    fn new(c: &Construction<'_>, form: Form, change: Change) -> Result<ScatterNd> {
        let policy = if c.attrs().has("bad_indices_policy") { c.attrs().str("bad_indices_policy")? } else { "" };
        let ignore_bad = match policy {
            "" | "DEFAULT" | "ERROR" => false,
            "IGNORE" => true,
            other => return Err(invalid_argument!("Unknown bad indices handling attribute: {other}")),
        };
        Ok(ScatterNd { form, change, dtype: c.dtype("T")?, ignore_bad })
    }

    fn scatter(&self, ctx: &Context<'_>, params: &mut Tensor) -> Result<()> {
        let (index_tensor, updates) = (ctx.input(1)?, ctx.input(2)?);
        let depth = check_shapes(params.shape(), index_tensor.shape(), updates.shape())?;
        let count = index_tensor.num_elements() / depth.max(1);
        let vectors = indices(index_tensor)?;
        let offsets = slice_offsets(vectors, depth, count, params.shape());
        if let Some(bad) = offsets.iter().position(Option::is_none).filter(|_| !self.ignore_bad) {
            let dims = index_tensor.shape().dims();
            let outer = if dims.len() > 1 { &dims[..dims.len() - 1] } else { dims };
            return Err(invalid_argument!(
                "indices{} = {} does not index into shape {}",
                position(outer, bad),
                vector_text(vectors, depth, bad),
                params.shape()
            ));
        }
        let width: usize = params.shape().dims().iter().skip(depth).product();
        if offsets.is_empty() || width == 0 {
            return Ok(());
        }
        make_unique(params)?;
        if self.change == Change::Update {
            return params.move_from(&[updates], Parts { offsets: &offsets, width, scatter: true });
        }
        if self.dtype == DType::Bool {
            // A sum of truth values is true unless all are false; a difference is true where the two differ.
            let change = if self.change == Change::Add { |a, b| a | b } else { |a, b| a ^ b };
            change_slices(params.as_mut_slice::<bool>()?, updates.as_slice()?, &offsets, width, change);
            return Ok(());
        }
        let changed = match self.change {
            Change::Min | Change::Max => dispatch!(self.dtype, T in reals => {
                let least = self.change == Change::Min;
                let change = |old: T, update| if least { old.smaller(update) } else { old.larger(update) };
                change_slices(params.as_mut_slice()?, updates.as_slice()?, &offsets, width, change);
            }),
            _ => dispatch!(self.dtype, T in numbers => {
                let (params, updates) = (params.as_mut_slice::<T>()?, updates.as_slice::<T>()?);
                if self.change == Change::Add {
                    change_slices(params, updates, &offsets, width, T::plus);
                } else {
                    change_slices(params, updates, &offsets, width, T::minus);
                }
            }),
        };
        changed.ok_or_else(|| internal!("{:?} does not take elements of type {}", self.change, self.dtype))
    }
}

/// Checks the shapes and returns the length of an index vector.
fn check_shapes(params: &Shape, indices: &Shape, updates: &Shape) -> Result<usize> {
    if params.is_scalar() {
        return Err(invalid_argument!("Output must be at least 1-D, got shape: {params}"));
    }
    let empty = [params, indices, updates].map(|shape| shape.num_elements() == 0);
    if empty != [false; 3] && !(empty[1] && empty[2]) {
        return Err(invalid_argument!("Indices and updates specified for empty output.  indices shape: {indices}"));
    }
    if !indices.is_scalar() && !updates.is_scalar() && indices.dim(0) != updates.dim(0) {
        return Err(invalid_argument!(
            "Dimensions [0,1) of indices[shape={indices}] = {} must match dimensions [0,1) of updates[shape={updates}] = {}",
            indices.dim(0),
            updates.dim(0)
        ));
    }
    let (depth, batch) = match indices.dims() {
        [outer @ .., depth] if !outer.is_empty() => (*depth, outer.len()),
        _ => (1, 1),
    };
    if indices.is_scalar() || updates.rank() < batch || updates.dims()[..batch] != indices.dims()[..batch] {
        return Err(invalid_argument!(
            "Dimensions [0,{batch}) of indices[shape={indices}] must match dimensions [0,{batch}) of updates[shape={updates}]"
        ));
    }
    if params.dims().get(depth..) != Some(&updates.dims()[batch..]) {
        return Err(invalid_argument!(
            "Dimensions [{depth},{}) of input[shape={params}] must match dimensions [{depth},{}) of updates[shape={updates}]",
            params.rank(),
            updates.rank()
        ));
    }
    Ok(depth)
}

fn change_slices<T: Element>(
    params: &mut [T],
    updates: &[T],
    offsets: &[Option<usize>],
    width: usize,
    change: impl Fn(T, T) -> T,
) {
    for (offset, updates) in offsets.iter().zip(updates.chunks_exact(width)) {
        if let Some(offset) = *offset {
            let slice = &mut params[offset..offset + width];
            slice.iter_mut().zip(updates).for_each(|(old, &update)| *old = change(*old, update));
        }
    }
}

impl Kernel for ScatterNd {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let variable = self.form.variable(ctx, 0)?;
        check_type(&variable, self.dtype)?;
        {
            let mut held = variable.lock();
            let params = held.as_mut().ok_or_else(|| uninitialized(&variable))?;
            self.scatter(ctx, params)?;
        }
        self.form.pass_on(ctx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[i64]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn shapes_are_checked_with_tensorflows_words() {
        assert_eq!(check_shapes(&shape(&[2]), &shape(&[2]), &shape(&[2])).unwrap(), 1);
        assert_eq!(check_shapes(&shape(&[1, 2]), &shape(&[2, 1, 2]), &shape(&[2, 1])).unwrap(), 2);
        assert_eq!(check_shapes(&shape(&[1, 2]), &shape(&[0, 1]), &shape(&[0, 2])).unwrap(), 1);
        for (params, indices, updates, text) in [
            (
                &[2][..],
                &[2, 1][..],
                &[3][..],
                "Dimensions [0,1) of indices[shape=[2,1]] = 2 must match dimensions [0,1) of updates[shape=[3]] = 3",
            ),
            (
                &[2],
                &[2, 2],
                &[2],
                "Dimensions [2,1) of input[shape=[2]] must match dimensions [2,1) of updates[shape=[2]]",
            ),
            (&[2], &[], &[], "Dimensions [0,1) of indices[shape=[]] must match dimensions [0,1) of updates[shape=[]]"),
            (&[0, 2], &[1, 1], &[1, 2], "Indices and updates specified for empty output.  indices shape: [1,1]"),
            (&[2], &[2, 0], &[2, 2], "Indices and updates specified for empty output.  indices shape: [2,0]"),
            (&[], &[1, 1], &[1], "Output must be at least 1-D, got shape: []"),
        ] {
            let error = check_shapes(&shape(params), &shape(indices), &shape(updates)).unwrap_err();
            assert_eq!(error.message(), text);
        }
    }
}
