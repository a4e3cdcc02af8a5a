//! Schemas of ops: arguments, attributes, defaults.

use graphmill_tensor::{DType, Result, SlotType, invalid_argument};
use graphmill_wire::tensorflow::op_def::{ArgDef as ArgProto, AttrDef as AttrProto};
use graphmill_wire::tensorflow::{AttrValue, OpDef as OpProto};
use prost::Message;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

/// Made by `data/make_op_schemas.py` from an installed TensorFlow.
static SCHEMAS: &[u8] = include_bytes!("../data/op_schemas.binpb");

/// Where each op's schema is in the table. A graph uses few of the ops, so that a schema is read when it is first asked for.
static INDEX: LazyLock<HashMap<&str, Entry>> = LazyLock::new(|| {
    let entries = fields(SCHEMAS).filter_map(|message| {
        let name = std::str::from_utf8(fields(message).next()?).ok()?;
        Some((name, Entry { message, def: OnceLock::new() }))
    });
    entries.collect()
});

struct Entry {
    message: &'static [u8],
    def: OnceLock<Option<Arc<OpDef>>>,
}

impl Entry {
    fn def(&self) -> Option<&Arc<OpDef>> {
        let read = || {
            let proto = OpProto::decode(self.message).ok()?;
            OpDef::from_proto(&proto).ok().map(Arc::new)
        };
        self.def.get_or_init(read).as_ref()
    }
}

/// The fields 1 that a message begins with: the ops of an `OpList`, the name of an `OpDef`.
fn fields(message: &'static [u8]) -> impl Iterator<Item = &'static [u8]> {
    let mut rest = message;
    std::iter::from_fn(move || {
        let (FIELD_1, mut tail) = rest.split_first().map(|(tag, tail)| (*tag, tail))? else { return None };
        let length = usize::try_from(prost::encoding::decode_varint(&mut tail).ok()?).ok()?;
        let (field, after) = tail.split_at_checked(length)?;
        rest = after;
        Some(field)
    })
}

/// The tag of a field 1 that has a length.
const FIELD_1: u8 = 0x0a;

/// The schema of a TensorFlow op.
pub fn op_def(name: &str) -> Option<&'static Arc<OpDef>> {
    INDEX.get(name)?.def()
}

/// The schemas of all ops, in no order.
pub fn op_defs() -> impl Iterator<Item = &'static Arc<OpDef>> {
    INDEX.values().filter_map(Entry::def)
}

/// The schema of an op, or the signature of a function.
#[derive(Debug)]
pub struct OpDef {
    /// The name by which nodes refer to it.
    pub name: Arc<str>,
    /// What a node takes.
    pub inputs: Vec<ArgDef>,
    /// What a node gives.
    pub outputs: Vec<ArgDef>,
    /// The attributes of a node.
    pub attrs: Vec<AttrDef>,
    /// Names of a function's control outputs.
    pub control_outputs: Vec<String>,
    /// The graph version that lacks the op, and what to use instead.
    pub deprecation: Option<(i32, String)>,
    /// Whether nodes hold or touch state, so that two equal nodes are not the same.
    pub is_stateful: bool,
    /// Whether the inputs may be swapped.
    pub is_commutative: bool,
    /// Whether this is an associative aggregation over its inputs.
    pub is_aggregate: bool,
    /// Whether an uninitialised reference may be passed in.
    pub allows_uninitialized_input: bool,
    /// Whether a node talks to other machines.
    pub is_distributed_communication: bool,
    /// Part played in v1 control flow.
    pub flow: Flow,
}

/// The part an op plays in v1 control flow; reference forms play the part of their value forms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Flow {
    /// None: the op runs once its inputs are there.
    #[default]
    Plain,
    /// `Switch`, `RefSwitch`, `_SwitchN`.
    Switch,
    /// `Merge`, `RefMerge`, `_XlaMerge`.
    Merge,
    /// `Enter`, `RefEnter`.
    Enter,
    /// `Exit`, `RefExit`.
    Exit,
    /// `NextIteration`, `RefNextIteration`.
    NextIteration,
    /// `LoopCond`.
    LoopCond,
    /// `ControlTrigger`.
    ControlTrigger,
    /// `_Send`, `_HostSend`.
    Send,
    /// `_Recv`, `_HostRecv`.
    Recv,
}

