//! Parts of nodes that call functions.

use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
use graphmill_wire::tensorflow::op_def::ArgDef;
use graphmill_wire::tensorflow::{AttrValue, NodeDef};
use std::collections::BTreeMap;

/// The type that a signature declares for an argument, given the call's attributes.
pub(crate) fn declared(arg: Option<&ArgDef>, given: &BTreeMap<String, AttrValue>) -> Option<i32> {
    let arg = arg?;
    if arg.r#type != 0 {
        return Some(arg.r#type);
    }
    match given.get(&arg.type_attr)?.value.as_ref()? {
        Value::Type(dtype) => Some(*dtype),
        _ => None,
    }
}

/// A list of types.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is none.
pub(crate) fn type_list(def: &NodeDef, attr: &str) -> Result<Vec<i32>> {
    match def.attr.get(attr).and_then(|a| a.value.as_ref()) {
        Some(Value::List(list)) => Ok(ListValue::clone(list).r#type),
        _ => Err(invalid_argument!("Op {} has no list of types '{attr}'", def.op)),
    }
}

/// The data inputs, and the control inputs.
pub(crate) fn split_inputs(def: &NodeDef) -> (Vec<String>, Vec<String>) {
    def.input.iter().cloned().partition(|input| !input.starts_with('^'))
}

/// The control input that waits for the node of a data input.
pub(crate) fn control_of(input: &str) -> String {
    format!("^{}", input.split(':').next().unwrap_or(input))
}
