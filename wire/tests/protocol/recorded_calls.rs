//! Every recorded message decodes as its type, and encoding it again loses nothing.

use std::collections::BTreeSet;

use prost::Message;
use prost::bytes::Bytes;
use prost_reflect::{DescriptorPool, DynamicMessage, Value};

use crate::fixtures::{Reencode, calls, codec};
use crate::schema::pool;

/// Appends the path of each field that `message` carries and the schema does not know.
fn unknown_fields(message: &DynamicMessage, path: &str, found: &mut Vec<String>) {
    for field in message.unknown_fields() {
        found.push(format!("{path}.{}", field.number()));
    }
    for (field, value) in message.fields() {
        unknown_in_value(value, &format!("{path}.{}", field.name()), found);
    }
}

fn unknown_in_value(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Message(message) => unknown_fields(message, path, found),
        Value::List(items) => items.iter().for_each(|v| unknown_in_value(v, path, found)),
        Value::Map(items) => items.values().for_each(|v| unknown_in_value(v, path, found)),
        _ => {}
    }
}

/// Compares what a reader by the bare schema sees in `original` and in its typed re-encoding.
fn assert_lossless(pool: &DescriptorPool, name: &str, reencode: Reencode, original: &Bytes) {
    let descriptor = pool.get_message_by_name(name).expect("the schema has the message");
    let read = |bytes: Bytes| DynamicMessage::decode(descriptor.clone(), bytes).expect("the bytes are a valid message");
    let before = read(original.clone());

    let mut unknown = Vec::new();
    unknown_fields(&before, name, &mut unknown);
    assert_eq!(unknown, [""; 0], "fields that the schema does not know");

    let again = Bytes::from(reencode(original.clone()).expect("the recorded bytes decode"));
    // Servers write an empty `tensor_content` for a tensor without elements, which means the same
    // as leaving it out: encoding once drops such values.
    let before = read(before.encode_to_vec().into());
    assert!(before == read(again.clone()), "{name} changed on its way through the typed message");

    let twice = reencode(again.clone()).expect("the re-encoded bytes decode");
    assert_eq!(again, twice, "{name} encodes the same each time");
}

#[test]
fn calls_survive_a_round_trip() {
    let pool = pool();
    let mut cases = BTreeSet::new();
    let (mut count, mut responses) = (0, 0);
    for call in calls() {
        let codec = codec(&call.path);
        let request = format!("tensorflow.{}Request", codec.method);
        assert_lossless(&pool, &request, codec.request, &call.request);
        if let Some(response) = &call.response {
            let name = format!("tensorflow.{}Response", codec.method);
            assert_lossless(&pool, &name, codec.response, response);
            responses += 1;
        } else {
            assert_ne!(call.code, "OK", "a call that succeeded has a response");
        }
        count += 1;
        cases.insert(call.case);
    }
    assert_eq!(count, 460);
    assert_eq!(responses, 446);
    assert_eq!(cases.len(), 22);
}
