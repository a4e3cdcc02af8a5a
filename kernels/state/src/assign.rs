//! `Assign`, and adding and subtracting: `AssignAdd`, `AssignSub`, `AssignAddVariableOp`, `AssignSubVariableOp`.

use crate::access::{Form, check_type, uninitialized};
use crate::number::Number;
use crate::types::{OBJECTS, union};
use graphmill_runtime::{Construction, Context, Kernel, Registry, Variable};
use graphmill_tensor::{DType, Result, Shape, Status, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    let quantized = [DType::QInt8, DType::QUInt8, DType::QUInt16, DType::QInt32];
    registry.op("Assign").types("T", &union(&[DType::NUMBERS, &OBJECTS, &quantized])).kernel(Assign::new);
    for (op, form, attr, sum) in [
        ("AssignAdd", Form::Reference, "T", Sum::Add),
        ("AssignSub", Form::Reference, "T", Sum::Sub),
        ("AssignAddVariableOp", Form::Resource, "dtype", Sum::Add),
        ("AssignSubVariableOp", Form::Resource, "dtype", Sum::Sub),
    ] {
        registry.op(op).types(attr, DType::NUMBERS).kernel(move |c| Ok(Increment { form, sum, dtype: c.dtype(attr)? }));
    }
}

/// Sets a reference variable. The value is shared, not copied: whoever changes a shared value changes a copy.
struct Assign {
    validate_shape: bool,
    dtype: DType,
}

impl Assign {
    fn new(c: &Construction<'_>) -> Result<Assign> {
        Ok(Assign { validate_shape: c.attrs().bool("validate_shape")?, dtype: c.dtype("T")? })
    }
}

impl Kernel for Assign {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let value = ctx.take_input(1)?;
        let variable = ctx.input_ref(0)?;
        check_type(variable, self.dtype)?;
        let mut held = variable.lock();
        if self.validate_shape {
            let scalar = Shape::scalar();
            let current = held.as_ref().map(Tensor::shape).or(variable.declared_shape()).unwrap_or(&scalar);
            if current != value.shape() {
                return Err(shapes_differ(variable, current, value.shape()));
            }
        }
        let old = held.replace(value);
        drop(held);
        // Given back to the allocator while no other step waits for the lock.
        drop(old);
        Form::Reference.pass_on(ctx)
    }
}

fn shapes_differ(variable: &Variable, current: &Shape, value: &Shape) -> Status {
    let text = format!("Assign requires shapes of both tensors to match. lhs shape= {current} rhs shape= {value}");
    if variable.container().is_empty() {
        return invalid_argument!("{text}");
    }
    invalid_argument!(
        "{text}. Variable {} of shape {current} is held by container {} of this server, where variables outlive sessions. If an \
         earlier job left it there, clear the container with tf.compat.v1.Session.reset(target, [\"{}\"]).",
        variable.name(),
        variable.container(),
        variable.container()
    )
}

/// What is done with the value.
#[derive(Clone, Copy, PartialEq)]
enum Sum {
    Add,
    Sub,
}

/// Adds a value to a variable of the same shape, or subtracts it.
struct Increment {
    form: Form,
    sum: Sum,
    dtype: DType,
}

impl Increment {
    fn shapes_differ(&self, variable: &Shape, value: &Shape) -> Status {
        match self.form {
            Form::Reference => invalid_argument!("Parameters and update must be the same size"),
            Form::Resource => invalid_argument!(
                "Cannot update variable with shape {variable} using a Tensor with shape {value}, shapes must be equal."
            ),
        }
    }

    fn run<T: Number>(&self, ctx: &Context<'_>, held: &mut Tensor, value: &Tensor) -> Result<()> {
        let value = value.as_slice::<T>()?;
        let cost = 0.3;
        match (held.is_unique(), self.sum) {
            (true, Sum::Add) => ctx.parallel_chunks(held.as_mut_slice::<T>()?, 1, cost, |range, part| {
                part.iter_mut().zip(&value[range]).for_each(|(old, &v)| *old = old.plus(v));
            }),
            (true, Sum::Sub) => ctx.parallel_chunks(held.as_mut_slice::<T>()?, 1, cost, |range, part| {
                part.iter_mut().zip(&value[range]).for_each(|(old, &v)| *old = old.minus(v));
            }),
            (false, sum) => {
                let mut fresh = Tensor::alloc(held.dtype(), held.shape().clone())?;
                let old = held.as_slice::<T>()?;
                ctx.parallel_chunks(fresh.as_mut_slice::<T>()?, 1, cost, |range, part| {
                    let terms = old[range.clone()].iter().zip(&value[range]);
                    match sum {
                        Sum::Add => part.iter_mut().zip(terms).for_each(|(new, (&old, &v))| *new = old.plus(v)),
                        Sum::Sub => part.iter_mut().zip(terms).for_each(|(new, (&old, &v))| *new = old.minus(v)),
                    }
                });
                *held = fresh;
            }
        }
        Ok(())
    }
}

