//! Reference variables: `Variable`, `VariableV2`, `TemporaryVariable`, `DestroyTemporaryVariable`, `IsVariableInitialized`.

use crate::naming::Place;
use graphmill_runtime::{Construction, Context, Kernel, LegacyVariable, Registry, Resource, Variable};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Variable").kernel(VariableOp::new);
    registry.op("VariableV2").kernel(VariableOp::new);
    registry.op("TemporaryVariable").kernel(TemporaryVariable::new);
    registry.op("DestroyTemporaryVariable").kernel(DestroyTemporaryVariable::new);
    registry.op("IsVariableInitialized").kernel(|_| Ok(IsVariableInitialized));
}

/// The shape in attribute `shape`. As in TensorFlow, a shape of unknown rank declares a scalar.
fn declared_shape(c: &Construction<'_>) -> Result<Shape> {
    let shape = c.attrs().shape("shape")?;
    if shape.rank().is_none() {
        return Ok(Shape::scalar());
    }
    shape.to_shape().ok_or_else(|| invalid_argument!("Shape {shape} is not fully defined"))
}

/// Gives out a reference to the variable of this container and name, and makes it when it is first asked for.
struct VariableOp {
    place: Place,
    dtype: DType,
    shape: Shape,
}

impl VariableOp {
    fn new(c: &Construction<'_>) -> Result<VariableOp> {
        Ok(VariableOp { place: Place::checked(c)?, dtype: c.dtype("dtype")?, shape: declared_shape(c)? })
    }

    fn create(&self) -> Result<LegacyVariable> {
        let Place { container, name } = &self.place;
        let variable = Variable::declared(name, container, self.dtype, self.shape.clone());
        if self.shape.num_elements() == 0 {
            // There is nothing to initialise.
            variable.write(Tensor::zeros(self.dtype, self.shape.clone())?);
        }
        Ok(LegacyVariable(Arc::new(variable)))
    }
}

impl Kernel for VariableOp {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let Place { container, name } = &self.place;
        let found = ctx.device().resources().lookup_or_create(container, name, || self.create())?;
        let variable = found.0.clone();
        if variable.dtype() != self.dtype {
            return Err(invalid_argument!(
                "Variable {name} in container {container} already exists with dtype {}, but node {} declares it with dtype {}. \
                 Use another name or container, or clear the container with Session.reset.",
                variable.dtype(),
                ctx.node().name,
                self.dtype
            ));
        }
        ctx.set_output_ref(0, variable)
    }
}

/// A variable that lives for a step.
struct Temporary(Arc<Variable>);

impl Resource for Temporary {
    const TYPE_NAME: &'static str = "N10tensorflow19TemporaryVariableOp6TmpVarE";
}

/// Where a step keeps what it makes.
fn step_container(ctx: &Context<'_>) -> String {
    format!("__per_step_{}", ctx.step().id())
}

/// Makes a variable that lives until `DestroyTemporaryVariable` or the end of the step.
struct TemporaryVariable {
    name: String,
    dtype: DType,
    shape: Shape,
}

impl TemporaryVariable {
    fn new(c: &Construction<'_>) -> Result<TemporaryVariable> {
        let name = c.attrs().str("var_name")?;
        let name = if name.is_empty() { c.name() } else { name }.to_owned();
        Ok(TemporaryVariable { name, dtype: c.dtype("dtype")?, shape: declared_shape(c)? })
    }
}

impl Kernel for TemporaryVariable {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let container = step_container(ctx);
        let variable = Variable::declared(&self.name, &container, self.dtype, self.shape.clone());
        variable.write(Tensor::zeros(self.dtype, self.shape.clone())?);
        let temporary = Temporary(Arc::new(variable));
        let temporary = ctx.step().resources().create(&container, &self.name, temporary)?;
        ctx.set_output_ref(0, temporary.0.clone())
    }
}

/// Ends a temporary variable and gives out its last value.
struct DestroyTemporaryVariable {
    name: String,
}

impl DestroyTemporaryVariable {
    fn new(c: &Construction<'_>) -> Result<DestroyTemporaryVariable> {
        match c.attrs().str("var_name")? {
            "" => Err(invalid_argument!("Missing var_name attribute")),
            name => Ok(DestroyTemporaryVariable { name: name.to_owned() }),
        }
    }
}

impl Kernel for DestroyTemporaryVariable {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let value = ctx.input_ref(0)?.snapshot()?;
        ctx.step().resources().delete::<Temporary>(&step_container(ctx), &self.name)?;
        ctx.set_output(0, value)
    }
}

/// Whether a variable holds anything.
struct IsVariableInitialized;

impl Kernel for IsVariableInitialized {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let initialized = ctx.input_ref(0)?.lock().is_some();
        ctx.set_scalar(0, initialized)
    }
}
