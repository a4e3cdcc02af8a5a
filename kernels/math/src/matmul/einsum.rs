//! `Einsum`: sums of products over named dimensions, of one operand or two.

use super::product::{Matrix, Multiply, Sizes};
use super::widened;
use crate::number::Number;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    Broadcast, Complex32, Complex64, DType, Result, Shape, Tensor, bf16, dispatch, f16, internal, invalid_argument,
};
use smallvec::SmallVec;

/// Products with fewer terms than this are summed in a plain loop.
const FEW_TERMS: usize = 32;

/// A place in a subscript.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Label {
    Name(u8),
    /// Any number of dimensions that broadcast.
    Ellipsis,
}

type Subscript = Vec<Label>;

/// The equation: what each operand's dimensions are called, and those of the result.
#[derive(Debug)]
struct Equation {
    inputs: Vec<Subscript>,
    output: Subscript,
}

fn subscript(text: &str, equation: &str) -> Result<Subscript> {
    let mut labels = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'.' {
            labels.push(Label::Name(byte));
            continue;
        }
        if bytes.next() != Some(b'.') || bytes.next() != Some(b'.') {
            return Err(invalid_argument!("Periods found outside of ellipsis in subscript: {text} of {equation}"));
        }
        if labels.contains(&Label::Ellipsis) {
            return Err(invalid_argument!("Too many ellipses in subscript: {text} of {equation}"));
        }
        labels.push(Label::Ellipsis);
    }
    Ok(labels)
}

impl Equation {
    fn parse(text: &str) -> Result<Equation> {
        let sides: Vec<&str> = text.split("->").collect();
        let [inputs, output] = sides[..] else {
            return Err(invalid_argument!("Expecting exactly one '->' in einsum equation: {text}"));
        };
        let inputs: Vec<&str> = inputs.split(',').collect();
        if inputs.len() > 2 {
            return Err(invalid_argument!(
                "Expecting 1 or 2 input subscripts in equation '{text}' but got: {}",
                inputs.len()
            ));
        }
        let inputs = inputs.iter().map(|input| subscript(input, text)).collect::<Result<Vec<_>>>()?;
        let output = subscript(output, text)?;
        for label in &output {
            if let Label::Name(name) = label
                && !inputs.iter().any(|input| input.contains(label))
            {
                return Err(invalid_argument!(
                    "Einsum output subscripts for equation '{text}' has label '{}' which is not present in the input \
                     subscripts",
                    char::from(*name)
                ));
            }
        }
        Ok(Equation { inputs, output })
    }
}

type Strides = SmallVec<[usize; 6]>;
/// Where the matrices of the two operands start, for each product.
type Starts = SmallVec<[(usize, usize); 1]>;

/// An operand seen by label: how far apart neighbours along each are. A repeated label walks the diagonal.
struct Operand {
    /// By position in [`Plan::names`]; `None` where the operand lacks the label.
    named: SmallVec<[Option<usize>; 8]>,
    /// The dimensions under the ellipsis: size and stride.
    broadcast: SmallVec<[(usize, usize); 6]>,
}

/// The labels of a call with their sizes, and where operands have them.
struct Plan {
    names: SmallVec<[(u8, usize); 8]>,
    operands: SmallVec<[Operand; 2]>,
}

impl Plan {
    fn new(equation: &Equation, shapes: &[&Shape]) -> Result<Plan> {
        if shapes.len() != equation.inputs.len() {
            return Err(invalid_argument!("Expected {} inputs but got: {}", equation.inputs.len(), shapes.len()));
        }
        let mut plan = Plan { names: SmallVec::new(), operands: SmallVec::new() };
        for label in equation.inputs.iter().flatten() {
            if let Label::Name(name) = label
                && !plan.names.iter().any(|(known, _)| known == name)
            {
                plan.names.push((*name, usize::MAX));
            }
        }
        for (i, (subscript, shape)) in equation.inputs.iter().zip(shapes).enumerate() {
            let operand = plan.operand(i, subscript, shape)?;
            plan.operands.push(operand);
        }
        Ok(plan)
    }

