//! Schemas and attribute values as TensorFlow prints them in error texts.

use crate::attrs::list_lengths;
use crate::{ArgDef, ArgType, AttrDef, AttrKind, OpDef, PartialShape};
use graphmill_tensor::SlotType;
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
use graphmill_wire::tensorflow::{AttrValue, NameAttrList, TensorProto, TensorShapeProto};

/// Longer lists are cut in the middle.
const MAX_LIST: usize = 50;
/// Longer strings are cut in the middle.
const MAX_STRING: usize = 80;
/// Deeper nesting of functions in attributes is cut off.
const MAX_DEPTH: usize = 8;

/// `Op<name=Identity; signature=input:T -> output:T; attr=T:type>`.
pub(crate) fn op_def(op: &OpDef) -> String {
    let mut text = format!("Op<name={}; signature={} -> {}", op.name, args(&op.inputs), args(&op.outputs));
    for attr in &op.attrs {
        attr_def(attr, &mut text);
    }
    for (flag, name) in [
        (op.is_commutative, "is_commutative"),
        (op.is_aggregate, "is_aggregate"),
        (op.is_stateful, "is_stateful"),
        (op.allows_uninitialized_input, "allows_uninitialized_input"),
        (op.is_distributed_communication, "is_distributed_communication"),
    ] {
        if flag {
            text.push_str(&format!("; {name}=true"));
        }
    }
    text.push('>');
    text
}

fn args(args: &[ArgDef]) -> String {
    let one = |arg: &ArgDef| {
        let number = arg.number_attr.as_ref().map(|n| format!("{n}*")).unwrap_or_default();
        let ty = match &arg.ty {
            ArgType::Fixed(dtype) => dtype.name(),
            ArgType::TypeAttr(name) => name,
            ArgType::TypeListAttr(_) => "",
        };
        let name = &arg.name;
        if arg.is_ref { format!("{name}:Ref({number}{ty})") } else { format!("{name}:{number}{ty}") }
    };
    args.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn attr_def(attr: &AttrDef, text: &mut String) {
    text.push_str(&format!("; attr={}:{}", attr.name, attr.ty));
    if let Some(value) = &attr.default {
        text.push_str(&format!(",default={}", attr_value(value)));
    }
    if let Some(minimum) = attr.minimum {
        text.push_str(&format!(",min={minimum}"));
    }
    if let Some(value) = &attr.allowed {
        text.push_str(&format!(",allowed={}", attr_value(value)));
    }
}

/// A value as it stands in error texts: `3`, `"SAME"`, `DT_FLOAT`, `[1, 2]`.
pub(crate) fn attr_value(value: &AttrValue) -> String {
    nested(value, 0)
}

fn nested(value: &AttrValue, depth: usize) -> String {
    match &value.value {
        None => "<Unknown AttrValue type>".to_owned(),
        Some(Value::S(bytes)) => string(bytes),
        Some(Value::I(value)) => value.to_string(),
        Some(Value::F(value)) => float(*value),
        Some(Value::B(value)) => value.to_string(),
        Some(Value::Type(number)) => type_name(*number),
        Some(Value::Shape(proto)) => shape(proto),
        Some(Value::Tensor(proto)) => tensor(proto),
        Some(Value::Func(value)) => func(value, depth),
        Some(Value::Placeholder(name)) => format!("${name}"),
        Some(Value::List(value)) => list(value, depth),
    }
}

fn list(list: &ListValue, depth: usize) -> String {
    // TensorFlow prints the first kind that is there.
    let Some((kind, len)) = list_lengths(list).into_iter().find(|&(_, len)| len > 0) else {
        return "[]".to_owned();
    };
    let element = |at: usize| match kind {
        AttrKind::String => list.s.get(at).map(|v| string(v)),
        AttrKind::Int => list.i.get(at).map(i64::to_string),
        AttrKind::Float => list.f.get(at).map(|&v| float(v)),
        AttrKind::Bool => list.b.get(at).map(bool::to_string),
        AttrKind::Type => list.r#type.get(at).map(|&v| type_name(v)),
        AttrKind::Shape => list.shape.get(at).map(shape),
        AttrKind::Tensor => list.tensor.get(at).map(tensor),
        AttrKind::Func => list.func.get(at).map(|v| func(v, depth)),
    };
    let mut pieces: Vec<String> = Vec::new();
    if len >= MAX_LIST {
        pieces.extend((0..5).filter_map(element));
        pieces.push("...".to_owned());
        pieces.extend((len - 5..len).filter_map(element));
    } else {
        pieces.extend((0..len).filter_map(element));
    }
    format!("[{}]", pieces.join(", "))
}

fn func(func: &NameAttrList, depth: usize) -> String {
    if depth >= MAX_DEPTH {
        return format!("{}[...]", func.name);
    }
    let entries: Vec<String> = func.attr.iter().map(|(name, v)| format!("{name}={}", nested(v, depth + 1))).collect();
    format!("{}[{}]", func.name, entries.join(", "))
}

/// `DT_FLOAT`; other numbers as they are.
pub(crate) fn type_name(number: i32) -> String {
    match SlotType::from_number(number) {
        Ok(slot) => format!("DT_{}", slot.to_string().to_uppercase()),
        Err(_) if number == 0 => "DT_INVALID".to_owned(),
        Err(_) => number.to_string(),
    }
}

fn shape(proto: &TensorShapeProto) -> String {
    PartialShape::from_proto(proto).map_or_else(|_| "<invalid>".to_owned(), |shape| shape.to_string())
}

fn tensor(proto: &TensorProto) -> String {
    let ty = SlotType::from_number(proto.dtype).map_or_else(|_| proto.dtype.to_string(), |slot| slot.to_string());
    let shape = proto.tensor_shape.as_ref().map_or_else(|| "[]".to_owned(), shape);
    format!("Tensor<type: {ty} shape: {shape}>")
}

fn string(bytes: &[u8]) -> String {
    let escaped = c_escape(bytes);
    if escaped.len() < MAX_STRING {
        return format!("\"{escaped}\"");
    }
    // Escaped text is ASCII, so that any index is a boundary.
    format!("\"{}...{}\"", &escaped[..10], &escaped[escaped.len() - 10..])
}

/// Bytes as a C string literal would spell them.
fn c_escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'"' | b'\'' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text
}

