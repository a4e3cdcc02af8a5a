//! Sparse tensors whose entries move: `SparseReshape`, `SparseReorder`, `SparseConcat`, `SparseSplit`, `SparseSlice`.

use crate::coo::{Coo, chain, index_matrix, pick, strides};
use crate::types::{EVERY, NUMBERS};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, Shape, Tensor, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SparseReshape").kernel(|_| Ok(SparseReshape));
    registry.op("SparseReorder").types("T", &EVERY).kernel(|_| Ok(SparseReorder));
    registry.op("SparseConcat").types("T", &EVERY).kernel(SparseConcat::new);
    registry.op("SparseSplit").types("T", &EVERY).kernel(SparseSplit::new);
    registry.op("SparseSlice").types("T", &EVERY).kernel(|_| Ok(SparseSlice));
    registry.op("SparseSliceGrad").types("T", &NUMBERS).kernel(|_| Ok(SparseSliceGrad));
}

struct SparseReshape;

impl Kernel for SparseReshape {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (indices, shape) = reshape(ctx.input(0)?, ctx.input(1)?, ctx.input(2)?)?;
        ctx.set_output(0, indices)?;
        ctx.set_output(1, shape)
    }
}

/// The indices under another shape, in which one size may be -1.
///
/// # Errors
/// `INVALID_ARGUMENT` if the shapes do not have the same number of elements.
pub(crate) fn reshape(indices: &Tensor, shape: &Tensor, target: &Tensor) -> Result<(Tensor, Tensor)> {
    if !indices.shape().is_matrix() {
        return Err(invalid_argument!("Input must be a matrix."));
    }
    if !shape.shape().is_vector() {
        return Err(invalid_argument!("Input shape must be a vector."));
    }
    if !target.shape().is_vector() {
        return Err(invalid_argument!("Target shape should be a vector but received shape {}", target.shape()));
    }
    let from = shape.to_i64_vec()?;
    let input_shape = Shape::new(&from)?;
    let dense_size = input_shape.num_elements() as i64;
    let mut to = target.to_i64_vec()?;
    let (mut product, mut unknown) = (1i64, None);
    for (d, &size) in to.iter().enumerate() {
        if size == -1 {
            if let Some(first) = unknown {
                return Err(invalid_argument!("only one output dimension may be -1, not both {first} and {d}"));
            }
            unknown = Some(d);
        } else if size < 0 {
            return Err(invalid_argument!("size {d} must be non-negative, not {size}"));
        } else {
            product = product.checked_mul(size).ok_or_else(|| invalid_argument!("the new shape is too large"))?;
        }
    }
    let known: Vec<i64> = to.iter().map(|&size| if size == -1 { 1 } else { size }).collect();
    if let Some(d) = unknown {
        if product <= 0 {
            return Err(invalid_argument!(
                "reshape cannot infer the missing input size for an empty tensor unless all specified input sizes are non-zero"
            ));
        }
        if dense_size % product != 0 {
            return Err(invalid_argument!(
                "Input to reshape is a SparseTensor with {dense_size} dense values, but the requested shape requires a multiple \
                 of {product}. input_shape={input_shape} output_shape={}",
                Shape::new(&known)?
            ));
        }
        to[d] = dense_size / product;
    }
    let output_shape = Shape::new(&to)?;
    if output_shape.num_elements() as i64 != dense_size {
        return Err(invalid_argument!(
            "Input to reshape is a tensor with {dense_size} dense values, but the requested shape has {}. \
             input_shape={input_shape} output_shape={output_shape}",
            output_shape.num_elements()
        ));
    }
    if input_shape == output_shape {
        return Ok((indices.clone(), shape.clone()));
    }
    let count = indices.shape().dim(0);
    if count > 0 && (dense_size <= 0 || product <= 0) {
        return Err(invalid_argument!(
            "Input tensor has {count} non zero elements but input shape ({input_shape}) or output shape ({output_shape}) is \
             empty"
        ));
    }
    if indices.shape().dim(1) != from.len() {
        return Err(invalid_argument!(
            "Input tensor rank must match input shape length: {} vs. {}",
            indices.shape().dim(1),
            from.len()
        ));
    }
    let (from_strides, to_strides) = (strides(&from), strides(&to));
    let mut out = Vec::with_capacity(count * to.len());
    let rows = indices.as_slice::<i64>()?;
    for i in 0..count {
        let row = rows.get(i * from.len()..(i + 1) * from.len()).unwrap_or_default();
        let mut id = row.iter().zip(&from_strides).fold(0i64, |id, (&i, &s)| id.wrapping_add(i.wrapping_mul(s)));
        for &stride in &to_strides {
            out.push(id.checked_div(stride).unwrap_or(0));
            id = id.checked_rem(stride).unwrap_or(0);
        }
    }
    Ok((index_matrix(&out, count, to.len())?, Tensor::vector(&to)?))
}

