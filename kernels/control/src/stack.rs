//! Stacks, in which the gradient of a loop keeps the values of the iterations.

use graphmill_runtime::{Construction, Context, Kernel, Registry, Resource, Variable};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a step keeps its stacks.
const CONTAINER: &str = "_stacks";

pub(crate) fn register(registry: &mut Registry) {
    for op in ["Stack", "StackV2"] {
        registry.op(op).kernel(NewStack::new);
    }
    for op in ["StackPush", "StackPushV2"] {
        registry.op(op).kernel(|_| Ok(Push));
    }
    for op in ["StackPop", "StackPopV2"] {
        registry.op(op).kernel(|_| Ok(Pop));
    }
    for op in ["StackClose", "StackCloseV2"] {
        registry.op(op).kernel(|_| Ok(Close));
    }
}

struct Stack {
    name: String,
    dtype: DType,
    max_size: Option<usize>,
    /// `None` once closed.
    values: Mutex<Option<Vec<Tensor>>>,
}

impl Resource for Stack {
    const TYPE_NAME: &'static str = "N10tensorflow5StackE";
}

impl Stack {
    fn of(ctx: &mut Context<'_>) -> Result<Arc<Stack>> {
        // The older ops name a stack by a reference to two strings.
        if ctx.node().input_types.first().is_some_and(|slot| slot.is_ref) {
            let handle = ctx.take_value(0)?.snapshot()?;
            return match handle.strings()? {
                [_, name] => ctx.step().resources().lookup::<Stack>(CONTAINER, &String::from_utf8_lossy(name)),
                _ => Err(invalid_argument!("Stack handle must have two elements, but had shape: {}", handle.shape())),
            };
        }
        match ctx.input(0)?.handles()? {
            [handle] => {
                ctx.device().check_handle::<Stack>(handle)?;
                ctx.step().resources().lookup::<Stack>(CONTAINER, &handle.name)
            }
            _ => Err(invalid_argument!("Stack handle must have exactly one element")),
        }
    }

    fn with<T>(&self, body: impl FnOnce(&mut Vec<Tensor>) -> Result<T>) -> Result<T> {
        match self.values.lock().as_mut() {
            Some(values) => body(values),
            None => Err(invalid_argument!("Stack[{}] has already been closed.", self.name)),
        }
    }
}

/// Makes a stack that lives as long as the step. A negative `max_size` means no limit.
struct NewStack {
    name: String,
    dtype: DType,
    made: AtomicU64,
}

impl NewStack {
    fn new(c: &Construction<'_>) -> Result<NewStack> {
        let name = c.attrs().str("stack_name")?;
        let name = if name.is_empty() { c.name() } else { name };
        Ok(NewStack { name: name.to_owned(), dtype: c.dtype("elem_type")?, made: AtomicU64::new(0) })
    }
}

impl Kernel for NewStack {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let max_size = if ctx.num_inputs() > 0 {
            let max_size = ctx.input(0)?;
            if !max_size.shape().is_scalar() {
                return Err(invalid_argument!("Stack size must be a scalar, but had shape: {}", max_size.shape()));
            }
            usize::try_from(max_size.scalar_value::<i32>()?).ok()
        } else {
            None
        };
        // A stack of its own for every run of the node: a loop makes one in each iteration.
        let name = format!("{}_{}_{}", self.name, ctx.node().name, self.made.fetch_add(1, Ordering::Relaxed));
        let stack =
            Stack { name: self.name.clone(), dtype: self.dtype, max_size, values: Mutex::new(Some(Vec::new())) };
        ctx.step().resources().create(CONTAINER, &name, stack)?;
        if ctx.output_type(0)? == DType::Resource {
            let handle = ctx.device().resource_handle::<Stack>(CONTAINER, &name, Vec::new());
            return ctx.set_output(0, Tensor::from_handles(Shape::scalar(), vec![handle])?);
        }
        let variable = Variable::new(name.as_str(), DType::String);
        let strings = [CONTAINER, &name].map(|text| Bytes::copy_from_slice(text.as_bytes()));
        variable.write(Tensor::from_strings(Shape::vector(2), strings.to_vec())?);
        ctx.set_output_ref(0, Arc::new(variable))
    }
}

/// Puts a value on top, and passes it on.
struct Push;

impl Kernel for Push {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let stack = Stack::of(ctx)?;
        let value = ctx.take_input(1)?;
        if value.dtype() != stack.dtype {
            return Err(invalid_argument!("Must have type {} but got {}", stack.dtype, value.dtype()));
        }
        stack.with(|values| {
            if let Some(max_size) = stack.max_size
                && values.len() >= max_size
            {
                return Err(invalid_argument!("Stack[{}] overflowed its max_size ({max_size})", stack.name));
            }
            values.push(value.clone());
            Ok(())
        })?;
        ctx.set_output(0, value)
    }
}

