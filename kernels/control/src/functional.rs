//! Functional control flow and function calls, where they have not become nodes of the graph: in functions that call themselves.

use crate::sequence::{Next, Sequence, run};
use crate::truth::truth;
use graphmill_runtime::{AsyncContext, AsyncKernel, Call, Construction, Function, FunctionHandle, Registry, outputs};
use graphmill_tensor::{Result, Status, Tensor, internal, invalid_argument, not_found};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, NameAttrList};

pub(crate) fn register(registry: &mut Registry) {
    for op in ["PartitionedCall", "StatefulPartitionedCall"] {
        registry.op(op).async_kernel(new_call);
    }
    registry.op("SymbolicGradient").async_kernel(new_gradient);
    for op in ["If", "StatelessIf"] {
        registry.op(op).async_kernel(If::new);
    }
    for op in ["Case", "StatelessCase"] {
        registry.op(op).async_kernel(Case::new);
    }
    for op in ["While", "StatelessWhile"] {
        registry.op(op).async_kernel(While::new);
    }
    registry.op("For").async_kernel(For::new);
}

/// The executors that clients of TensorFlow may ask for; here there is one.
const EXECUTORS: [&str; 3] = ["", "DEFAULT", "SINGLE_THREADED_EXECUTOR"];

fn new_call(c: &Construction<'_>) -> Result<Call> {
    let executor = c.attrs().str("executor_type")?;
    if !EXECUTORS.contains(&executor) {
        return Err(not_found!("No executor factory registered for the given executor type: {executor}"));
    }
    Ok(Call::new(c.function("f")?))
}

/// The gradient of a function is a function too: of its arguments and the gradients of its results.
fn new_gradient(c: &Construction<'_>) -> Result<Call> {
    let f = AttrValue { value: Some(Value::Func(c.attrs().func("f")?.clone())) };
    let attr = [("f".to_owned(), f)].into();
    Ok(Call::new(c.handle(NameAttrList { name: "SymbolicGradient".to_owned(), attr })))
}

/// Calls a function with the inputs from number `first` on, as the whole work of a node.
pub(crate) fn call(function: &FunctionHandle, first: usize, mut ctx: AsyncContext) {
    let inputs = first..ctx.num_inputs();
    match function.bind().and_then(|function| Ok((function, ctx.take_tensors(inputs)?))) {
        Ok((function, args)) => {
            let step = ctx.step().clone();
            function.call(&step, args, move |outcome| {
                let outcome = outcome.and_then(|results| check_results(&ctx, results));
                ctx.complete(outcome.map(outputs));
            });
        }
        Err(error) => ctx.complete(Err(error)),
    }
}

/// Results that fit the outputs of the node.
pub(crate) fn check_results(ctx: &AsyncContext, results: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let types = &ctx.node().output_types;
    if results.len() != types.len() {
        return Err(internal!("Expect to produce {} tensors, but only get {}", types.len(), results.len()));
    }
    for (i, (result, expected)) in results.iter().zip(types).enumerate() {
        if result.dtype() != expected.dtype {
            let (expected, given) = (expected.dtype, result.dtype());
            return Err(internal!("Expect {i}-th output is of type {expected} but get {given}"));
        }
    }
    Ok(results)
}

/// Calls one of two functions.
struct If {
    then_branch: FunctionHandle,
    else_branch: FunctionHandle,
}

impl If {
    fn new(c: &Construction<'_>) -> Result<If> {
        Ok(If { then_branch: c.function("then_branch")?, else_branch: c.function("else_branch")? })
    }
}