/// The entries in the order of their indices.
struct SparseReorder;

impl Kernel for SparseReorder {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let coo = Coo::validated(ctx.input(0)?, ctx.input(1)?, ctx.input(2)?)?;
        let columns: Vec<usize> = (0..coo.rank()).collect();
        let order = coo.order(&columns);
        let (indices, values) = (pick(ctx.input(0)?, &order)?, pick(coo.values, &order)?);
        ctx.set_output(0, indices)?;
        ctx.set_output(1, values)
    }
}

struct SparseConcat {
    axis: i64,
    n: usize,
}

impl SparseConcat {
    fn new(c: &Construction<'_>) -> Result<SparseConcat> {
        let n = c.input_range("indices")?.len();
        Ok(SparseConcat { axis: c.attrs().int("concat_dim")?, n })
    }
}

impl Kernel for SparseConcat {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let n = self.n;
        for i in 0..n {
            for (at, kind, what) in
                [(i, "matrix", "indices"), (n + i, "vector", "values"), (2 * n + i, "vector", "shapes")]
            {
                let shape = ctx.input(at)?.shape();
                let fits = if kind == "matrix" { shape.is_matrix() } else { shape.is_vector() };
                if !fits {
                    return Err(invalid_argument!(
                        "Input {what} should be a {kind} but received shape {shape} at position {i}"
                    ));
                }
            }
        }
        let shapes = (0..n).map(|i| ctx.input(2 * n + i)?.to_i64_vec()).collect::<Result<Vec<_>>>()?;
        for shape in &shapes {
            if shape.iter().try_fold(1i64, |product, &size| product.checked_mul(size).filter(|&p| p >= 0)).is_none() {
                return Err(internal!("Encountered overflow from large input shape."));
            }
        }
        let first = &shapes[0];
        let rank = first.len() as i64;
        let axis = if self.axis < 0 { self.axis + rank } else { self.axis };
        let axis = usize::try_from(axis).ok().filter(|&axis| axis < first.len()).ok_or_else(|| {
            invalid_argument!("Concat dimension must be in range [{}, {rank}), got {}", -rank, self.axis)
        })?;
        for (i, shape) in shapes.iter().enumerate().skip(1) {
            if shape.len() != first.len() {
                return Err(invalid_argument!(
                    "Ranks of all input tensors must match: expected {rank} but got {} at position {i}",
                    shape.len()
                ));
            }
            for (j, (have, want)) in shape.iter().zip(first).enumerate() {
                if j != axis && have != want {
                    return Err(invalid_argument!(
                        "Input shapes must match: expected {want} for dimension {j} but got {have} at position {i}"
                    ));
                }
            }
        }
        let inputs = shapes
            .iter()
            .enumerate()
            .map(|(i, shape)| Coo::with_shape(ctx.input(i)?, ctx.input(n + i)?, shape.clone()))
            .collect::<Result<Vec<_>>>()?;
        let (mut indices, mut offset) = (Vec::new(), 0i64);
        for input in &inputs {
            for i in 0..input.len() {
                indices.extend_from_slice(input.row(i));
                let end = indices.len() - first.len() + axis;
                indices[end] = indices[end].wrapping_add(offset);
            }
            offset = offset.saturating_add(input.shape[axis]);
        }
        let mut shape = first.clone();
        shape[axis] = offset;
        let values: Vec<&Tensor> = inputs.iter().map(|input| input.values).collect();
        let values = chain(ctx.input(n)?.dtype(), &values)?;
        let indices = index_matrix(&indices, values.num_elements(), first.len())?;
        let whole = Coo::with_shape(&indices, &values, shape)?;
        let columns: Vec<usize> = (0..first.len()).collect();
        let order = whole.order(&columns);
        let outputs = (pick(&indices, &order)?, pick(&values, &order)?, Tensor::vector(&whole.shape)?);
        ctx.set_output(0, outputs.0)?;
        ctx.set_output(1, outputs.1)?;
        ctx.set_output(2, outputs.2)
    }
}