/// Takes the value on top.
struct Pop;

impl Kernel for Pop {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let stack = Stack::of(ctx)?;
        let empty = || invalid_argument!("Stack[{}] is empty when calling Pop().", stack.name);
        let value = stack.with(|values| values.pop().ok_or_else(empty))?;
        ctx.set_output(0, value)
    }
}

/// Drops what a stack holds and refuses further use.
struct Close;

impl Kernel for Close {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let values = Stack::of(ctx)?.values.lock().take();
        drop(values);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::testing::OpRun;
    use graphmill_runtime::{Device, IntraOpPool, NodeInfo, Step, Value};
    use graphmill_tensor::{Code, SlotType};

    /// Runs a kernel by hand, as stacks live within one step.
    fn call(kernel: &dyn Kernel, step: &Arc<Step>, inputs: Vec<Tensor>, outputs: &[DType]) -> Result<Vec<Tensor>> {
        let device = Device::cpu("/job:localhost/replica:0/task:0", "localhost", 0, 1, IntraOpPool::new(1));
        let node = NodeInfo {
            name: "node".into(),
            op: "Stack".into(),
            input_types: inputs.iter().map(|t| SlotType::value(t.dtype())).collect(),
            output_types: outputs.iter().map(|&d| SlotType::value(d)).collect(),
        };
        let mut inputs: Vec<Value> = inputs.into_iter().map(Value::Tensor).collect();
        let mut values = vec![Value::None; outputs.len()];
        kernel.compute(&mut Context::new(&node, step, &Arc::new(device), &mut inputs, &mut values))?;
        values.iter().map(Value::snapshot).collect()
    }

    fn new_stack(step: &Arc<Step>, max_size: i32) -> Tensor {
        let kernel = NewStack { name: "s".into(), dtype: DType::Int32, made: AtomicU64::new(0) };
        call(&kernel, step, vec![Tensor::scalar(max_size).unwrap()], &[DType::Resource]).unwrap().remove(0)
    }

    #[test]
    fn values_come_back_in_reverse() {
        let step = Arc::new(Step::new(1));
        let stack = new_stack(&step, -1);
        for i in 0..3i32 {
            let pushed = call(&Push, &step, vec![stack.clone(), Tensor::scalar(i).unwrap()], &[DType::Int32]).unwrap();
            assert_eq!(pushed[0].scalar_value::<i32>().unwrap(), i);
        }
        for i in (0..3i32).rev() {
            let popped = call(&Pop, &step, vec![stack.clone()], &[DType::Int32]).unwrap();
            assert_eq!(popped[0].scalar_value::<i32>().unwrap(), i);
        }
        let error = call(&Pop, &step, vec![stack.clone()], &[DType::Int32]).unwrap_err();
        assert_eq!(error.message(), "Stack[s] is empty when calling Pop().");
        call(&Close, &step, vec![stack.clone()], &[]).unwrap();
        let error = call(&Pop, &step, vec![stack], &[DType::Int32]).unwrap_err();
        assert_eq!(error.message(), "Stack[s] has already been closed.");
    }

    #[test]
    fn limits_types_and_steps_are_kept() {
        let step = Arc::new(Step::new(1));
        let stack = new_stack(&step, 1);
        let push = |step: &Arc<Step>, value: Tensor| {
            let dtype = value.dtype();
            call(&Push, step, vec![stack.clone(), value], &[dtype])
        };
        push(&step, Tensor::scalar(1i32).unwrap()).unwrap();
        let error = push(&step, Tensor::scalar(2i32).unwrap()).unwrap_err();
        assert_eq!(error.message(), "Stack[s] overflowed its max_size (1)");
        assert_eq!(
            push(&step, Tensor::scalar(2f32).unwrap()).unwrap_err().message(),
            "Must have type int32 but got float"
        );
        let other = Arc::new(Step::new(2));
        assert_eq!(push(&other, Tensor::scalar(1i32).unwrap()).unwrap_err().code(), Code::NotFound);
    }

    #[test]
    fn the_size_is_a_scalar() {
        let mut registry = Registry::new();
        register(&mut registry);
        let op = OpRun::new("StackV2").attr_type("elem_type", DType::Float);
        let error = op.run(&registry, vec![Tensor::vector(&[1i32, 2]).unwrap()]).unwrap_err();
        assert_eq!(error.message(), "Stack size must be a scalar, but had shape: [2]");
    }
}