impl Flow {
    fn of(op: &str) -> Flow {
        match op {
            "Switch" | "RefSwitch" | "_SwitchN" => Flow::Switch,
            "Merge" | "RefMerge" | "_XlaMerge" => Flow::Merge,
            "Enter" | "RefEnter" => Flow::Enter,
            "Exit" | "RefExit" => Flow::Exit,
            "NextIteration" | "RefNextIteration" => Flow::NextIteration,
            "LoopCond" => Flow::LoopCond,
            "ControlTrigger" => Flow::ControlTrigger,
            "_Send" | "_HostSend" => Flow::Send,
            "_Recv" | "_HostRecv" => Flow::Recv,
            _ => Flow::Plain,
        }
    }
}

/// One argument, which stands for one slot, for a number of slots of one type, or for a list of slots.
#[derive(Clone, Debug)]
pub struct ArgDef {
    /// The name.
    pub name: Arc<str>,
    /// Where the type comes from.
    pub ty: ArgType,
    /// The `int` attribute that says how many slots there are; one if absent.
    pub number_attr: Option<Arc<str>>,
    /// Whether the slots carry references.
    pub is_ref: bool,
}

/// Where an argument's type comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgType {
    /// Always this type.
    Fixed(DType),
    /// The value of a `type` attribute.
    TypeAttr(Arc<str>),
    /// The value of a `list(type)` attribute: one slot for each element.
    TypeListAttr(Arc<str>),
}

/// One attribute.
#[derive(Clone, Debug)]
pub struct AttrDef {
    /// The name.
    pub name: Arc<str>,
    /// What values it takes.
    pub ty: AttrType,
    /// The value where a node has none.
    pub default: Option<AttrValue>,
    /// Least value of an `int`, least length of a list.
    pub minimum: Option<i64>,
    /// The list of permitted types or strings.
    pub allowed: Option<AttrValue>,
}

/// The type of an attribute: one value of a kind, or a list of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttrType {
    /// The kind of the value or of the list's elements.
    pub kind: AttrKind,
    /// Whether it is a list.
    pub is_list: bool,
}

/// Kinds of attribute values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttrKind {
    /// Bytes.
    String,
    /// `i64`.
    Int,
    /// `f32`.
    Float,
    /// Truth value.
    Bool,
    /// Element type.
    Type,
    /// Shape, perhaps only partly known.
    Shape,
    /// Constant tensor.
    Tensor,
    /// Function name with the function's attributes.
    Func,
}

impl AttrKind {
    const ALL: [AttrKind; 8] = [
        AttrKind::String,
        AttrKind::Int,
        AttrKind::Float,
        AttrKind::Bool,
        AttrKind::Type,
        AttrKind::Shape,
        AttrKind::Tensor,
        AttrKind::Func,
    ];

    /// The name as it stands in schemas.
    pub fn name(self) -> &'static str {
        match self {
            AttrKind::String => "string",
            AttrKind::Int => "int",
            AttrKind::Float => "float",
            AttrKind::Bool => "bool",
            AttrKind::Type => "type",
            AttrKind::Shape => "shape",
            AttrKind::Tensor => "tensor",
            AttrKind::Func => "func",
        }
    }
}

impl AttrType {
    /// One value of a kind.
    pub const fn one(kind: AttrKind) -> AttrType {
        AttrType { kind, is_list: false }
    }

    /// A list of values of a kind.
    pub const fn list(kind: AttrKind) -> AttrType {
        AttrType { kind, is_list: true }
    }

    fn parse(text: &str) -> Option<AttrType> {
        let inner = text.strip_prefix("list(").and_then(|t| t.strip_suffix(')'));
        let kind = AttrKind::ALL.into_iter().find(|kind| kind.name() == inner.unwrap_or(text))?;
        Some(AttrType { kind, is_list: inner.is_some() })
    }
}

impl fmt::Display for AttrType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind.name();
        if self.is_list { write!(f, "list({name})") } else { f.write_str(name) }
    }
}