struct SparseSplit {
    parts: i64,
}

impl SparseSplit {
    fn new(c: &Construction<'_>) -> Result<SparseSplit> {
        Ok(SparseSplit { parts: c.attrs().int("num_split")? })
    }
}

impl Kernel for SparseSplit {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let axis_input = ctx.input(0)?;
        if !axis_input.shape().is_scalar() {
            return Err(invalid_argument!("Input axis should be a scalar but received shape {}", axis_input.shape()));
        }
        let coo = Coo::validated(ctx.input(1)?, ctx.input(2)?, ctx.input(3)?)?;
        let (wanted, rank) = (axis_input.scalar_value::<i64>()?, coo.rank() as i64);
        let axis = if wanted < 0 { wanted.saturating_add(rank) } else { wanted };
        let axis = usize::try_from(axis).ok().filter(|&axis| axis < coo.rank());
        let axis =
            axis.ok_or_else(|| invalid_argument!("Input axis should be in range [{}, {rank}), got {wanted}", -rank))?;
        let size = coo.shape[axis];
        if self.parts < 1 || self.parts > size {
            return Err(invalid_argument!(
                "Input num_split should be between 1 and the splitting dimension size ({size}), got {}",
                self.parts
            ));
        }
        let (parts, short, larger) = (self.parts as usize, size / self.parts, size % self.parts);
        // The first parts are one longer where the size does not divide.
        let long_end = (short + 1) * larger;
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); parts];
        for i in 0..coo.len() {
            let index = coo.row(i)[axis];
            if !(0..size).contains(&index) {
                return Err(invalid_argument!("Slice index {index} is larger than num_split."));
            }
            let part = if index < long_end { index / (short + 1) } else { larger + (index - long_end) / short.max(1) };
            members[part as usize].push(i);
        }
        let mut outputs = Vec::with_capacity(parts);
        for (part, members) in members.iter().enumerate() {
            let part = part as i64;
            let start = part * short + part.min(larger);
            let mut indices = Vec::with_capacity(members.len() * coo.rank());
            for &i in members {
                indices.extend_from_slice(coo.row(i));
                let at = indices.len() - coo.rank() + axis;
                indices[at] -= start;
            }
            let mut shape = coo.shape.clone();
            shape[axis] = short + i64::from(part < larger);
            let indices = index_matrix(&indices, members.len(), coo.rank())?;
            outputs.push((indices, pick(coo.values, members)?, Tensor::vector(&shape)?));
        }
        for (i, (indices, values, shape)) in outputs.into_iter().enumerate() {
            ctx.set_output(i, indices)?;
            ctx.set_output(parts + i, values)?;
            ctx.set_output(2 * parts + i, shape)?;
        }
        Ok(())
    }
}

struct SparseSlice;