    fn operand(&mut self, i: usize, subscript: &Subscript, shape: &Shape) -> Result<Operand> {
        let rank = shape.rank();
        let extra = if subscript.contains(&Label::Ellipsis) {
            (rank + 1).checked_sub(subscript.len()).ok_or_else(|| {
                let least = subscript.len() - 1;
                invalid_argument!("Expected input {i} to have rank at least {least} but got: {rank}")
            })?
        } else if rank == subscript.len() {
            0
        } else {
            return Err(invalid_argument!("Expected input {i} to have rank {} but got: {rank}", subscript.len()));
        };
        let strides = shape.strides();
        let mut operand = Operand { named: SmallVec::from_elem(None, self.names.len()), broadcast: SmallVec::new() };
        let mut axis = 0;
        for label in subscript {
            match label {
                Label::Ellipsis => {
                    operand.broadcast.extend((axis..axis + extra).map(|a| (shape.dim(a), strides[a])));
                    axis += extra;
                }
                Label::Name(name) => {
                    let size = shape.dim(axis);
                    for ((known, expected), stride) in self.names.iter_mut().zip(&mut operand.named) {
                        if known != name {
                            continue;
                        }
                        if *expected != usize::MAX && *expected != size {
                            return Err(invalid_argument!(
                                "Expected dimension {expected} at axis {axis} of the input shaped {shape} but got \
                                 dimension {size}"
                            ));
                        }
                        *expected = size;
                        *stride = Some(stride.unwrap_or(0) + strides[axis]);
                    }
                    axis += 1;
                }
            }
        }
        Ok(operand)
    }

    /// Size of each label of a group.
    fn sizes(&self, labels: &[usize]) -> Strides {
        labels.iter().map(|&l| self.names[l].1).collect()
    }
}

/// Visits every index below `sizes` in row-major order, with an offset by `strides`.
fn for_each_offset(sizes: &[usize], strides: &[usize], mut visit: impl FnMut(usize)) {
    if sizes.contains(&0) {
        return;
    }
    let mut index: Strides = SmallVec::from_elem(0, sizes.len());
    let mut offset = 0;
    loop {
        let (outer, inner) = match sizes.split_last() {
            Some((&last, outer)) => (outer.len(), (last, strides[outer.len()])),
            None => (0, (1, 0)),
        };
        (0..inner.0).for_each(|i| visit(offset + i * inner.1));
        let mut axis = outer;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            offset += strides[axis];
            if index[axis] < sizes[axis] {
                break;
            }
            offset -= strides[axis] * sizes[axis];
            index[axis] = 0;
        }
    }
}

/// The stride of a group of dimensions as one dimension, if it has one.
fn merged(sizes: &[usize], strides: &[usize]) -> Option<usize> {
    let mut whole: Option<(usize, usize)> = None;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        if size == 1 {
            continue;
        }
        whole = match whole {
            None => Some((stride, stride * size)),
            Some((first, next)) if next == stride => Some((first, stride * size)),
            Some(_) => return None,
        };
    }
    Some(whole.map_or(1, |(first, _)| first))
}

/// An operand as a batch of matrices of free times contracted dimensions.
struct Matrices<'a, T: Clone> {
    data: std::borrow::Cow<'a, [T]>,
    /// Strides of the batch dimensions, those under the ellipsis first.
    batch: Strides,
    free: usize,
    contracted: usize,
}

/// The labels by their role.
struct Groups {
    /// In both operands and the result.
    batch: Vec<usize>,
    /// In one operand and the result.
    free: [Vec<usize>; 2],
    /// In both operands only.
    contracted: Vec<usize>,
    /// In one operand only.
    reduced: [Vec<usize>; 2],
}

impl Groups {
    fn new(plan: &Plan, equation: &Equation) -> Groups {
        let mut groups = Groups {
            batch: Vec::new(),
            free: [Vec::new(), Vec::new()],
            contracted: Vec::new(),
            reduced: [Vec::new(), Vec::new()],
        };
        for (l, (name, _)) in plan.names.iter().enumerate() {
            let kept = equation.output.contains(&Label::Name(*name));
            let owners: SmallVec<[usize; 2]> =
                (0..plan.operands.len()).filter(|&i| plan.operands[i].named[l].is_some()).collect();
            match (owners[..].first(), owners.len() == 2, kept) {
                (_, true, true) => groups.batch.push(l),
                (_, true, false) => groups.contracted.push(l),
                (Some(&i), false, true) => groups.free[i].push(l),
                (Some(&i), false, false) => groups.reduced[i].push(l),
                (None, ..) => (),
            }
        }
        groups
    }
}

