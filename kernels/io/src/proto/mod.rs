//! `EncodeProto` and `DecodeProtoV2`: protocol buffers of any type whose descriptor is at hand.

mod decode;
mod encode;

use crate::inputs::path;
use graphmill_formats::FileSystem;
use graphmill_runtime::{Construction, Registry};
use graphmill_tensor::{DType, Result, invalid_argument};
use prost_reflect::{Cardinality, DescriptorPool, Kind, MessageDescriptor};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    let kept = files.clone();
    registry.op("DecodeProtoV2").kernel(move |c| decode::Decode::new(c, &*kept));
    let kept = files.clone();
    registry.op("EncodeProto").kernel(move |c| encode::Encode::new(c, &*kept));
}

/// The type that the attributes name, from the descriptors that they bring or whose file they name.
fn message_type(c: &Construction<'_>, files: &dyn FileSystem) -> Result<MessageDescriptor> {
    let source = c.attrs().string("descriptor_source")?;
    let set = match source.strip_prefix(b"bytes://") {
        Some(bytes) => bytes.to_vec(),
        None if source.is_empty() || source == b"local://" => {
            return Err(invalid_argument!(
                "There are no descriptors linked into the server; descriptor_source must name some"
            ));
        }
        None => {
            let file = files.open(path(source))?;
            file.read_range(0, file.size()?)?
        }
    };
    let pool = DescriptorPool::decode(&set[..]).map_err(|error| {
        invalid_argument!("Source does not represent serialized file descriptor set proto. {error}")
    })?;
    let name = c.attrs().str("message_type")?;
    pool.get_message_by_name(name).ok_or_else(|| invalid_argument!("No descriptor found for message type {name}"))
}

/// How the values of a field lie on the wire.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Form {
    Double,
    Float,
    /// An integer of 32 or 64 bits with this way of writing it.
    Integer {
        wide: bool,
        signed: bool,
        coding: Coding,
    },
    Bool,
    Bytes,
    Group,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Coding {
    Varint,
    ZigZag,
    Fixed,
}

/// The numbers of wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;
const START_GROUP: u64 = 3;
const END_GROUP: u64 = 4;
const FIXED32: u64 = 5;

impl Form {
    fn of(kind: &Kind) -> Form {
        let integer = |wide, signed, coding| Form::Integer { wide, signed, coding };
        match kind {
            Kind::Double => Form::Double,
            Kind::Float => Form::Float,
            Kind::Int32 | Kind::Enum(_) => integer(false, true, Coding::Varint),
            Kind::Int64 => integer(true, true, Coding::Varint),
            Kind::Uint32 => integer(false, false, Coding::Varint),
            Kind::Uint64 => integer(true, false, Coding::Varint),
            Kind::Sint32 => integer(false, true, Coding::ZigZag),
            Kind::Sint64 => integer(true, true, Coding::ZigZag),
            Kind::Fixed32 => integer(false, false, Coding::Fixed),
            Kind::Fixed64 => integer(true, false, Coding::Fixed),
            Kind::Sfixed32 => integer(false, true, Coding::Fixed),
            Kind::Sfixed64 => integer(true, true, Coding::Fixed),
            Kind::Bool => Form::Bool,
            Kind::String | Kind::Bytes | Kind::Message(_) => Form::Bytes,
        }
    }

    fn wire_type(self) -> u64 {
        match self {
            Form::Double | Form::Integer { wide: true, coding: Coding::Fixed, .. } => FIXED64,
            Form::Float | Form::Integer { coding: Coding::Fixed, .. } => FIXED32,
            Form::Integer { .. } | Form::Bool => VARINT,
            Form::Bytes => DELIMITED,
            Form::Group => START_GROUP,
        }
    }

    /// Whether a tensor of a type may hold such values.
    fn fits(self, dtype: DType, is_enum: bool) -> bool {
        match self {
            Form::Double => dtype == DType::Double,
            Form::Float => matches!(dtype, DType::Float | DType::Double),
            Form::Bool => dtype == DType::Bool,
            Form::Bytes | Form::Group => dtype == DType::String,
            Form::Integer { .. } if is_enum => dtype == DType::Int32,
            Form::Integer { wide: true, signed: true, .. } => dtype == DType::Int64,
            Form::Integer { wide: true, signed: false, .. } => dtype == DType::UInt64,
            Form::Integer { wide: false, signed: true, .. } => matches!(dtype, DType::Int32 | DType::Int64),
            Form::Integer { wide: false, signed: false, .. } => matches!(dtype, DType::UInt32 | DType::UInt64),
        }
    }
}

/// A field that an op reads or writes.
struct Field {
    number: u32,
    form: Form,
    repeated: bool,
    /// Whether the descriptor says in so many words that values are packed.
    packed: bool,
    is_enum: bool,
    default: prost_reflect::Value,
}

impl Field {
    /// A field by its name, or an extension by its full name if those count.
    fn find(message: &MessageDescriptor, name: &str, extensions: bool) -> Result<Field> {
        let unknown = || invalid_argument!("Unknown field: {name} in message type {}", message.full_name());
        if let Some(field) = message.get_field_by_name(name) {
            let options = field.field_descriptor_proto().options.as_ref();
            let form = if field.is_group() { Form::Group } else { Form::of(&field.kind()) };
            return Ok(Field {
                number: field.number(),
                form,
                repeated: field.cardinality() == Cardinality::Repeated,
                packed: options.and_then(|options| options.packed).unwrap_or(false),
                is_enum: matches!(field.kind(), Kind::Enum(_)),
                default: prost_reflect::Value::default_value(&field.kind()),
            }
            .with_default(field.default_value()));
        }
        let extension = message.extensions().find(|extension| extensions && extension.full_name() == name);
        let field = extension.ok_or_else(unknown)?;
        Ok(Field {
            number: field.number(),
            form: if field.is_group() { Form::Group } else { Form::of(&field.kind()) },
            repeated: field.cardinality() == Cardinality::Repeated,
            packed: false,
            is_enum: matches!(field.kind(), Kind::Enum(_)),
            default: prost_reflect::Value::default_value(&field.kind()),
        }
        .with_default(field.default_value()))
    }

    /// With the default that the descriptor has; one of a list is none of its elements.
    fn with_default(self, default: prost_reflect::Value) -> Field {
        if self.repeated { self } else { Field { default, ..self } }
    }
}
