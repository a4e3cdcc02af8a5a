//! The operations that apply a gradient to a variable, and where their inputs are.

use graphmill_graph::op_def;

/// What an operation does to the variable that is its input 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateKind {
    /// An optimiser's update with a dense gradient.
    ApplyDense {
        /// The input with the gradient.
        gradient: usize,
    },
    /// An optimiser's update of some rows.
    ApplySparse {
        /// The input with the gradient's rows.
        values: usize,
        /// The input with their numbers.
        indices: usize,
    },
    /// An assignment, addition or subtraction of input 1.
    Assign,
    /// Changes some rows: input 1 has their numbers, input 2 what is combined with them.
    Scatter,
}

const ASSIGNMENTS: [&str; 6] =
    ["Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"];
const SCATTERS: [&str; 10] = [
    "ScatterAdd",
    "ScatterSub",
    "ScatterMul",
    "ScatterDiv",
    "ScatterMax",
    "ScatterMin",
    "ScatterUpdate",
    "ScatterNdAdd",
    "ScatterNdSub",
    "ScatterNdUpdate",
];

/// What this op does to a variable; `None` if it changes none.
pub fn update_kind(op: &str) -> Option<UpdateKind> {
    if ASSIGNMENTS.contains(&op) {
        return Some(UpdateKind::Assign);
    }
    let plain = op.strip_prefix("Resource").unwrap_or(op);
    if SCATTERS.contains(&plain) {
        return Some(UpdateKind::Scatter);
    }
    if !plain.starts_with("Apply") && !plain.starts_with("SparseApply") {
        return None;
    }
    // The schema knows better than a list where the gradient is.
    let schema = op_def(op)?;
    let position = |names: &[&str]| schema.inputs.iter().position(|arg| names.contains(&&*arg.name));
    let values = position(&["grad", "delta"])?;
    Some(match position(&["indices"]) {
        Some(indices) => UpdateKind::ApplySparse { values, indices },
        None => UpdateKind::ApplyDense { gradient: values },
    })
}

/// Whether v1 control flow is made of this op; a variable whose handle feeds one cannot be split.
pub fn is_control_flow(op: &str) -> bool {
    matches!(
        op,
        "Abort"
            | "ControlTrigger"
            | "Enter"
            | "Exit"
            | "LoopCond"
            | "Merge"
            | "NextIteration"
            | "NoOp"
            | "RefEnter"
            | "RefExit"
            | "RefMerge"
            | "RefNextIteration"
            | "RefSelect"
            | "RefSwitch"
            | "Switch"
    )
}

/// Whether nodes of this op are variables.
pub fn is_variable(op: &str) -> bool {
    matches!(op, "VarHandleOp" | "Variable" | "VariableV2" | "AutoReloadVariable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_where_the_optimisers_take_them() {
        for (names, gradient) in [
            ("ResourceApplyAdaMax ApplyAdaMax ResourceApplyCenteredRMSProp ApplyCenteredRMSProp", 8),
            ("ResourceApplyAdadelta ResourceApplyAddSign ApplyPowerSign ApplyAdadelta", 6),
            (
                "ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyFtrl ApplyFtrlV2 ResourceApplyKerasMomentum ApplyMomentum",
                3,
            ),
            ("ResourceApplyAdagradV2 ApplyAdagradV2 ResourceApplyProximalGradientDescent", 4),
            ("ResourceApplyAdam ApplyAdam", 9),
            ("ResourceApplyAdamWithAmsgrad", 10),
            ("ResourceApplyGradientDescent ApplyGradientDescent", 2),
            ("ResourceApplyProximalAdagrad", 5),
            ("ResourceApplyRMSProp ApplyRMSProp", 7),
        ] {
            for name in names.split(' ') {
                assert_eq!(update_kind(name), Some(UpdateKind::ApplyDense { gradient }), "{name}");
            }
        }
        for (names, values, indices) in [
            ("SparseApplyAdadelta ResourceSparseApplyAdadelta", 6, 7),
            ("SparseApplyAdagrad ResourceSparseApplyAdagradDA SparseApplyFtrl ResourceSparseApplyKerasMomentum", 3, 4),
            ("ResourceSparseApplyAdagradV2 SparseApplyProximalGradientDescent", 4, 5),
            ("SparseApplyCenteredRMSProp", 8, 9),
            ("SparseApplyProximalAdagrad", 5, 6),
            ("ResourceSparseApplyRMSProp", 7, 8),
        ] {
            for name in names.split(' ') {
                assert_eq!(update_kind(name), Some(UpdateKind::ApplySparse { values, indices }), "{name}");
            }
        }
        assert_eq!(update_kind("ResourceScatterAdd"), Some(UpdateKind::Scatter));
        assert_eq!(update_kind("AssignSubVariableOp"), Some(UpdateKind::Assign));
        assert_eq!(update_kind("ResourceGather"), None);
        assert_eq!(update_kind("ApplyNothing"), None);
    }
}