/// As `printf("%g")`: six significant digits.
fn float(value: f32) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        trim(&format!("{value:.decimals$}"))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn schemas_as_tensorflow_prints_them() {
        let text = |name| op_def(crate::op_def(name).unwrap());
        assert_eq!(text("Identity"), "Op<name=Identity; signature=input:T -> output:T; attr=T:type>");
        assert_eq!(
            text("MaxPool"),
            "Op<name=MaxPool; signature=input:T -> output:T; attr=T:type,default=DT_FLOAT,allowed=[DT_HALF, DT_BFLOAT16, \
             DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64, DT_UINT8, DT_INT16, DT_INT8, DT_UINT16, DT_QINT8]; \
             attr=ksize:list(int),min=4; attr=strides:list(int),min=4; \
             attr=padding:string,allowed=[\"SAME\", \"VALID\", \"EXPLICIT\"]; attr=explicit_paddings:list(int),default=[]; \
             attr=data_format:string,default=\"NHWC\",allowed=[\"NHWC\", \"NCHW\", \"NCHW_VECT_C\"]>"
        );
        assert!(
            text("Assign")
                .starts_with("Op<name=Assign; signature=ref:Ref(T), value:T -> output_ref:Ref(T); attr=T:type")
        );
        assert!(text("AddN").contains("signature=inputs:N*T -> sum:T;"));
        assert!(text("IdentityN").contains("signature=input: -> output:;"));
    }

    #[test]
    fn values_as_tensorflow_prints_them() {
        let text = |value| attr_value(&AttrValue { value: Some(value) });
        for (value, expected) in [
            (0.0, "0"),
            (1e-4, "0.0001"),
            (0.001, "0.001"),
            (1e-5, "1e-05"),
            (-1.5, "-1.5"),
            (1e10, "1e+10"),
            (123456.0, "123456"),
        ] {
            assert_eq!(text(Value::F(value)), expected);
        }
        assert_eq!(text(Value::F(f32::NEG_INFINITY)), "-inf");
        assert_eq!(text(Value::S(Bytes::from_static(b"a\"\x01\n"))), "\"a\\\"\\001\\n\"");
        assert_eq!(text(Value::S(Bytes::from(vec![b'x'; 100]))), "\"xxxxxxxxxx...xxxxxxxxxx\"");
        assert_eq!(text(Value::Type(101)), "DT_FLOAT_REF");
        let list = ListValue { i: (0..60).collect(), ..Default::default() };
        assert_eq!(text(Value::List(Box::new(list))), "[0, 1, 2, 3, 4, ..., 55, 56, 57, 58, 59]");
        let func = NameAttrList {
            name: "f".into(),
            attr: [("T".to_owned(), AttrValue { value: Some(Value::Type(1)) })].into(),
        };
        assert_eq!(text(Value::Func(func)), "f[T=DT_FLOAT]");
        assert_eq!(attr_value(&AttrValue { value: None }), "<Unknown AttrValue type>");
    }
}