impl Plan {
    fn strides(&self, i: usize, labels: &[usize]) -> Strides {
        labels.iter().map(|&l| self.operands[i].named[l].unwrap_or(0)).collect()
    }

    /// Operand `i` as matrices: where it lies if its dimensions are in a usable order, else copied, with what is reduced summed.
    fn matrices<'a, T: Number>(&self, i: usize, groups: &Groups, data: &'a [T]) -> Matrices<'a, T> {
        let operand = &self.operands[i];
        let (free, contracted, reduced) = (&groups.free[i], &groups.contracted, &groups.reduced[i]);
        let (free_sizes, contracted_sizes) = (self.sizes(free), self.sizes(contracted));
        let batch_sizes: Strides = operand.broadcast.iter().map(|b| b.0).chain(self.sizes(&groups.batch)).collect();
        let batch: Strides = operand.broadcast.iter().map(|b| b.1).chain(self.strides(i, &groups.batch)).collect();
        if reduced.is_empty()
            && let Some(free) = merged(&free_sizes, &self.strides(i, free))
            && let Some(contracted) = merged(&contracted_sizes, &self.strides(i, contracted))
            && (free == 1 || contracted == 1)
        {
            return Matrices { data: data.into(), batch, free, contracted };
        }
        let sizes: Strides = batch_sizes.iter().chain(&free_sizes).chain(&contracted_sizes).copied().collect();
        let strides: Strides =
            batch.into_iter().chain(self.strides(i, free)).chain(self.strides(i, contracted)).collect();
        let mut copied = Vec::with_capacity(sizes.iter().product());
        if reduced.is_empty() {
            for_each_offset(&sizes, &strides, |at| copied.push(data[at]));
        } else {
            let (reduced_sizes, reduced_strides) = (self.sizes(reduced), self.strides(i, reduced));
            for_each_offset(&sizes, &strides, |at| {
                let mut sum = T::ZERO;
                for_each_offset(&reduced_sizes, &reduced_strides, |step| sum = sum.plus(data[at + step]));
                copied.push(sum);
            });
        }
        let contracted: usize = contracted_sizes.iter().product();
        let free: usize = free_sizes.iter().product();
        let mut batch: Strides = SmallVec::from_elem(free * contracted, batch_sizes.len());
        for axis in (1..batch_sizes.len()).rev() {
            batch[axis - 1] = batch[axis] * batch_sizes[axis];
        }
        Matrices { data: copied.into(), batch, free: contracted, contracted: 1 }
    }
}

