//! `ScatterUpdate`, `ScatterAdd` and so on, and their resource forms: changes of the rows of a variable that indices name. A row that is
//! named twice is changed twice, in the order of the indices.

use crate::access::{Form, check_type, make_unique, uninitialized};
use crate::number::{Number, Ordered};
use crate::rows::{Parts, rows_below};
use crate::types::{OBJECTS, union};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Mover, Result, Shape, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    for (op, form, attr, change) in [
        ("ScatterAdd", Form::Reference, "T", Change::Add),
        ("ScatterSub", Form::Reference, "T", Change::Sub),
        ("ScatterMul", Form::Reference, "T", Change::Mul),
        ("ScatterDiv", Form::Reference, "T", Change::Div),
        ("ScatterMin", Form::Reference, "T", Change::Min),
        ("ScatterMax", Form::Reference, "T", Change::Max),
        ("ScatterUpdate", Form::Reference, "T", Change::Update),
        ("ResourceScatterAdd", Form::Resource, "dtype", Change::Add),
        ("ResourceScatterSub", Form::Resource, "dtype", Change::Sub),
        ("ResourceScatterMul", Form::Resource, "dtype", Change::Mul),
        ("ResourceScatterDiv", Form::Resource, "dtype", Change::Div),
        ("ResourceScatterMin", Form::Resource, "dtype", Change::Min),
        ("ResourceScatterMax", Form::Resource, "dtype", Change::Max),
        ("ResourceScatterUpdate", Form::Resource, "dtype", Change::Update),
    ] {
        let types = match (change, form) {
            (Change::Update, Form::Reference) => union(&[DType::NUMBERS, &OBJECTS]),
            (Change::Update, Form::Resource) => union(&[DType::NUMBERS, &[DType::Bool, DType::String, DType::Variant]]),
            (Change::Min | Change::Max, _) => DType::REALS.to_vec(),
            _ => DType::NUMBERS.to_vec(),
        };
        registry
            .op(op)
            .types(attr, &types)
            .types("Tindices", DType::INDICES)
            .kernel(move |c| Scatter::new(c, form, attr, change));
    }
}

/// What an update does to an element.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Change {
    Update,
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
}

struct Scatter {
    form: Form,
    change: Change,
    dtype: DType,
}

impl Scatter {
    fn new(c: &Construction<'_>, form: Form, attr: &str, change: Change) -> Result<Scatter> {
        Ok(Scatter { form, change, dtype: c.dtype(attr)? })
    }

    fn check_shapes(&self, params: &Shape, indices: &Shape, updates: &Shape) -> Result<()> {
        if params.is_scalar() {
            return Err(invalid_argument!("params must be at least 1-D, got shape {params}"));
        }
        if updates.is_scalar() {
            return Ok(());
        }
        let (outer, inner) = (indices.dims(), &params.dims()[1..]);
        let fits = updates.rank() == outer.len() + inner.len();
        if fits && updates.dims().starts_with(outer) && updates.dims().ends_with(inner) {
            return Ok(());
        }
        if self.form == Form::Resource && fits && !updates.dims().starts_with(outer) {
            return Err(invalid_argument!(
                "The shape of indices ({indices}) must be a prefix of the shape of updates ({updates})"
            ));
        }
        Err(invalid_argument!(
            "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape {updates}, \
             indices.shape {indices}, params.shape {params}"
        ))
    }

    /// TensorFlow lets floats be divided by 0 in the reference op only, and integers would trap.
    fn check_divisors(&self, updates: &Tensor) -> Result<()> {
        let is_float = matches!(
            self.dtype,
            DType::Float | DType::Double | DType::Half | DType::BFloat16 | DType::Complex64 | DType::Complex128
        );
        if self.change != Change::Div || (is_float && self.form == Form::Reference) {
            return Ok(());
        }
        let zero = dispatch!(self.dtype, T in numbers => updates.as_slice::<T>()?.iter().any(|u| u.is_zero()));
        if zero == Some(true) { Err(invalid_argument!("updates must not contain 0")) } else { Ok(()) }
    }

    fn scatter(&self, ctx: &Context<'_>, params: &mut Tensor) -> Result<()> {
        let (indices, updates) = (ctx.input(1)?, ctx.input(2)?);
        self.check_shapes(params.shape(), indices.shape(), updates.shape())?;
        self.check_divisors(updates)?;
        let rows = rows_below(indices, params.shape().dim(0))?;
        let width = params.shape().stride(0);
        if rows.is_empty() || width == 0 {
            return Ok(());
        }
        make_unique(params)?;
        let whole = !updates.shape().is_scalar();
        match self.change {
            Change::Update if whole => {
                let offsets: Vec<Option<usize>> = rows.iter().map(|row| Some(row * width)).collect();
                params.move_from(&[updates], Parts { offsets: &offsets, width, scatter: true })
            }
            Change::Update => params.move_from(&[updates], FillRows { rows: &rows, width }),
            Change::Min | Change::Max => dispatch!(self.dtype, T in reals => {
                let least = self.change == Change::Min;
                let change = |old: T, update| if least { old.smaller(update) } else { old.larger(update) };
                change_rows(params.as_mut_slice()?, updates.as_slice()?, &rows, width, change)
            })
            .ok_or_else(|| self.wrong_type()),
            _ => dispatch!(self.dtype, T in numbers => {
                let (params, updates) = (params.as_mut_slice::<T>()?, updates.as_slice::<T>()?);
                match self.change {
                    Change::Add => change_rows(params, updates, &rows, width, T::plus),
                    Change::Sub => change_rows(params, updates, &rows, width, T::minus),
                    Change::Mul => change_rows(params, updates, &rows, width, T::times),
                    _ => change_rows(params, updates, &rows, width, T::over),
                }
            })
            .ok_or_else(|| self.wrong_type()),
        }
    }

