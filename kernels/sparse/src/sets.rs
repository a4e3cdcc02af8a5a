//! Sets in the rows of tensors: `DenseToDenseSetOperation`, `DenseToSparseSetOperation`, `SparseToSparseSetOperation`, `SetSize`.

use crate::coo::{Coo, index_matrix, joined, strides};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Element, Result, Shape, Tensor, dispatch, internal, invalid_argument};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn register(registry: &mut Registry) {
    use DType::{Int8, Int16, Int32, Int64, UInt8, UInt16};
    let types = [Int16, Int32, Int64, Int8, DType::String, UInt16, UInt8];
    for (op, first, second) in [
        ("DenseToDenseSetOperation", Form::Dense, Form::Dense),
        ("DenseToSparseSetOperation", Form::Dense, Form::Sparse),
        ("SparseToSparseSetOperation", Form::Sparse, Form::Sparse),
    ] {
        registry.op(op).types("T", &types).kernel(move |c| SetOperation::new(c, first, second));
    }
    registry.op("SetSize").types("T", &types).kernel(SetSize::new);
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Dense,
    Sparse,
}

#[derive(Clone, Copy)]
enum Operation {
    FirstOnly,
    SecondOnly,
    Intersection,
    Union,
}

/// The sets of a tensor by the indices of their rows, and the sizes of these.
struct Sets<T> {
    shape: Vec<i64>,
    sets: BTreeMap<Vec<i64>, BTreeSet<T>>,
}

/// Values that are members of sets.
trait Member: Ord + Clone {
    fn values(tensor: &Tensor) -> Result<&[Self]>;
    fn tensor(values: Vec<Self>) -> Result<Tensor>;
}

impl<E: Element + Ord> Member for E {
    fn values(tensor: &Tensor) -> Result<&[E]> {
        tensor.as_slice()
    }

    fn tensor(values: Vec<E>) -> Result<Tensor> {
        Tensor::vector(&values)
    }
}

/// A string, as a member of its own type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Text(Bytes);

fn too_low(shape: &[i64]) -> graphmill_tensor::Status {
    invalid_argument!("Shape [{}] has rank {} < 2", joined(shape, ","), shape.len())
}

/// The place of a row among the outer dimensions, and its elements.
type Row = (Vec<i64>, std::ops::Range<usize>);

/// The outer dimensions and the rows of a dense tensor.
fn dense_rows(tensor: &Tensor) -> Result<(Vec<i64>, Vec<Row>)> {
    let dims: Vec<i64> = tensor.shape().dims_i64().collect();
    let Some((&width, outer)) = dims.split_last().filter(|(_, outer)| !outer.is_empty()) else {
        return Err(too_low(&dims));
    };
    let strides = strides(outer);
    let count = outer.iter().product::<i64>();
    let rows = (0..count).map(|row| {
        let index = strides.iter().zip(outer).map(|(&stride, &size)| row / stride % size).collect();
        (index, (row * width) as usize..((row + 1) * width) as usize)
    });
    let rows = rows.collect();
    Ok((outer.to_vec(), rows))
}

/// The shape, and for each entry of a sparse tensor the index of its row.
fn sparse_rows(ctx: &Context<'_>, at: usize, validates: bool) -> Result<(Vec<i64>, Vec<Vec<i64>>)> {
    let shape = ctx.input(at + 2)?.to_i64_vec()?;
    Shape::new(&shape)?;
    if shape.len() < 2 {
        return Err(invalid_argument!("Invalid rank {}.", shape.len()));
    }
    let coo = Coo::with_shape(ctx.input(at)?, ctx.input(at + 1)?, shape)?;
    if validates {
        coo.check_indices()?
    } else {
        coo.check_bounds()?
    }
    let outer = coo.rank() - 1;
    let rows = (0..coo.len()).map(|i| coo.row(i)[..outer].to_vec()).collect();
    Ok((coo.shape[..outer].to_vec(), rows))
}

fn sets<T: Ord + Clone>(ctx: &Context<'_>, at: usize, form: Form, validates: bool, all: &[T]) -> Result<Sets<T>> {
    let mut sets: BTreeMap<Vec<i64>, BTreeSet<T>> = BTreeMap::new();
    if form == Form::Dense {
        let (shape, rows) = dense_rows(ctx.input(at)?)?;
        for (index, range) in rows {
            sets.insert(index, all.get(range).unwrap_or_default().iter().cloned().collect());
        }
        return Ok(Sets { shape, sets });
    }
    let (shape, rows) = sparse_rows(ctx, at, validates)?;
    for (row, value) in rows.into_iter().zip(all) {
        sets.entry(row).or_default().insert(value.clone());
    }
    Ok(Sets { shape, sets })
}

struct SetOperation {
    operation: Operation,
    validates: bool,
    first: Form,
    second: Form,
}