/// Multiplies the matrices of each batch element into `out`.
fn contract<T: Multiply>(
    ctx: &Context<'_>,
    sizes: Sizes,
    [a, b]: [&Matrices<'_, T>; 2],
    starts: &[(usize, usize)],
    out: &mut [T],
) {
    let Sizes { m, n, k } = sizes;
    if out.is_empty() {
        return;
    }
    if k == 0 {
        return out.fill(T::ZERO);
    }
    ctx.parallel_chunks(out, m * n, (m * n * k) as f64 / T::SPEED + 5.0, |batches, part| {
        for (&(x, y), c) in starts[batches].iter().zip(part.chunks_exact_mut(m * n)) {
            let (x, y) = (&a.data[x..], &b.data[y..]);
            if m * n * k <= FEW_TERMS {
                for (at, c) in c.iter_mut().enumerate() {
                    let (i, j) = (at / n, at % n);
                    let term = |l: usize| x[i * a.free + l * a.contracted].times(y[j * b.free + l * b.contracted]);
                    *c = (1..k).fold(term(0), |sum, l| sum.plus(term(l)));
                }
                continue;
            }
            let x = Matrix { data: x, row: a.free, column: a.contracted, conjugate: false };
            let y = Matrix { data: y, row: b.contracted, column: b.free, conjugate: false };
            T::multiply(ctx, sizes, x, y, c);
        }
    });
}

/// The shape of all broadcasting dimensions together, and for each element of the batch where the operands' matrices start.
fn batch_starts(plan: &Plan, groups: &Groups, strides: [&Strides; 2]) -> Result<(Shape, Starts)> {
    let shape_of = |i: usize| {
        let dims: Strides = plan.operands[i].broadcast.iter().map(|b| b.0).chain(plan.sizes(&groups.batch)).collect();
        Shape::from_dims(&dims)
    };
    let (a, b) = (shape_of(0)?, shape_of(1)?);
    let all = Broadcast::new(&a, &b)
        .map_err(|error| error.with_message(format!("Invalid broadcasting dimensions: {a} vs. {b}")))?
        .shape()
        .clone();
    let rank = all.rank();
    let widened = |shape: &Shape, strides: &Strides| -> Strides {
        let missing = rank - shape.rank();
        let stride = |axis: usize| if shape.dim(axis) == 1 { 0 } else { strides[axis] };
        (0..rank).map(|axis| axis.checked_sub(missing).map_or(0, stride)).collect()
    };
    let (a, b) = (widened(&a, strides[0]), widened(&b, strides[1]));
    let mut starts = Starts::new();
    for_each_offset(all.dims(), &a, |at| starts.push((at, 0)));
    let mut next = 0;
    for_each_offset(all.dims(), &b, |at| {
        starts[next].1 = at;
        next += 1;
    });
    Ok((all, starts))
}

struct Einsum {
    equation: Equation,
}

impl Einsum {
    /// Puts the dimensions of a result, which come as `labels` behind `broadcast` dimensions, into the order of the output; a
    /// repeated label makes a diagonal.
    fn arrange<T: Number>(&self, plan: &Plan, broadcast: &[usize], labels: &[usize], result: Tensor) -> Result<Tensor> {
        let mut dims: Strides = SmallVec::new();
        let mut order: SmallVec<[Option<usize>; 8]> = SmallVec::new();
        let mut ellipsis = 0;
        for label in &self.equation.output {
            match label {
                Label::Ellipsis => {
                    ellipsis = dims.len();
                    dims.extend_from_slice(broadcast);
                    order.extend(broadcast.iter().map(|_| None));
                }
                Label::Name(name) => {
                    let position = plan.names.iter().position(|(known, _)| known == name);
                    let position = position.ok_or_else(|| internal!("an output label is in no input"))?;
                    dims.push(plan.names[position].1);
                    order.push(Some(position));
                }
            }
        }
        let shape = Shape::from_dims(&dims)?;
        let in_order = dims.len() == broadcast.len() + labels.len()
            && ellipsis == 0
            && order[broadcast.len()..].iter().zip(labels).all(|(o, l)| *o == Some(*l));
        if in_order {
            return result.into_shape(shape);
        }
        let mut out = Tensor::alloc(T::DTYPE, shape.clone())?;
        let strides = shape.strides();
        let along = |l: usize| (0..order.len()).filter(|&axis| order[axis] == Some(l)).map(|axis| strides[axis]).sum();
        let steps: Strides = (ellipsis..ellipsis + broadcast.len())
            .map(|axis| strides[axis])
            .chain(labels.iter().map(|&l| along(l)))
            .collect();
        let sizes: Strides = broadcast.iter().copied().chain(plan.sizes(labels)).collect();
        let values = result.as_slice::<T>()?;
        let target = out.as_mut_slice::<T>()?;
        if dims.len() != sizes.len() {
            target.fill(T::ZERO);
        }
        let mut next = values.iter();
        for_each_offset(&sizes, &steps, |at| {
            if let Some(&value) = next.next() {
                target[at] = value;
            }
        });
        Ok(out)
    }

    fn run<T: Multiply>(&self, ctx: &Context<'_>, inputs: &[&Tensor]) -> Result<Tensor> {
        let shapes: SmallVec<[&Shape; 2]> = inputs.iter().map(|t| t.shape()).collect();
        let plan = Plan::new(&self.equation, &shapes)?;
        let most = plan.operands.iter().map(|o| o.broadcast.len()).max().unwrap_or(0);
        if most > 0 && !self.equation.output.contains(&Label::Ellipsis) {
            return Err(invalid_argument!(
                "Output contains {most} broadcasting dimension(s) but no ellipsis (...) was found in the output \
                 subscripts."
            ));
        }
        let groups = Groups::new(&plan, &self.equation);
        let size = |labels: &[usize]| -> usize { plan.sizes(labels).iter().product() };
        let labels = [&groups.batch[..], &groups.free[0], &groups.free[1]].concat();
        if let [input] = inputs {
            let broadcast: Strides = plan.operands[0].broadcast.iter().map(|b| b.0).collect();
            let dims: Strides = broadcast.iter().copied().chain(plan.sizes(&labels)).collect();
            let matrices = plan.matrices(0, &groups, input.as_slice::<T>()?);
            let strides: Strides = if let std::borrow::Cow::Borrowed(_) = matrices.data {
                matrices.batch.iter().copied().chain(plan.strides(0, &groups.free[0])).collect()
            } else {
                Shape::from_dims(&dims)?.strides().iter().copied().collect()
            };
            let mut result = Tensor::alloc(T::DTYPE, Shape::from_dims(&dims)?)?;
            let mut target = result.as_mut_slice::<T>()?.iter_mut();
            for_each_offset(&dims, &strides, |at| {
                if let Some(t) = target.next() {
                    *t = matrices.data[at];
                }
            });
            return self.arrange::<T>(&plan, &broadcast, &labels, result);
        }
        let a = plan.matrices(0, &groups, inputs[0].as_slice::<T>()?);
        let b = plan.matrices(1, &groups, inputs[1].as_slice::<T>()?);
        let (batch, starts) = batch_starts(&plan, &groups, [&a.batch, &b.batch])?;
        let sizes = Sizes { m: size(&groups.free[0]), n: size(&groups.free[1]), k: size(&groups.contracted) };
        let mut result = Tensor::alloc(T::DTYPE, Shape::from_dims(&[starts.len(), sizes.m, sizes.n])?)?;
        contract(ctx, sizes, [&a, &b], &starts, result.as_mut_slice::<T>()?);
        self.arrange::<T>(&plan, &batch.dims()[..most], &labels, result)
    }
}

impl Kernel for Einsum {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let inputs: SmallVec<[Tensor; 2]> =
            (0..ctx.num_inputs()).map(|i| ctx.input(i).cloned()).collect::<Result<_>>()?;
        let dtype = ctx.output_type(0)?;
        let out = match dtype {
            DType::Half | DType::BFloat16 => {
                let widen = |input: &Tensor| {
                    dispatch!(dtype, T in [f16, bf16] => widened::<T, f32>(ctx, input))
                        .unwrap_or_else(|| Err(internal!("not a 16-bit type")))
                };
                let wide = inputs.iter().map(widen).collect::<Result<SmallVec<[Tensor; 2]>>>()?;
                let wide: SmallVec<[&Tensor; 2]> = wide.iter().collect();
                let sums = self.run::<f32>(ctx, &wide)?;
                if dtype == DType::Half { widened::<f32, f16>(ctx, &sums)? } else { widened::<f32, bf16>(ctx, &sums)? }
            }
            _ => {
                let inputs: SmallVec<[&Tensor; 2]> = inputs.iter().collect();
                dispatch!(dtype, T in [f32, f64, Complex32, Complex64, i32, i64] => self.run::<T>(ctx, &inputs))
                    .unwrap_or_else(|| Err(internal!("Einsum does not take {dtype}")))?
            }
        };
        ctx.set_output(0, out)
    }
}

pub(super) fn register(r: &mut Registry) {
    use DType::*;
    r.op("Einsum")
        .types("T", &[BFloat16, Complex128, Complex64, Double, Float, Half, Int32, Int64])
        .kernel(|c: &Construction<'_>| Ok(Einsum { equation: Equation::parse(c.attrs().str("equation")?)? }));
}
