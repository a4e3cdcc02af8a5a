//! Variables, of both kinds.

use crate::Resource;
use graphmill_tensor::{DType, Result, Shape, Tensor, failed_precondition};
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::sync::Arc;

/// The state of a variable: what a `DT_X_REF` edge refers to, and what a resource variable's handle names.
///
/// Readers share the elements. A writer that is not their only owner writes to a copy, so that a value once read never changes.
pub struct Variable {
    name: String,
    container: String,
    dtype: DType,
    declared: Option<Shape>,
    value: Mutex<Option<Tensor>>,
}

impl Variable {
    /// A variable that holds nothing yet. `name` is what errors call it.
    pub fn new(name: impl Into<String>, dtype: DType) -> Variable {
        Variable { name: name.into(), container: String::new(), dtype, declared: None, value: Mutex::new(None) }
    }

    /// A variable that a container holds, of a shape that is known before it holds anything.
    pub fn declared(name: impl Into<String>, container: impl Into<String>, dtype: DType, shape: Shape) -> Variable {
        let (name, container) = (name.into(), container.into());
        Variable { name, container, dtype, declared: Some(shape), value: Mutex::new(None) }
    }

    /// The container that holds it; empty if unknown.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The shape it was declared with, if any. What it holds may have another one.
    pub fn declared_shape(&self) -> Option<&Shape> {
        self.declared.as_ref()
    }

    /// Locks it. Who locks several variables at once does so in the order of their addresses.
    pub fn lock(&self) -> MutexGuard<'_, Option<Tensor>> {
        self.value.lock()
    }

    /// The name that errors use.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// What it holds now; a later update leaves this tensor as it is.
    pub fn read(&self) -> Option<Tensor> {
        self.value.lock().clone()
    }

    /// What it holds now.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` `Attempting to use uninitialized value NAME`.
    pub fn snapshot(&self) -> Result<Tensor> {
        match self.read() {
            Some(tensor) => Ok(tensor),
            None => Err(failed_precondition!("Attempting to use uninitialized value {}", self.name)),
        }
    }

    /// Replaces what it holds.
    pub fn write(&self, tensor: Tensor) {
        let old = self.value.lock().replace(tensor);
        drop(old);
    }

    /// Runs a change alone, with direct access to what the variable holds. On an error the closure must leave that as it was.
    ///
    /// # Errors
    /// What the closure returns.
    pub fn access<T>(&self, change: impl FnOnce(&mut Option<Tensor>) -> Result<T>) -> Result<T> {
        change(&mut self.value.lock())
    }

    /// Updates the value in place, alone: the closure gets a tensor it may write to (a copy if readers share the elements).
    /// Checks belong before the first write, as what has been written stays.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if it holds nothing yet, and what the closure returns.
    pub fn update<T>(&self, change: impl FnOnce(&mut Tensor) -> Result<T>) -> Result<T> {
        let mut value = self.value.lock();
        match value.as_mut() {
            Some(tensor) => {
                if !tensor.is_unique() {
                    *tensor = tensor.deep_copy()?;
                }
                change(tensor)
            }
            None => Err(failed_precondition!("Attempting to use uninitialized value {}", self.name)),
        }
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Variable({}: {})", self.name, self.dtype)
    }
}

/// A variable as the ops `Variable`, `VariableV2` and `TemporaryVariable` file it.
pub struct LegacyVariable(pub Arc<Variable>);

impl Resource for LegacyVariable {
    const TYPE_NAME: &'static str = "N10tensorflow9LegacyVarE";
}

/// A variable as `VarHandleOp`'s handle names it.
pub struct ResourceVariable(pub Arc<Variable>);

impl Resource for ResourceVariable {
    const TYPE_NAME: &'static str = "N10tensorflow3VarE";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_once_read_never_changes() {
        let variable = Variable::new("v", DType::Int32);
        assert_eq!(variable.snapshot().unwrap_err().message(), "Attempting to use uninitialized value v");
        variable.write(Tensor::vector(&[1i32, 2]).unwrap());
        let before = variable.snapshot().unwrap();
        variable
            .update(|t| {
                t.as_mut_slice::<i32>()?[0] = 9;
                Ok(())
            })
            .unwrap();
        assert_eq!(before.as_slice::<i32>().unwrap(), &[1, 2]);
        assert_eq!(variable.snapshot().unwrap().as_slice::<i32>().unwrap(), &[9, 2]);
    }

    #[test]
    fn a_variable_without_readers_is_updated_in_place() {
        let variable = Variable::new("v", DType::Int32);
        variable.write(Tensor::vector(&[1i32]).unwrap());
        let address = |v: &Variable| v.read().map(|t| t.as_bytes().map(<[u8]>::as_ptr));
        let first = address(&variable);
        variable
            .update(|t| {
                t.as_mut_slice::<i32>()?[0] = 2;
                Ok(())
            })
            .unwrap();
        assert_eq!(address(&variable), first);
    }
}
