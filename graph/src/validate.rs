//! Checks of a node against its op's schema, and of an edge against the slots it joins.

use crate::attrs::check_type;
use crate::{ArgDef, ArgType, AttrDef, AttrKind, Attrs, Node, OpDef, SlotTypes, summary};
use graphmill_tensor::{DType, Result, SlotType, Status, invalid_argument};
use graphmill_wire::tensorflow::AttrValue;
use graphmill_wire::tensorflow::attr_value::Value;

/// Most slots that a node may have. TensorFlow's limit is 2^31, with which a short message asks for gigabytes.
const MAX_SLOTS: i64 = 1 << 20;

/// Checks that every attribute of the schema is there and has a value that the schema permits. Others are let through, as
/// TensorFlow does for graphs of newer producers.
///
/// # Errors
/// `INVALID_ARGUMENT` with TensorFlow's text.
pub(crate) fn check_attrs(op: &OpDef, attrs: &Attrs, node: &str) -> Result<()> {
    let mut missing: Vec<&str> = Vec::new();
    for attr in &op.attrs {
        match attrs.get(&attr.name) {
            None => missing.push(&attr.name),
            // Filled in when a function is instantiated.
            Some(AttrValue { value: Some(Value::Placeholder(name)) }) if !name.is_empty() => {}
            Some(value) => check_value(value, attr).map_err(|error| {
                let context = format!("\n\t; NodeDef: {{{{node {node}}}}}; {}", summary::op_def(op));
                append(error, &context)
            })?,
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    missing.sort_unstable();
    Err(invalid_argument!(
        "NodeDef missing attr{} '{}' from {}; NodeDef: {{{{node {node}}}}}",
        if missing.len() == 1 { "" } else { "s" },
        missing.join("', '"),
        summary::op_def(op)
    ))
}

fn append(error: Status, more: &str) -> Status {
    let text = format!("{}{more}", error.message());
    error.with_message(text)
}

fn check_value(value: &AttrValue, attr: &AttrDef) -> Result<()> {
    check_type(value, attr.ty).map_err(|error| append(error, &format!("\n\t for attr '{}'", attr.name)))?;
    if let Some(minimum) = attr.minimum {
        check_minimum(value, attr, minimum)?;
    }
    match &attr.allowed {
        Some(AttrValue { value: Some(Value::List(allowed)) }) => match attr.ty.kind {
            AttrKind::Type => types(value).iter().try_for_each(|ty| allowed_type(*ty, &allowed.r#type, attr)),
            AttrKind::String => strings(value).iter().try_for_each(|text| allowed_string(text, &allowed.s, attr)),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_minimum(value: &AttrValue, attr: &AttrDef, minimum: i64) -> Result<()> {
    let (what, found) = match &value.value {
        Some(Value::I(value)) => ("Value", *value),
        Some(Value::List(list)) => {
            let lengths = crate::attrs::list_lengths(list);
            let length = lengths.into_iter().find(|&(kind, _)| kind == attr.ty.kind).map_or(0, |(_, length)| length);
            ("Length", i64::try_from(length).unwrap_or(i64::MAX))
        }
        _ if attr.ty.is_list => ("Length", 0),
        _ => return Ok(()),
    };
    if found >= minimum {
        return Ok(());
    }
    Err(invalid_argument!("{what} for attr '{}' of {found} must be at least minimum {minimum}", attr.name))
}

fn types(value: &AttrValue) -> &[i32] {
    match &value.value {
        Some(Value::Type(number)) => std::slice::from_ref(number),
        Some(Value::List(list)) => &list.r#type,
        _ => &[],
    }
}

fn strings(value: &AttrValue) -> &[bytes::Bytes] {
    match &value.value {
        Some(Value::S(text)) => std::slice::from_ref(text),
        Some(Value::List(list)) => &list.s,
        _ => &[],
    }
}

fn allowed_type(number: i32, allowed: &[i32], attr: &AttrDef) -> Result<()> {
    if allowed.contains(&number) {
        return Ok(());
    }
    let name =
        |number: &i32| SlotType::from_number(*number).map_or_else(|_| number.to_string(), |slot| slot.to_string());
    Err(invalid_argument!(
        "Value for attr '{}' of {} is not in the list of allowed values: {}",
        attr.name,
        name(&number),
        allowed.iter().map(name).collect::<Vec<_>>().join(", ")
    ))
}

fn allowed_string(text: &[u8], allowed: &[bytes::Bytes], attr: &AttrDef) -> Result<()> {
    if allowed.iter().any(|a| a == text) {
        return Ok(());
    }
    let quoted = |text: &[u8]| format!("\"{}\"", String::from_utf8_lossy(text));
    Err(invalid_argument!(
        "Value for attr '{}' of {} is not in the list of allowed values: {}",
        attr.name,
        quoted(text),
        allowed.iter().map(|a| quoted(a)).collect::<Vec<_>>().join(", ")
    ))
}

/// The types of a node's inputs and outputs, from the schema and the attributes.
///
/// # Errors
/// `NOT_FOUND` or `INVALID_ARGUMENT` for attributes that are missing or have another type, and for absurd numbers of slots.
pub(crate) fn slot_types(op: &OpDef, attrs: &Attrs) -> Result<(SlotTypes, SlotTypes)> {
    let all = |args: &[ArgDef]| {
        let mut types = SlotTypes::new();
        for arg in args {
            append_types(arg, attrs, &mut types)?;
        }
        Ok::<_, Status>(types)
    };
    Ok((all(&op.inputs)?, all(&op.outputs)?))
}

/// Appends the types of one argument's slots.
fn append_types(arg: &ArgDef, attrs: &Attrs, types: &mut SlotTypes) -> Result<()> {
    let slot = |dtype: DType| SlotType { dtype, is_ref: arg.is_ref };
    let dtype = match &arg.ty {
        ArgType::Fixed(dtype) => *dtype,
        ArgType::TypeAttr(name) => attrs.dtype(name)?,
        ArgType::TypeListAttr(name) => {
            types.extend(attrs.dtype_list(name)?.into_iter().map(slot));
            return Ok(());
        }
    };
    let count = match &arg.number_attr {
        None => 1,
        Some(name) => attrs.int(name)?,
    };
    if count > MAX_SLOTS {
        return Err(invalid_argument!("Number of outputs is too big: {count}"));
    }
    let Ok(count) = usize::try_from(count) else {
        return Err(invalid_argument!("Value for number_attr() {count} < 0"));
    };
    types.extend(std::iter::repeat_n(slot(dtype), count));
    Ok(())
}

/// Checks that an edge from an output to an input joins slots that exist and agree in type. A reference may go where a value is
/// taken, but not the other way round.
///
/// # Errors
/// `INVALID_ARGUMENT` with TensorFlow's text.
pub(crate) fn check_edge(source: &Node, slot: u32, target: &Node, input: usize) -> Result<()> {
    let Some(found) = source.output_types.get(slot as usize) else {
        return Err(no_such_output(source, &slot.to_string(), &target.name));
    };
    let Some(expected) = target.input_types.get(input) else {
        return Err(invalid_argument!(
            "Input {input} of node {} does not exist. Node only has {} inputs.",
            target.name,
            target.input_types.len()
        ));
    };
    if found == expected || (found.dtype == expected.dtype && !expected.is_ref) {
        return Ok(());
    }
    Err(invalid_argument!(
        "Input {input} of node {} was passed {found} from {}:{slot} incompatible with expected {expected}.",
        target.name,
        source.name
    ))
}

/// The error for an input that names an output which its source does not have.
pub(crate) fn no_such_output(source: &Node, slot: &str, target: &str) -> Status {
    let hint = match &*source.op.name {
        "If" | "StatelessIf" | "While" | "StatelessWhile" => {
            " Try using tf.compat.v1.experimental.output_all_intermediates(True)."
        }
        _ => "",
    };
    invalid_argument!(
        "Node '{target}': Connecting to invalid output {slot} of source node {} which has {} outputs.{hint}",
        source.name,
        source.output_types.len()
    )
}

/// The error for a node with more or fewer data inputs than its op takes.
pub(crate) fn wrong_number_of_inputs(node: &Node, given: usize) -> Status {
    const MAX_NAMED: usize = 100;
    let mut expected = node.input_types.iter().take(MAX_NAMED).map(SlotType::to_string).collect::<Vec<_>>().join(", ");
    if node.input_types.len() > MAX_NAMED {
        expected.push_str(", ...");
    }
    invalid_argument!(
        "NodeDef expected inputs '{expected}' do not match {given} inputs specified; {}; NodeDef: {{{{node {}}}}}",
        summary::op_def(&node.op),
        node.name
    )
}
