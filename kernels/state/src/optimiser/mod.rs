//! The optimisers: ops that move a variable, and what they remember about it, along a gradient.
//!
//! Every one of them treats each element on its own, so a rule is a function from the old values and the gradient of an element to the
//! new values. The kernels around it serve both forms of variables, whole gradients and rows.

mod adadelta;
mod adagrad;
mod adam;
mod dense;
mod ftrl;
mod gradient_descent;
mod momentum;
mod rms_prop;
mod rule;
mod sign;
mod sparse;
mod sweep;

use graphmill_runtime::Registry;

pub(crate) fn register(registry: &mut Registry) {
    gradient_descent::register(registry);
    momentum::register(registry);
    adam::register(registry);
    adagrad::register(registry);
    adadelta::register(registry);
    rms_prop::register(registry);
    ftrl::register(registry);
    sign::register(registry);
}

/// Registers the op `Apply...` and its resource form for a rule and some types.
macro_rules! dense_ops {
    ($registry:ident, $name:literal, $rule:ty, [$($T:ty)*]) => {
        $($crate::optimiser::dense::register::<$rule, $T, _, _>(
            $registry,
            concat!("Apply", $name),
            $crate::access::Form::Reference,
        );)*
        $crate::optimiser::dense_ops!($registry, resource $name, $rule, [$($T)*]);
    };
    ($registry:ident, resource $name:literal, $rule:ty, [$($T:ty)*]) => {
        $($crate::optimiser::dense::register::<$rule, $T, _, _>(
            $registry,
            concat!("ResourceApply", $name),
            $crate::access::Form::Resource,
        );)*
    };
}
use dense_ops;

/// Registers the op `SparseApply...` and its resource form for a rule and some types.
macro_rules! sparse_ops {
    ($registry:ident, $name:literal, $rule:ty, [$($T:ty)*]) => {
        $($crate::optimiser::sparse::register::<$rule, $T, _, _>(
            $registry,
            concat!("SparseApply", $name),
            $crate::access::Form::Reference,
        );)*
        $crate::optimiser::sparse_ops!($registry, resource $name, $rule, [$($T)*]);
    };
    ($registry:ident, resource $name:literal, $rule:ty, [$($T:ty)*]) => {
        $($crate::optimiser::sparse::register::<$rule, $T, _, _>(
            $registry,
            concat!("ResourceSparseApply", $name),
            $crate::access::Form::Resource,
        );)*
    };
}
use sparse_ops;
