//! The compiled schema against `tests/data/messages.tsv`, the list of what peers of TensorFlow 2.21
//! have compiled in.

use std::collections::BTreeSet;

use prost_reflect::{Cardinality, DescriptorPool, FieldDescriptor, Kind, Syntax};

const RECORDED: &str = include_str!("../data/messages.tsv");

/// The descriptors that the build script compiled.
pub fn pool() -> DescriptorPool {
    DescriptorPool::decode(graphmill_wire::DESCRIPTORS).expect("the build script wrote a descriptor set")
}

/// Name of a type as the recorded list writes it.
fn type_name(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(values) => format!("enum {}", values.full_name()),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

/// The line of the recorded list that a field should have.
fn field_line(field: &FieldDescriptor) -> String {
    let optional_in_proto3 = field.supports_presence() && field.containing_oneof().is_some_and(|o| o.is_synthetic());
    let label = match field.cardinality() {
        _ if field.is_map() => "map",
        Cardinality::Required => "req",
        Cardinality::Repeated => "rep",
        Cardinality::Optional if optional_in_proto3 => "p3opt",
        Cardinality::Optional => "opt",
    };
    let type_name = match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            format!("{},{}", type_name(&key.kind()), type_name(&value.kind()))
        }
        kind => type_name(&kind),
    };
    let oneof = field
        .containing_oneof()
        .filter(|oneof| !oneof.is_synthetic())
        .map(|oneof| format!("oneof={}", oneof.name()))
        .unwrap_or_default();
    let parent = field.parent_message().full_name();
    format!("{parent}\t{}\t{}\t{label}\t{type_name}\t{oneof}", field.number(), field.name())
}

/// The whole compiled schema in the form of the recorded list.
fn compiled() -> BTreeSet<String> {
    let pool = pool();
    let mut lines = BTreeSet::new();
    let own = |package: &str| !package.starts_with("google.");
    for message in pool.all_messages() {
        if !own(message.package_name()) || message.is_map_entry() {
            continue;
        }
        if message.fields().len() == 0 {
            lines.insert(format!("{}\t\t\t\t\t", message.full_name()));
        }
        lines.extend(message.fields().map(|field| field_line(&field)));
    }
    for values in pool.all_enums().filter(|values| own(values.package_name())) {
        let name = values.full_name();
        lines.extend(values.values().map(|value| format!("{name}\t{}\t{}\tenum\t\t", value.number(), value.name())));
    }
    lines
}

#[test]
fn schema_is_the_recorded_one() {
    let recorded: BTreeSet<String> = RECORDED.lines().skip(1).map(str::to_owned).collect();
    let compiled = compiled();
    let missing: Vec<_> = recorded.difference(&compiled).collect();
    let extra: Vec<_> = compiled.difference(&recorded).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:#?}\nextra: {extra:#?}");
    assert_eq!(recorded.len(), 1541);
}

#[test]
fn numeric_lists_of_proto3_are_packed() {
    for message in pool().all_messages() {
        for field in message.fields() {
            let numeric = !matches!(field.kind(), Kind::String | Kind::Bytes | Kind::Message(_));
            if field.is_list() && numeric && message.parent_file().syntax() == Syntax::Proto3 {
                assert!(field.is_packed(), "{}", field.full_name());
            }
        }
    }
}

/// Graphs have tens of thousands of attributes, nearly all of them a type or a number.
#[test]
fn attributes_are_small() {
    assert!(size_of::<graphmill_wire::tensorflow::AttrValue>() <= 64);
}
