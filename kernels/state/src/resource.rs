//! Reading and writing resource variables whole: `ReadVariableOp`, `_ReadVariablesOp`, `AssignVariableOp`, `VarIsInitializedOp`,
//! `VariableShape`.

use crate::access::{handle, resource_variable, uninitialized};
use crate::types::{OBJECTS, union};
use graphmill_runtime::{Construction, Context, Kernel, Registry, ResourceVariable, Variable};
use graphmill_tensor::{DType, Result, Tensor, failed_precondition, invalid_argument};
use std::sync::Arc;

/// Types of `AssignVariableOp` besides numbers and objects.
const SMALL: [DType; 10] = [
    DType::QInt8,
    DType::QUInt8,
    DType::QInt32,
    DType::Int4,
    DType::UInt4,
    DType::Int2,
    DType::UInt2,
    DType::Float8E5M2,
    DType::Float8E4M3FN,
    DType::Float4E2M1FN,
];

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ReadVariableOp").kernel(ReadVariable::new);
    registry.op("_ReadVariablesOp").kernel(ReadVariables::new);
    registry
        .op("AssignVariableOp")
        .types("dtype", &union(&[DType::NUMBERS, &OBJECTS, &SMALL]))
        .kernel(AssignVariable::new);
    registry.op("DisableCopyOnRead").kernel(|_| Ok(DisableCopyOnRead));
    registry.op("VarIsInitializedOp").kernel(|_| Ok(VarIsInitialized));
    registry.op("VariableShape").types("out_type", &[DType::Int32, DType::Int64]).kernel(VariableShape::new);
}

/// `DisableCopyOnRead(resource)`: makes readers share the variable's buffer until the next change, which here they always do.
struct DisableCopyOnRead;

impl Kernel for DisableCopyOnRead {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        resource_variable(ctx, 0).map(|_| ())
    }
}

/// The value of a variable; later changes leave it as it is.
struct ReadVariable {
    dtype: DType,
}

impl ReadVariable {
    fn new(c: &Construction<'_>) -> Result<ReadVariable> {
        Ok(ReadVariable { dtype: c.dtype("dtype")? })
    }
}

impl Kernel for ReadVariable {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let value = match resource_variable(ctx, 0) {
            Ok(variable) => variable.snapshot()?,
            Err(error) => {
                let handle = handle(ctx, 0)?;
                return Err(failed_precondition!(
                    "Could not find variable {}. This could mean that the variable has been deleted. In TF1, it can also mean \
                     the variable is uninitialized. Debug info: container={}, status error message={}",
                    handle.name,
                    handle.container,
                    error.message()
                ));
            }
        };
        if value.dtype() != self.dtype {
            return Err(invalid_argument!(
                "Trying to read variable with wrong dtype. Expected {} got {}",
                self.dtype,
                value.dtype()
            ));
        }
        ctx.set_output(0, value)
    }
}

/// The values of several variables.
struct ReadVariables {
    dtypes: Vec<DType>,
}

impl ReadVariables {
    fn new(c: &Construction<'_>) -> Result<ReadVariables> {
        let dtypes = c.attrs().dtype_list("dtypes")?;
        if dtypes.len() != c.num_inputs() {
            return Err(invalid_argument!(
                "Mismatched number of arguments to ReadVariablesOp ({} vs. {})",
                c.num_inputs(),
                dtypes.len()
            ));
        }
        Ok(ReadVariables { dtypes })
    }
}

impl Kernel for ReadVariables {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let values: Vec<Option<Tensor>> =
            (0..self.dtypes.len()).map(|i| resource_variable(ctx, i).ok().and_then(|v| v.read())).collect();
        if values.iter().any(Option::is_none) {
            let mut missing = Vec::new();
            for (i, _) in values.iter().enumerate().filter(|(_, value)| value.is_none()) {
                missing.push(handle(ctx, i)?.name.as_str());
            }
            return Err(failed_precondition!(
                "In ReadVariablesOp the following variables were found uninitialized: {}",
                missing.join(", ")
            ));
        }
        for (i, (value, &dtype)) in values.into_iter().flatten().zip(&self.dtypes).enumerate() {
            if value.dtype() != dtype {
                let handle = handle(ctx, i)?;
                return Err(invalid_argument!(
                    "Trying to read variable {} from Container: {} with wrong dtype. Expected {dtype} got {}",
                    handle.name,
                    handle.container,
                    value.dtype()
                ));
            }
            ctx.set_output(i, value)?;
        }
        Ok(())
    }
}

/// Sets a variable, and makes it if there is none.
struct AssignVariable {
    dtype: DType,
    validate_shape: bool,
}

impl AssignVariable {
    fn new(c: &Construction<'_>) -> Result<AssignVariable> {
        Ok(AssignVariable { dtype: c.dtype("dtype")?, validate_shape: c.attrs().bool("validate_shape")? })
    }
}

impl Kernel for AssignVariable {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        // Values are never changed while they are shared, so the variable need not copy this one.
        let value = ctx.take_input(1)?;
        if value.dtype() != self.dtype {
            return Err(invalid_argument!(
                "Variable and value dtypes don't match; respectively, {} and {}",
                self.dtype,
                value.dtype()
            ));
        }
        let handle = handle(ctx, 0)?;
        ctx.device().check_handle::<ResourceVariable>(handle)?;
        let found = ctx.device().resources().lookup_or_create(&handle.container, &handle.name, || {
            let variable = Variable::declared(&handle.name, &handle.container, self.dtype, value.shape().clone());
            Ok(ResourceVariable(Arc::new(variable)))
        })?;
        let variable = &found.0;
        if variable.dtype() != self.dtype {
            return Err(invalid_argument!(
                "Trying to assign variable with wrong dtype. Expected {} got {}",
                variable.dtype(),
                self.dtype
            ));
        }
        let mut held = variable.lock();
        if let Some(old) = held.as_ref()
            && self.validate_shape
            && old.shape() != value.shape()
        {
            return Err(invalid_argument!(
                "Trying to assign to variable with tensor with wrong shape. Expected {} got {}",
                old.shape(),
                value.shape()
            ));
        }
        let old = held.replace(value);
        drop(held);
        // Given back to the allocator while no other step waits for the lock.
        drop(old);
        Ok(())
    }
}

/// Whether a variable exists and holds a value.
struct VarIsInitialized;

impl Kernel for VarIsInitialized {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let initialized = resource_variable(ctx, 0).is_ok_and(|variable| variable.lock().is_some());
        ctx.set_scalar(0, initialized)
    }
}

/// The shape of what a variable holds.
struct VariableShape {
    out_type: DType,
}

impl VariableShape {
    fn new(c: &Construction<'_>) -> Result<VariableShape> {
        Ok(VariableShape { out_type: c.dtype("out_type")? })
    }
}

impl Kernel for VariableShape {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let variable = resource_variable(ctx, 0)?;
        let shape = match variable.lock().as_ref() {
            Some(tensor) => tensor.shape().clone(),
            None => return Err(uninitialized(&variable)),
        };
        let sizes: smallvec::SmallVec<[i64; 8]> = shape.dims_i64().collect();
        let tensor = if self.out_type == DType::Int64 {
            Tensor::vector(&sizes)?
        } else {
            let mut narrow = smallvec::SmallVec::<[i32; 8]>::new();
            for &size in &sizes {
                match i32::try_from(size) {
                    Ok(size) => narrow.push(size),
                    Err(_) => return Err(invalid_argument!("Shape output type is 32-bit  but dim size is {size}")),
                }
            }
            Tensor::vector(&narrow)?
        };
        ctx.set_output(0, tensor)
    }
}