impl SetOperation {
    fn new(c: &Construction<'_>, first: Form, second: Form) -> Result<SetOperation> {
        let name = c.attrs().str("set_operation")?.to_ascii_lowercase();
        let operation = match name.as_str() {
            "a-b" => Operation::FirstOnly,
            "b-a" => Operation::SecondOnly,
            "intersection" => Operation::Intersection,
            "union" => Operation::Union,
            _ => return Err(invalid_argument!("Invalid set_operation {name}.")),
        };
        Ok(SetOperation { operation, validates: c.attrs().bool("validate_indices")?, first, second })
    }

    fn places(&self) -> (usize, usize, usize) {
        // The second operand, and where the values of both are.
        match (self.first, self.second) {
            (Form::Dense, Form::Dense) => (1, 0, 1),
            (Form::Dense, Form::Sparse) => (1, 0, 2),
            _ => (3, 1, 4),
        }
    }

    fn run<T: Ord + Clone>(&self, ctx: &Context<'_>, a: &[T], b: &[T]) -> Result<(Tensor, Vec<T>, Tensor)> {
        let (second, ..) = self.places();
        let a = sets(ctx, 0, self.first, self.validates, a)?;
        let b = sets(ctx, second, self.second, self.validates, b)?;
        if a.shape != b.shape {
            return Err(invalid_argument!(
                "Mismatched shapes [{}] vs [{}]",
                joined(&a.shape, ","),
                joined(&b.shape, ",")
            ));
        }
        let empty = BTreeSet::new();
        let rows: BTreeSet<&Vec<i64>> = a.sets.keys().chain(b.sets.keys()).collect();
        let (mut indices, mut values, mut largest) = (Vec::new(), Vec::new(), 0);
        for row in rows {
            let (x, y) = (a.sets.get(row).unwrap_or(&empty), b.sets.get(row).unwrap_or(&empty));
            let members: Vec<T> = match self.operation {
                Operation::FirstOnly => x.difference(y).cloned().collect(),
                Operation::SecondOnly => y.difference(x).cloned().collect(),
                Operation::Intersection => x.intersection(y).cloned().collect(),
                Operation::Union => x.union(y).cloned().collect(),
            };
            largest = largest.max(members.len());
            for i in 0..members.len() {
                indices.extend_from_slice(row);
                indices.push(i as i64);
            }
            values.extend(members);
        }
        let mut shape = a.shape;
        shape.push(largest as i64);
        let indices = index_matrix(&indices, values.len(), shape.len())?;
        Ok((indices, values, Tensor::vector(&shape)?))
    }
}

impl Kernel for SetOperation {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (_, a, b) = self.places();
        let (a, b) = (ctx.input(a)?, ctx.input(b)?);
        let (indices, values, shape) = if a.dtype() == DType::String {
            let text = |tensor: &Tensor| Ok(tensor.strings()?.iter().cloned().map(Text).collect::<Vec<Text>>());
            let (indices, values, shape) = self.run(ctx, &text(a)?, &text(b)?)?;
            let values: Vec<Bytes> = values.into_iter().map(|text| text.0).collect();
            (indices, Tensor::from_strings(Shape::vector(values.len()), values)?, shape)
        } else {
            let done = dispatch!(a.dtype(), T in [i8, i16, i32, i64, u8, u16] => {
                let (indices, values, shape) = self.run(ctx, T::values(a)?, T::values(b)?)?;
                (indices, T::tensor(values)?, shape)
            });
            done.ok_or_else(|| internal!("no such type"))?
        };
        ctx.set_output(0, indices)?;
        ctx.set_output(1, values)?;
        ctx.set_output(2, shape)
    }
}

/// The number of different values in each row of a sparse tensor.
struct SetSize {
    validates: bool,
}

impl SetSize {
    fn new(c: &Construction<'_>) -> Result<SetSize> {
        Ok(SetSize { validates: c.attrs().bool("validate_indices")? })
    }

    fn run<T: Ord + Clone>(&self, ctx: &Context<'_>, values: &[T]) -> Result<Tensor> {
        let sets = sets(ctx, 0, Form::Sparse, self.validates, values)?;
        let mut out = Tensor::zeros(DType::Int32, Shape::new(&sets.shape)?)?;
        let strides = strides(&sets.shape);
        let sizes = out.as_mut_slice::<i32>()?;
        for (row, set) in &sets.sets {
            let at: i64 = row.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
            if let Some(size) = usize::try_from(at).ok().and_then(|at| sizes.get_mut(at)) {
                *size = set.len() as i32;
            }
        }
        Ok(out)
    }
}

impl Kernel for SetSize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let values = ctx.input(1)?;
        let out = if values.dtype() == DType::String {
            let values: Vec<Text> = values.strings()?.iter().cloned().map(Text).collect();
            self.run(ctx, &values)?
        } else {
            let done =
                dispatch!(values.dtype(), T in [i8, i16, i32, i64, u8, u16] => self.run(ctx, T::values(values)?)?);
            done.ok_or_else(|| internal!("no such type"))?
        };
        ctx.set_output(0, out)
    }
}
