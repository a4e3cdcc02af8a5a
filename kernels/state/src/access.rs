//! From an input to the variable it stands for, and locks on several variables at once.

use graphmill_runtime::{Context, ResourceVariable, Variable};
use graphmill_tensor::{
    DType, ResourceHandle, Result, Status, Tensor, failed_precondition, internal, invalid_argument,
};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::sync::Arc;

/// How an op names its variables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Form {
    /// Inputs of a reference type.
    Reference,
    /// Handles of resources.
    Resource,
}

impl Form {
    /// The variable that input `i` stands for.
    ///
    /// # Errors
    /// For a handle as [`resource_variable`]; `INTERNAL` if the input is of the other form.
    pub fn variable(self, ctx: &Context<'_>, i: usize) -> Result<Arc<Variable>> {
        match self {
            Form::Reference => ctx.input_ref(i).cloned(),
            Form::Resource => resource_variable(ctx, i),
        }
    }

    /// Passes the reference in input 0 on as output 0, where the op has such an output.
    ///
    /// # Errors
    /// `INTERNAL` if the input is not a reference.
    pub fn pass_on(self, ctx: &mut Context<'_>) -> Result<()> {
        match self {
            Form::Reference => {
                let reference = ctx.take_value(0)?;
                ctx.set_value(0, reference)
            }
            Form::Resource => Ok(()),
        }
    }
}

/// The handle in input `i`.
///
/// # Errors
/// `INVALID_ARGUMENT` if the tensor holds no handle.
pub(crate) fn handle<'c>(ctx: &'c Context<'_>, i: usize) -> Result<&'c ResourceHandle> {
    match ctx.input(i)?.handles()?.first() {
        Some(handle) => Ok(handle),
        None => Err(invalid_argument!("Empty resource handle")),
    }
}

/// The variable that the handle in input `i` names.
///
/// # Errors
/// `NOT_FOUND` if it does not exist, `INVALID_ARGUMENT` if the handle belongs to another device or names something else.
pub(crate) fn resource_variable(ctx: &Context<'_>, i: usize) -> Result<Arc<Variable>> {
    let resource = ctx.device().lookup_handle::<ResourceVariable>(handle(ctx, i)?)?;
    Ok(resource.0.clone())
}

/// Checks that a variable is of the type that the op was built for.
///
/// # Errors
/// `INVALID_ARGUMENT` naming both types if not.
pub(crate) fn check_type(variable: &Variable, dtype: DType) -> Result<()> {
    if variable.dtype() == dtype {
        return Ok(());
    }
    Err(invalid_argument!(
        "Trying to update variable {} with wrong dtype. Expected {} got {dtype}",
        variable.name(),
        variable.dtype()
    ))
}

/// Variables that are locked together.
pub(crate) struct Locked<'v>(SmallVec<[MutexGuard<'v, Option<Tensor>>; 4]>);

impl<'v> Locked<'v> {
    /// Locks the variables in the order of their addresses, so that two callers never wait for each other.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if a variable stands for two of them, `FAILED_PRECONDITION` if one holds nothing yet.
    pub fn new(variables: &'v [Arc<Variable>]) -> Result<Locked<'v>> {
        let mut order: SmallVec<[usize; 4]> = (0..variables.len()).collect();
        order.sort_unstable_by_key(|&i| Arc::as_ptr(&variables[i]));
        if let Some(pair) = order.windows(2).find(|pair| Arc::ptr_eq(&variables[pair[0]], &variables[pair[1]])) {
            return Err(invalid_argument!(
                "inputs {} and {} are the same variable {}",
                pair[0].min(pair[1]),
                pair[0].max(pair[1]),
                variables[pair[0]].name()
            ));
        }
        let mut guards: SmallVec<[Option<MutexGuard<'v, Option<Tensor>>>; 4]> = SmallVec::new();
        guards.resize_with(variables.len(), || None);
        for &i in &order {
            guards[i] = Some(variables[i].lock());
        }
        let guards: SmallVec<[_; 4]> = guards.into_iter().flatten().collect();
        match guards.iter().position(|guard| guard.is_none()) {
            Some(i) => Err(uninitialized(&variables[i])),
            None => Ok(Locked(guards)),
        }
    }

    /// What variable `i` holds.
    ///
    /// # Errors
    /// `INTERNAL` if there is no such variable.
    pub fn tensor(&self, i: usize) -> Result<&Tensor> {
        self.0.get(i).and_then(|guard| guard.as_ref()).ok_or_else(|| internal!("there is no variable {i}"))
    }

    /// What the variables hold, ready to be written to: shared elements are copied first.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there is no memory for a copy; nothing has changed then.
    pub fn tensors_mut(&mut self) -> Result<SmallVec<[&mut Tensor; 4]>> {
        let mut tensors = SmallVec::new();
        for guard in &mut self.0 {
            if let Some(tensor) = guard.as_mut() {
                make_unique(tensor)?;
                tensors.push(tensor);
            }
        }
        Ok(tensors)
    }
}

/// Copies the elements of a tensor if others share them.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` if there is no memory.
pub(crate) fn make_unique(tensor: &mut Tensor) -> Result<()> {
    if !tensor.is_unique() {
        *tensor = tensor.deep_copy()?;
    }
    Ok(())
}

/// The error of an op that needs a value where there is none.
pub(crate) fn uninitialized(variable: &Variable) -> Status {
    failed_precondition!("Attempting to use uninitialized value {}", variable.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(values: &[f32]) -> Vec<Arc<Variable>> {
        let make = |value: &f32| {
            let variable = Variable::new("v", DType::Float);
            variable.write(Tensor::scalar(*value).unwrap());
            Arc::new(variable)
        };
        values.iter().map(make).collect()
    }

    #[test]
    fn order_of_the_arguments_survives_the_order_of_locking() {
        let forward = variables(&[1.0, 2.0, 3.0]);
        let backward: Vec<_> = forward.iter().rev().cloned().collect();
        for (list, expected) in [(forward, [1.0, 2.0, 3.0]), (backward, [3.0, 2.0, 1.0])] {
            let mut locked = Locked::new(&list).unwrap();
            let held: Vec<f32> = (0..3).map(|i| locked.tensor(i).unwrap().scalar_value().unwrap()).collect();
            assert_eq!(held, expected);
            assert_eq!(locked.tensors_mut().unwrap().len(), 3);
        }
    }

    #[test]
    fn one_variable_twice_or_an_empty_one_is_an_error_and_leaves_no_lock() {
        let mut list = variables(&[1.0]);
        list.push(list[0].clone());
        assert_eq!(Locked::new(&list).err().unwrap().message(), "inputs 0 and 1 are the same variable v");
        list[1] = Arc::new(Variable::new("w", DType::Float));
        assert_eq!(Locked::new(&list).err().unwrap().message(), "Attempting to use uninitialized value w");
        assert!(list[0].read().is_some());
    }

    #[test]
    fn callers_with_the_same_variables_in_other_orders_do_not_wait_for_each_other() {
        let list = variables(&[0.0, 0.0]);
        let reversed: Vec<_> = list.iter().rev().cloned().collect();
        std::thread::scope(|scope| {
            for list in [&list, &reversed] {
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let mut locked = Locked::new(list).unwrap();
                        for tensor in locked.tensors_mut().unwrap() {
                            tensor.as_mut_slice::<f32>().unwrap()[0] += 1.0;
                        }
                    }
                });
            }
        });
        assert!(list.iter().all(|v| v.read().unwrap().scalar_value::<f32>().unwrap() == 4000.0));
    }
}