    fn wrong_type(&self) -> graphmill_tensor::Status {
        internal!("{:?} does not take elements of type {}", self.change, self.dtype)
    }
}

/// Changes the elements of rows by rows of updates, or by one number.
fn change_rows<T: Element>(params: &mut [T], updates: &[T], rows: &[usize], width: usize, change: impl Fn(T, T) -> T) {
    let row_of = |row: usize| row * width..(row + 1) * width;
    if let ([update], true) = (updates, updates.len() != rows.len() * width) {
        for &row in rows {
            params[row_of(row)].iter_mut().for_each(|old| *old = change(*old, *update));
        }
        return;
    }
    for (&row, updates) in rows.iter().zip(updates.chunks_exact(width)) {
        params[row_of(row)].iter_mut().zip(updates).for_each(|(old, &update)| *old = change(*old, update));
    }
}

/// Sets all elements of rows to one value.
struct FillRows<'a> {
    rows: &'a [usize],
    width: usize,
}

impl Mover for FillRows<'_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let Some(value) = sources.first().and_then(|source| source.first()) else { return };
        for row in self.rows {
            target[row * self.width..(row + 1) * self.width].fill(value.clone());
        }
    }
}

impl Kernel for Scatter {
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
    use graphmill_runtime::testing::OpRun;
    use graphmill_runtime::{Registry, Value, Variable};
    use graphmill_tensor::{DType, Result, Shape, Tensor};
    use std::sync::Arc;

    fn scatter(op: &str, indices: Tensor, updates: Tensor) -> (Result<()>, Vec<i32>) {
        let mut registry = Registry::new();
        crate::register(&mut registry);
        let variable = Arc::new(Variable::new("v", DType::Int32));
        let shape = Shape::new(&[3, 2]).unwrap();
        variable.write(Tensor::from_slice(shape, &[1i32, 2, 3, 4, 5, 6]).unwrap());
        let inputs = vec![Value::Ref(variable.clone()), indices.into(), updates.into()];
        let run = OpRun::new(op).attr_type("T", DType::Int32).attr_type("Tindices", DType::Int32);
        let result = run.run_values(&registry, inputs).map(|_| ());
        (result, variable.read().unwrap().as_slice::<i32>().unwrap().to_vec())
    }

    fn rows(values: &[i32]) -> Tensor {
        Tensor::from_slice(Shape::new(&[values.len() as i64 / 2, 2]).unwrap(), values).unwrap()
    }

    #[test]
    fn rows_are_changed_in_order() {
        let twice = || Tensor::vector(&[2i32, 2]).unwrap();
        for (op, expected) in [
            ("ScatterUpdate", [1, 2, 3, 4, 30, 2]),
            ("ScatterAdd", [1, 2, 3, 4, 45, 28]),
            ("ScatterSub", [1, 2, 3, 4, -35, -16]),
            ("ScatterMul", [1, 2, 3, 4, 1500, 240]),
            ("ScatterDiv", [1, 2, 3, 4, 0, 0]),
            ("ScatterMin", [1, 2, 3, 4, 5, 2]),
            ("ScatterMax", [1, 2, 3, 4, 30, 20]),
        ] {
            let (result, value) = scatter(op, twice(), rows(&[10, 20, 30, 2]));
            result.unwrap();
            assert_eq!(value, expected, "{op}");
        }
        let (result, value) = scatter("ScatterAdd", twice(), Tensor::scalar(1i32).unwrap());
        result.unwrap();
        assert_eq!(value, [1, 2, 3, 4, 7, 8]);
        let (result, value) = scatter("ScatterUpdate", Tensor::scalar(0i32).unwrap(), Tensor::scalar(9i32).unwrap());
        result.unwrap();
        assert_eq!(value, [9, 9, 3, 4, 5, 6]);
    }

    #[test]
    fn an_error_leaves_the_variable_as_it_was() {
        let unchanged = [1, 2, 3, 4, 5, 6];
        for (op, indices, updates, text) in [
            ("ScatterAdd", [0, 3], rows(&[1, 1, 1, 1]), "indices[1] = 3 is not in [0, 3)"),
            ("ScatterUpdate", [0, -1], rows(&[1, 1, 1, 1]), "indices[1] = -1 is not in [0, 3)"),
            ("ScatterDiv", [0, 1], rows(&[1, 1, 1, 0]), "updates must not contain 0"),
            (
                "ScatterAdd",
                [0, 1],
                rows(&[1, 1]),
                "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape [1,2], \
                 indices.shape [2], params.shape [3,2]",
            ),
        ] {
            let (result, value) = scatter(op, Tensor::vector(&indices).unwrap(), updates);
            assert_eq!(result.unwrap_err().message(), text);
            assert_eq!(value, unchanged);
        }
    }
}