impl OpDef {
    /// A schema from its message, as it stands in a function's signature.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for duplicate attributes, attributes of an unknown type, and arguments whose type is missing, given
    /// twice, or names an attribute that is not there or has another type.
    pub fn from_proto(proto: &OpProto) -> Result<OpDef> {
        let mut attrs: Vec<AttrDef> = Vec::with_capacity(proto.attr.len());
        for attr in &proto.attr {
            if attrs.iter().any(|earlier| *earlier.name == *attr.name) {
                return Err(invalid_argument!("Duplicate name: {}; in OpDef: {}", attr.name, proto.name));
            }
            attrs.push(AttrDef::from_proto(attr, &proto.name)?);
        }
        let args = |args: &[ArgProto], what| {
            args.iter().map(|arg| ArgDef::from_proto(arg, &attrs, what, &proto.name)).collect::<Result<Vec<_>>>()
        };
        Ok(OpDef {
            name: Arc::from(proto.name.as_str()),
            inputs: args(&proto.input_arg, "input")?,
            outputs: args(&proto.output_arg, "output")?,
            attrs,
            control_outputs: proto.control_output.clone(),
            deprecation: proto.deprecation.as_ref().map(|d| (d.version, d.explanation.clone())),
            is_stateful: proto.is_stateful,
            is_commutative: proto.is_commutative,
            is_aggregate: proto.is_aggregate,
            allows_uninitialized_input: proto.allows_uninitialized_input,
            is_distributed_communication: proto.is_distributed_communication,
            flow: Flow::of(&proto.name),
        })
    }

    /// The attribute of this name.
    pub fn attr(&self, name: &str) -> Option<&AttrDef> {
        self.attrs.iter().find(|attr| *attr.name == *name)
    }
}

impl AttrDef {
    fn from_proto(proto: &AttrProto, op: &str) -> Result<AttrDef> {
        let Some(ty) = AttrType::parse(&proto.r#type) else {
            return Err(invalid_argument!(
                "Unrecognized type '{}' in attr '{}'; in OpDef: {op}",
                proto.r#type,
                proto.name
            ));
        };
        Ok(AttrDef {
            name: Arc::from(proto.name.as_str()),
            ty,
            default: proto.default_value.clone(),
            minimum: proto.has_minimum.then_some(proto.minimum),
            allowed: proto.allowed_values.clone(),
        })
    }
}