impl Kernel for SparseSlice {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let coo = Coo::new(ctx.input(0)?, ctx.input(1)?, ctx.input(2)?)?;
        let rank = coo.rank();
        for (i, what) in [(3, "start"), (4, "size")] {
            let input = ctx.input(i)?;
            if !input.shape().is_vector() {
                return Err(invalid_argument!("Input {what} should be a vector but received shape {}", input.shape()));
            }
            if input.num_elements() != rank {
                return Err(invalid_argument!(
                    "Expected {what} to be a vector of length {rank} but got length {}",
                    input.num_elements()
                ));
            }
        }
        let (start, size) = (ctx.input(3)?.to_i64_vec()?, ctx.input(4)?.to_i64_vec()?);
        let mut shape = Vec::with_capacity(rank);
        for d in 0..rank {
            // A slice may reach beyond the end, but not have a negative size.
            let end = start[d].saturating_add(size[d]);
            shape.push(if end <= coo.shape[d] { size[d] } else { coo.shape[d].saturating_sub(start[d]).max(0) });
        }
        Shape::new(&shape)?;
        let inside = |i: &usize| {
            let row = coo.row(*i);
            (0..rank).all(|d| row[d] >= start[d] && row[d] < start[d].saturating_add(size[d]))
        };
        let members: Vec<usize> = (0..coo.len()).filter(inside).collect();
        let indices: Vec<i64> =
            members.iter().flat_map(|&i| coo.row(i).iter().zip(&start).map(|(index, start)| index - start)).collect();
        let indices = index_matrix(&indices, members.len(), rank)?;
        let outputs = (indices, pick(coo.values, &members)?, Tensor::vector(&shape)?);
        ctx.set_output(0, outputs.0)?;
        ctx.set_output(1, outputs.1)?;
        ctx.set_output(2, outputs.2)
    }
}

/// The gradient of the slice's values for those of the whole.
struct SparseSliceGrad;

impl Kernel for SparseSliceGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (gradient, input, start, output) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?);
        if !input.shape().is_matrix() || !output.shape().is_matrix() {
            return Err(invalid_argument!(
                "Input and output indices should be matrices but received shapes: {} and {}",
                input.shape(),
                output.shape()
            ));
        }
        if !gradient.shape().is_vector() {
            return Err(invalid_argument!(
                "Input backprop_val_grad should be a vector but received shape: {}",
                gradient.shape()
            ));
        }
        let (rank, rows, out_rows) = (input.shape().dim(1), input.shape().dim(0), output.shape().dim(0));
        if rank != output.shape().dim(1) {
            return Err(invalid_argument!(
                "The input and output should have the same ndims: got: {rank} and {}",
                output.shape().dim(1)
            ));
        }
        if out_rows > rows {
            return Err(invalid_argument!(
                "# rows of output_indices should be not greater than of input_indices, got {out_rows} and {rows}"
            ));
        }
        if gradient.num_elements() != out_rows {
            return Err(invalid_argument!(
                "# elements of backprop_val_grad and # rows of output_indices should match (#nnz of sum): got {} and {out_rows}",
                gradient.num_elements()
            ));
        }
        if !start.shape().is_vector() {
            return Err(invalid_argument!("The input_start should be a vector but received shape {}", start.shape()));
        }
        if start.num_elements() != rank {
            return Err(invalid_argument!(
                "Expected input_start to be a vector of length {rank} but got length {}",
                start.num_elements()
            ));
        }
        let (from, to, start) = (input.as_slice::<i64>()?, output.as_slice::<i64>()?, start.as_slice::<i64>()?);
        let mut out = Tensor::zeros(gradient.dtype(), Shape::vector(rows))?;
        let mut used = 0;
        for i in 0..rows {
            if used == out_rows {
                break;
            }
            let same = (0..rank).all(|d| from[i * rank + d] == to[used * rank + d].wrapping_add(start[d]));
            if same {
                out.copy_elements(i, gradient, used..used + 1)?;
                used += 1;
            }
        }
        if used != out_rows {
            return Err(internal!(
                "Elements of backprop_val_grad aren't all propagated. Num elements:{out_rows}, used: {used}"
            ));
        }
        ctx.set_output(0, out)
    }
}
