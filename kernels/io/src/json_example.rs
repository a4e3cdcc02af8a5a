//! `DecodeJSONExample`: examples written as JSON, by the rules that protocol buffers have for it, as bytes of the message.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Bytes, Result, Tensor, invalid_argument};
use prost::encoding::{WireType, encode_key, encode_varint};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("DecodeJSONExample").kernel(|_| Ok(DecodeJson));
}

struct DecodeJson;

impl Kernel for DecodeJson {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let decode = |(i, text): (usize, &Bytes)| {
            let decoded = serde_json::from_slice::<Json>(text).map_err(|error| error.to_string()).and_then(example);
            decoded.map(Bytes::from).map_err(|error| {
                invalid_argument!("Error while parsing JSON: INVALID_ARGUMENT: {error} in element {i}")
            })
        };
        let decoded = input.strings()?.iter().enumerate().map(decode).collect::<Result<Vec<_>>>()?;
        ctx.set_output(0, Tensor::from_strings(input.shape().clone(), decoded)?)
    }
}

/// A JSON value that keeps the order of its members, which becomes the order of the features in the message.
enum Json {
    Null,
    Bool,
    Integer(i64),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Members(Vec<(String, Json)>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Json, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> std::result::Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Json, E> {
        Ok(Json::Bool)
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Json, E> {
        Ok(Json::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Json, E> {
        Ok(i64::try_from(value).map_or(Json::Number(value as f64), Json::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Json, E> {
        Ok(Json::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> std::result::Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element()? {
            list.push(value);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> std::result::Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = access.next_entry()? {
            members.push(member);
        }
        Ok(Json::Members(members))
    }
}

type Parsed<T> = std::result::Result<T, String>;

fn members(value: Json, what: &str) -> Parsed<Vec<(String, Json)>> {
    match value {
        Json::Members(members) => Ok(members.into_iter().filter(|(_, value)| !matches!(value, Json::Null)).collect()),
        _ => Err(format!("expected an object for {what}")),
    }
}

/// The one member that a message has.
fn member(value: Json, name: &str, what: &str) -> Parsed<Option<Json>> {
    let mut found = None;
    for (key, value) in members(value, what)? {
        if key != name {
            return Err(format!("no such field: '{key}' in {what}"));
        }
        if found.replace(value).is_some() {
            return Err(format!("'{key}' has already been set"));
        }
    }
    Ok(found)
}

/// Adds a field of bytes to a message.
fn put(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// The bytes of an `Example`, in the order of the text and without packing, as TensorFlow's come out.
fn example(value: Json) -> Parsed<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(features) = member(value, "features", "Example")? else { return Ok(bytes) };
    let mut entries = Vec::new();
    if let Some(map) = member(features, "feature", "Features")? {
        for (name, value) in members(map, "feature")? {
            let mut entry = Vec::new();
            put(&mut entry, 1, name.as_bytes());
            put(&mut entry, 2, &feature_of(value)?);
            put(&mut entries, 1, &entry);
        }
    }
    put(&mut bytes, 1, &entries);
    Ok(bytes)
}

/// The bytes of a `Feature`.
fn feature_of(value: Json) -> Parsed<Vec<u8>> {
    let mut kind = None;
    for (key, value) in members(value, "Feature")? {
        let mut list = Vec::new();
        let number = match key.as_str() {
            "bytesList" | "bytes_list" => {
                values(value, bytes)?.iter().for_each(|value| put(&mut list, 1, value));
                1
            }
            "floatList" | "float_list" => {
                for value in values(value, float)? {
                    encode_key(1, WireType::ThirtyTwoBit, &mut list);
                    list.extend(value.to_le_bytes());
                }
                2
            }
            "int64List" | "int64_list" => {
                for value in values(value, integer)? {
                    encode_key(1, WireType::Varint, &mut list);
                    encode_varint(value as u64, &mut list);
                }
                3
            }
            _ => return Err(format!("no such field: '{key}' in Feature")),
        };
        if kind.replace((number, list)).is_some() {
            return Err("a oneof has more than one member".to_owned());
        }
    }
    let mut bytes = Vec::new();
    if let Some((number, list)) = kind {
        put(&mut bytes, number, &list);
    }
    Ok(bytes)
}

fn values<T>(list: Json, value: impl Fn(Json) -> Parsed<T>) -> Parsed<Vec<T>> {
    match member(list, "value", "a list")? {
        None => Ok(Vec::new()),
        Some(Json::List(values)) => values.into_iter().map(value).collect(),
        Some(_) => Err("expected an array".to_owned()),
    }
}

fn bytes(value: Json) -> Parsed<Bytes> {
    let Json::Text(text) = value else { return Err("expected a string".to_owned()) };
    let alphabet = if text.contains(['-', '_']) { URL_SAFE } else { STANDARD };
    let lenient = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&alphabet, lenient).decode(text).map(Bytes::from).map_err(|_| "corrupt base64".to_owned())
}

fn float(value: Json) -> Parsed<f32> {
    let value = match value {
        Json::Integer(value) => return Ok(value as f32),
        Json::Number(value) => value,
        Json::Text(text) => match text.as_str() {
            "NaN" => return Ok(f32::NAN),
            "Infinity" => return Ok(f32::INFINITY),
            "-Infinity" => return Ok(f32::NEG_INFINITY),
            text if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                text.parse().map_err(|_| "invalid number".to_owned())?
            }
            _ => return Err("invalid number".to_owned()),
        },
        _ => return Err("expected a number or a string".to_owned()),
    };
    match value as f32 {
        narrow if narrow.is_finite() => Ok(narrow),
        _ => Err("float out of range".to_owned()),
    }
}

fn integer(value: Json) -> Parsed<i64> {
    let integral = |value: f64| {
        let fits = value.fract() == 0.0 && (-(2f64.powi(63))..2f64.powi(63)).contains(&value);
        if fits { Ok(value as i64) } else { Err("expected an integer".to_owned()) }
    };
    match value {
        Json::Integer(value) => Ok(value),
        Json::Number(value) => integral(value),
        Json::Text(text) => match text.parse() {
            Ok(value) if !text.starts_with('+') => Ok(value),
            _ => integral(text.parse().map_err(|_| "invalid number".to_owned())?),
        },
        _ => Err("expected a number or a string".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_wire::tensorflow::{BytesList, Example, Int64List, feature};
    use prost::Message;

    #[test]
    fn an_example_in_json() {
        let text = r#"{"features": {"feature": {"b": {"int64List": {"value": ["3", -4, 5.0]}}, "a": {"bytes_list": {"value": ["aGk="]}}}}}"#;
        let bytes = example(serde_json::from_str(text).unwrap()).unwrap();
        let features = Example::decode(&bytes[..]).unwrap().features.unwrap().feature;
        assert_eq!(features["b"].kind, Some(feature::Kind::Int64List(Int64List { value: vec![3, -4, 5] })));
        assert_eq!(features["a"].kind, Some(feature::Kind::BytesList(BytesList { value: vec!["hi".into()] })));
        for bad in [
            r#"{"x": 1}"#,
            r#"{"features": 1}"#,
            r#"{"features": {"feature": {"a": {"floatList": {"value": [true]}}}}}"#,
        ] {
            assert!(example(serde_json::from_str(bad).unwrap()).is_err());
        }
    }
}