impl ArgDef {
    fn from_proto(proto: &ArgProto, attrs: &[AttrDef], what: &str, op: &str) -> Result<ArgDef> {
        let place = || format!("for {what} '{}'; in OpDef: {op}", proto.name);
        let named = |name: &str, wanted: AttrType, role: &str| match attrs.iter().find(|a| *a.name == *name) {
            None => Err(invalid_argument!("No attr with name '{name}' {}", place())),
            Some(attr) if attr.ty != wanted => {
                Err(invalid_argument!("Attr '{name}' used as {role} {} has type {} != {wanted}", place(), attr.ty))
            }
            Some(attr) => Ok(attr.name.clone()),
        };
        let ty = match (proto.r#type, proto.type_attr.as_str(), proto.type_list_attr.as_str()) {
            (0, "", "") => return Err(invalid_argument!("Missing type {}", place())),
            (0, attr, "") => ArgType::TypeAttr(named(attr, AttrType::one(AttrKind::Type), "type_attr")?),
            (0, "", attr) => ArgType::TypeListAttr(named(attr, AttrType::list(AttrKind::Type), "type_list_attr")?),
            (number, "", "") => match SlotType::from_number(number) {
                Ok(SlotType { dtype, is_ref: false }) => ArgType::Fixed(dtype),
                Ok(slot) => {
                    return Err(invalid_argument!(
                        "Illegal use of ref type '{slot}'. Use 'Ref(type)' instead {}",
                        place()
                    ));
                }
                Err(error) => return Err(error.with_message(format!("{number} is not a data type {}", place()))),
            },
            _ => {
                return Err(invalid_argument!(
                    "Exactly one of type, type_attr, type_list_attr must be set {}",
                    place()
                ));
            }
        };
        let number_attr = match proto.number_attr.as_str() {
            "" => None,
            _ if matches!(ty, ArgType::TypeListAttr(_)) => {
                return Err(invalid_argument!("Can't have both number_attr and type_list_attr {}", place()));
            }
            attr => Some(named(attr, AttrType::one(AttrKind::Int), "length")?),
        };
        Ok(ArgDef { name: Arc::from(proto.name.as_str()), ty, number_attr, is_ref: proto.is_ref })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_readable() {
        assert_eq!(graphmill_wire::tensorflow::OpList::decode(SCHEMAS).unwrap().op.len(), 1910);
        assert_eq!(op_defs().count(), 1910);
    }

    #[test]
    fn internal_ops_are_known() {
        for name in ["_Send", "_Recv", "_HostSend", "_HostRecv", "_Arg", "_Retval", "_SwitchN"] {
            assert_eq!(*op_def(name).unwrap().name, *name);
        }
        assert!(op_def("NoSuchOp").is_none());
    }

    #[test]
    fn a_schema_has_its_parts() {
        let op = op_def("MatMul").unwrap();
        assert_eq!(op.inputs.len(), 2);
        assert_eq!(op.inputs[0].ty, ArgType::TypeAttr("T".into()));
        assert_eq!(op.attr("transpose_a").unwrap().ty.to_string(), "bool");
        assert!(op.attr("T").unwrap().allowed.is_some());
        let op = op_def("AddN").unwrap();
        assert!(op.is_aggregate && op.is_commutative);
        assert_eq!((op.inputs[0].number_attr.as_deref(), op.attr("N").unwrap().minimum), (Some("N"), Some(1)));
        let op = op_def("Assign").unwrap();
        assert!(op.inputs[0].is_ref && op.outputs[0].is_ref && op.allows_uninitialized_input);
        assert_eq!(op_def("IdentityN").unwrap().outputs[0].ty, ArgType::TypeListAttr("T".into()));
        assert!(op_def("VarHandleOp").unwrap().is_stateful);
        assert_eq!(op_def("RefEnter").unwrap().flow, Flow::Enter);
    }

    #[test]
    fn signatures_of_strangers_are_checked() {
        let arg = |ty, type_attr: &str, number_attr: &str| ArgProto {
            name: "x".into(),
            r#type: ty,
            type_attr: type_attr.into(),
            number_attr: number_attr.into(),
            ..Default::default()
        };
        let attr = |name: &str, ty: &str| AttrProto { name: name.into(), r#type: ty.into(), ..Default::default() };
        let op = |input: ArgProto, attr: Vec<AttrProto>| {
            OpDef::from_proto(&OpProto { name: "f".into(), input_arg: vec![input], attr, ..Default::default() })
        };
        assert!(op(arg(1, "", ""), vec![]).is_ok());
        for (input, attrs, text) in [
            (arg(0, "", ""), vec![], "Missing type for input 'x'; in OpDef: f"),
            (arg(0, "T", ""), vec![], "No attr with name 'T' for input 'x'; in OpDef: f"),
            (
                arg(0, "T", ""),
                vec![attr("T", "int")],
                "Attr 'T' used as type_attr for input 'x'; in OpDef: f has type int != type",
            ),
            (
                arg(1, "T", ""),
                vec![],
                "Exactly one of type, type_attr, type_list_attr must be set for input 'x'; in OpDef: f",
            ),
            (
                arg(101, "", ""),
                vec![],
                "Illegal use of ref type 'float_ref'. Use 'Ref(type)' instead for input 'x'; in OpDef: f",
            ),
            (arg(99, "", ""), vec![], "99 is not a data type for input 'x'; in OpDef: f"),
            (arg(1, "", "N"), vec![], "No attr with name 'N' for input 'x'; in OpDef: f"),
            (arg(1, "", ""), vec![attr("a", "list(")], "Unrecognized type 'list(' in attr 'a'; in OpDef: f"),
            (arg(1, "", ""), vec![attr("a", "int"), attr("a", "int")], "Duplicate name: a; in OpDef: f"),
        ] {
            assert_eq!(op(input, attrs).unwrap_err().message(), text);
        }
    }
}