impl AsyncKernel for If {
    fn start(&self, mut ctx: AsyncContext) {
        match ctx.with_context(|ctx| truth(ctx.input(0)?)) {
            Ok((true, _)) => call(&self.then_branch, 1, ctx),
            Ok((false, _)) => call(&self.else_branch, 1, ctx),
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

/// Calls the function with the number that the first input gives; a number out of range means the last one.
struct Case {
    branches: Vec<FunctionHandle>,
}

impl Case {
    fn new(c: &Construction<'_>) -> Result<Case> {
        Ok(Case { branches: c.functions("branches")? })
    }
}

impl AsyncKernel for Case {
    fn start(&self, mut ctx: AsyncContext) {
        let index = ctx.with_context(|ctx| {
            let index = ctx.input(0)?;
            if !index.shape().is_scalar() {
                return Err(invalid_argument!("branch_index must be scalar"));
            }
            index.scalar_value::<i32>()
        });
        let branch = index.and_then(|(index, _)| {
            let branch = usize::try_from(index).ok().and_then(|index| self.branches.get(index));
            branch.or(self.branches.last()).ok_or_else(|| invalid_argument!("Case has no branches"))
        });
        match branch {
            Ok(branch) => call(branch, 1, ctx),
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

/// Calls `body` as long as `cond` says so, each time with what it gave before.
struct While {
    cond: FunctionHandle,
    body: FunctionHandle,
}

impl While {
    fn new(c: &Construction<'_>) -> Result<While> {
        Ok(While { cond: c.function("cond")?, body: c.function("body")? })
    }
}

impl AsyncKernel for While {
    fn start(&self, mut ctx: AsyncContext) {
        let inputs = 0..ctx.num_inputs();
        let sequence = self.cond.bind().and_then(|cond| {
            let body = self.body.bind()?;
            Ok(WhileSequence { cond, body, variables: ctx.take_tensors(inputs)?, asks: false })
        });
        match sequence {
            Ok(sequence) => run(sequence, ctx),
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

struct WhileSequence {
    cond: Function,
    body: Function,
    variables: Vec<Tensor>,
    /// Whether the call under way is that of the condition.
    asks: bool,
}

impl Sequence for WhileSequence {
    fn next(&mut self, results: Option<Vec<Tensor>>) -> Result<Next> {
        match results {
            Some(results) if self.asks => {
                let [condition] = results.as_slice() else {
                    let count = results.len();
                    return Err(invalid_argument!(
                        "Expected a single scalar return value from WhileOp cond, got {count} tensors."
                    ));
                };
                let variables = std::mem::take(&mut self.variables);
                if !truth(condition)? {
                    return Ok(Next::Done(variables));
                }
                self.asks = false;
                return Ok(Next::Call(self.body.clone(), variables));
            }
            Some(results) => {
                let expected = self.body.input_types();
                if results.len() != expected.len() {
                    return Err(wrong_number("While", results.len(), expected.len()));
                }
                self.variables = results;
            }
            None => {}
        }
        self.asks = true;
        Ok(Next::Call(self.cond.clone(), self.variables.clone()))
    }
}

fn wrong_number(kind: &str, given: usize, expected: usize) -> Status {
    invalid_argument!("{kind} loop body returned {given} arguments. Expected: {expected}")
}

/// Calls `body` with the numbers of a range, each time with what it gave before.
struct For {
    body: FunctionHandle,
}

impl For {
    fn new(c: &Construction<'_>) -> Result<For> {
        Ok(For { body: c.function("body")? })
    }

    fn sequence(&self, ctx: &mut AsyncContext) -> Result<ForSequence> {
        let body = self.body.bind()?;
        let ((start, limit, delta), _) = ctx.with_context(|ctx| {
            let number = |i: usize, label: &str| {
                let number = ctx.input(i)?;
                if !number.shape().is_scalar() {
                    return Err(invalid_argument!("{label} must be a scalar, but {}", number.shape()));
                }
                number.scalar_value::<i32>()
            };
            Ok((number(0, "start")?, number(1, "limit")?, number(2, "delta")?))
        })?;
        let fits = match delta.signum() {
            1 => start <= limit,
            -1 => start >= limit,
            _ => start == limit,
        };
        if !fits {
            return Err(invalid_argument!("Invalid start/limit/delta: {start} {limit} {delta}"));
        }
        let variables = ctx.take_tensors(3..ctx.num_inputs())?;
        Ok(ForSequence { body, count: variables.len(), variables, next: Some(start), limit, delta })
    }
}

impl AsyncKernel for For {
    fn start(&self, mut ctx: AsyncContext) {
        match self.sequence(&mut ctx) {
            Ok(sequence) => run(sequence, ctx),
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

struct ForSequence {
    body: Function,
    /// How many variables there are.
    count: usize,
    variables: Vec<Tensor>,
    /// `None` behind the last number that an int32 can hold.
    next: Option<i32>,
    limit: i32,
    delta: i32,
}

impl Sequence for ForSequence {
    fn next(&mut self, results: Option<Vec<Tensor>>) -> Result<Next> {
        if let Some(results) = results {
            self.variables = results;
        }
        let ended = |next: i32| if self.delta > 0 { next >= self.limit } else { next <= self.limit };
        let variables = std::mem::take(&mut self.variables);
        let Some(number) = self.next.filter(|&next| !ended(next)) else {
            return Ok(Next::Done(variables));
        };
        if variables.len() != self.count {
            return Err(wrong_number("For", variables.len(), self.count));
        }
        self.next = number.checked_add(self.delta);
        let args = std::iter::once(Tensor::scalar(number)?).chain(variables).collect();
        Ok(Next::Call(self.body.clone(), args))
    }
}