impl Kernel for Increment {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let variable = self.form.variable(ctx, 0)?;
        let value = ctx.input(1)?;
        if variable.dtype() != self.dtype && self.form == Form::Resource {
            return Err(invalid_argument!("DType of variable handle and value does not match."));
        }
        check_type(&variable, self.dtype)?;
        {
            let mut held = variable.lock();
            let Some(tensor) = held.as_mut() else {
                return Err(uninitialized(&variable));
            };
            if tensor.shape() != value.shape() {
                return Err(self.shapes_differ(tensor.shape(), value.shape()));
            }
            let run = dispatch!(self.dtype, T in numbers => self.run::<T>(ctx, tensor, value));
            run.unwrap_or_else(|| Err(internal!("{} is not a type of numbers", self.dtype)))?;
        }
        self.form.pass_on(ctx)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_runtime::testing::OpRun;
    use graphmill_runtime::{Registry, Value, Variable};
    use graphmill_tensor::{Code, DType, Shape, Tensor};
    use std::sync::Arc;

    fn registry() -> Registry {
        let mut registry = Registry::new();
        crate::register(&mut registry);
        registry
    }

    fn declared(dims: &[usize]) -> Arc<Variable> {
        Arc::new(Variable::declared("v", "ps", DType::Float, Shape::from_dims(dims).unwrap()))
    }

    #[test]
    fn assign_checks_the_shape_and_names_the_container() {
        let variable = declared(&[2]);
        let op = OpRun::new("Assign").attr_type("T", DType::Float);
        let run = |op: &OpRun, values: &[f32]| {
            let value = Tensor::vector(values).unwrap();
            op.run_values(&registry(), vec![Value::Ref(variable.clone()), Value::Tensor(value)])
        };
        let error = run(&op, &[1.0, 2.0, 3.0]).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        let text = "Assign requires shapes of both tensors to match. lhs shape= [2] rhs shape= [3]";
        assert!(error.message().starts_with(text), "{error}");
        assert!(error.message().contains("container ps"));
        assert!(variable.read().is_none());
        let outputs = run(&op, &[1.0, 2.0]).unwrap();
        assert!(matches!(&outputs[0], Value::Ref(out) if Arc::ptr_eq(out, &variable)));
        run(&op.attr_bool("validate_shape", false), &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(variable.read().unwrap().as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn sums_leave_values_that_were_read_as_they_are() {
        let variable = declared(&[2]);
        let run = |op: &str, values: &[f32]| {
            let value = Tensor::vector(values).unwrap();
            let inputs = vec![Value::Ref(variable.clone()), Value::Tensor(value)];
            OpRun::new(op).attr_type("T", DType::Float).run_values(&registry(), inputs)
        };
        let error = run("AssignAdd", &[1.0, 1.0]).unwrap_err();
        assert_eq!(error.message(), "Attempting to use uninitialized value v");
        variable.write(Tensor::vector(&[1f32, 2.0]).unwrap());
        let before = variable.read().unwrap();
        run("AssignAdd", &[10.0, 20.0]).unwrap();
        run("AssignSub", &[1.0, 1.0]).unwrap();
        assert_eq!(before.as_slice::<f32>().unwrap(), [1.0, 2.0]);
        assert_eq!(variable.read().unwrap().as_slice::<f32>().unwrap(), [10.0, 21.0]);
        let error = run("AssignAdd", &[1.0]).unwrap_err();
        assert_eq!(error.message(), "Parameters and update must be the same size");
        assert_eq!(variable.read().unwrap().as_slice::<f32>().unwrap(), [10.0, 21.0]);
    }
}
