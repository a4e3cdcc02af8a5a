//! The attributes of a node.

use crate::{AttrKind, AttrType, PartialShape};
use bytes::Bytes;
use graphmill_tensor::{DType, Result, SlotType, Tensor, invalid_argument, not_found};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
use graphmill_wire::tensorflow::{AttrValue, NameAttrList};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The attributes of a node: values by name, sorted. Cheap to clone: clones share the values.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Attrs(Arc<Vec<(Arc<str>, AttrValue)>>);

impl Attrs {
    /// No attributes.
    pub fn new() -> Attrs {
        Attrs::default()
    }

    pub(crate) fn from_sorted(entries: Vec<(Arc<str>, AttrValue)>) -> Attrs {
        Attrs(Arc::new(entries))
    }

    /// Attributes from their message, without a look at what an op expects.
    pub fn from_proto(proto: &BTreeMap<String, AttrValue>) -> Attrs {
        Attrs::from_sorted(proto.iter().map(|(name, value)| (Arc::from(name.as_str()), value.clone())).collect())
    }

    /// The attributes for the wire.
    pub fn to_proto(&self) -> BTreeMap<String, AttrValue> {
        self.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &AttrValue)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// The number of attributes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of this name, whatever its type.
    pub fn get(&self, name: &str) -> Option<&AttrValue> {
        let at = self.0.binary_search_by(|(n, _)| (**n).cmp(name)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Whether there is a value of this name.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Puts a value in, over an earlier one of this name. Clones keep theirs.
    pub fn set(&mut self, name: &str, value: Value) {
        let entries = Arc::make_mut(&mut self.0);
        let value = AttrValue { value: Some(value) };
        match entries.binary_search_by(|(n, _)| (**n).cmp(name)) {
            Ok(at) => {
                if let Some(entry) = entries.get_mut(at) {
                    entry.1 = value;
                }
            }
            Err(at) => entries.insert(at, (Arc::from(name), value)),
        }
    }

    /// Takes a value out.
    pub fn remove(&mut self, name: &str) -> Option<AttrValue> {
        let at = self.0.binary_search_by(|(n, _)| (**n).cmp(name)).ok()?;
        Some(Arc::make_mut(&mut self.0).remove(at).1)
    }

    fn checked(&self, name: &str, ty: AttrType) -> Result<&AttrValue> {
        let Some(value) = self.get(name) else {
            return Err(not_found!("No attr named '{name}' in NodeDef:"));
        };
        check_type(value, ty)?;
        Ok(value)
    }

    fn one(&self, name: &str, kind: AttrKind) -> Result<&Value> {
        let ty = AttrType::one(kind);
        // A value that passed the check is there.
        self.checked(name, ty)?.value.as_ref().ok_or_else(|| missing_value(ty))
    }

    fn list(&self, name: &str, kind: AttrKind) -> Result<&ListValue> {
        match &self.checked(name, AttrType::list(kind))?.value {
            Some(Value::List(list)) => Ok(list),
            _ => Ok(&EMPTY_LIST),
        }
    }
}

static EMPTY_LIST: ListValue = ListValue {
    s: Vec::new(),
    i: Vec::new(),
    f: Vec::new(),
    b: Vec::new(),
    r#type: Vec::new(),
    shape: Vec::new(),
    tensor: Vec::new(),
    func: Vec::new(),
};

/// Typed access. Each getter fails with `NOT_FOUND` if there is no such attribute, and with `INVALID_ARGUMENT` if its value is
/// of another type or malformed.
impl Attrs {
    /// An element type.
    pub fn dtype(&self, name: &str) -> Result<DType> {
        match self.one(name, AttrKind::Type)? {
            Value::Type(number) => data_type(*number),
            _ => Err(wrong_kind(name)),
        }
    }

    /// An element type as the type of a slot that carries values.
    pub fn slot_type(&self, name: &str) -> Result<SlotType> {
        self.dtype(name).map(SlotType::value)
    }

    /// An integer.
    pub fn int(&self, name: &str) -> Result<i64> {
        match self.one(name, AttrKind::Int)? {
            Value::I(value) => Ok(*value),
            _ => Err(wrong_kind(name)),
        }
    }

    /// An integer that must fit 32 bits.
    pub fn int32(&self, name: &str) -> Result<i32> {
        let value = self.int(name)?;
        i32::try_from(value).map_err(|_| invalid_argument!("Attr {name} has value {value} out of range for an int32"))
    }

    /// A truth value.
    pub fn bool(&self, name: &str) -> Result<bool> {
        match self.one(name, AttrKind::Bool)? {
            Value::B(value) => Ok(*value),
            _ => Err(wrong_kind(name)),
        }
    }

    /// A number.
    pub fn float(&self, name: &str) -> Result<f32> {
        match self.one(name, AttrKind::Float)? {
            Value::F(value) => Ok(*value),
            _ => Err(wrong_kind(name)),
        }
    }

    /// Bytes.
    pub fn string(&self, name: &str) -> Result<&[u8]> {
        match self.one(name, AttrKind::String)? {
            Value::S(value) => Ok(value),
            _ => Err(wrong_kind(name)),
        }
    }

    /// Bytes that must be text.
    pub fn str(&self, name: &str) -> Result<&str> {
        str::from_utf8(self.string(name)?).map_err(|_| invalid_argument!("Attr {name} is not valid UTF-8"))
    }

    /// A shape.
    pub fn shape(&self, name: &str) -> Result<PartialShape> {
        match self.one(name, AttrKind::Shape)? {
            Value::Shape(proto) => PartialShape::from_proto(proto),
            _ => Err(wrong_kind(name)),
        }
    }

    /// A constant.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        match self.one(name, AttrKind::Tensor)? {
            Value::Tensor(proto) => Tensor::from_proto(proto),
            _ => Err(wrong_kind(name)),
        }
    }

    /// A function.
    pub fn func(&self, name: &str) -> Result<&NameAttrList> {
        match self.one(name, AttrKind::Func)? {
            Value::Func(value) => Ok(value),
            _ => Err(wrong_kind(name)),
        }
    }

    /// A list of integers.
    pub fn int_list(&self, name: &str) -> Result<&[i64]> {
        Ok(&self.list(name, AttrKind::Int)?.i)
    }

    /// A list of element types.
    pub fn dtype_list(&self, name: &str) -> Result<Vec<DType>> {
        self.list(name, AttrKind::Type)?.r#type.iter().map(|&number| data_type(number)).collect()
    }

    /// A list of numbers.
    pub fn float_list(&self, name: &str) -> Result<&[f32]> {
        Ok(&self.list(name, AttrKind::Float)?.f)
    }

    /// A list of truth values.
    pub fn bool_list(&self, name: &str) -> Result<&[bool]> {
        Ok(&self.list(name, AttrKind::Bool)?.b)
    }

    /// A list of byte strings.
    pub fn string_list(&self, name: &str) -> Result<&[Bytes]> {
        Ok(&self.list(name, AttrKind::String)?.s)
    }

    /// A list of shapes.
    pub fn shape_list(&self, name: &str) -> Result<Vec<PartialShape>> {
        self.list(name, AttrKind::Shape)?.shape.iter().map(PartialShape::from_proto).collect()
    }

    /// A list of constants.
    pub fn tensor_list(&self, name: &str) -> Result<Vec<Tensor>> {
        self.list(name, AttrKind::Tensor)?.tensor.iter().map(Tensor::from_proto).collect()
    }

    /// A list of functions.
    pub fn func_list(&self, name: &str) -> Result<&[NameAttrList]> {
        Ok(&self.list(name, AttrKind::Func)?.func)
    }
}

fn missing_value(ty: AttrType) -> graphmill_tensor::Status {
    invalid_argument!("AttrValue missing value with expected type '{ty}'")
}

fn wrong_kind(name: &str) -> graphmill_tensor::Status {
    invalid_argument!("Attr {name} is of another type")
}

fn data_type(number: i32) -> Result<DType> {
    DType::from_number(number).ok_or_else(|| invalid_argument!("AttrValue has invalid DataType enum: {number}"))
}

/// Checks that a value is of a type, by TensorFlow's rules: a list may be empty whatever it is a list of, and an absent value is
/// an empty list.
pub(crate) fn check_type(value: &AttrValue, ty: AttrType) -> Result<()> {
    let found = |found: AttrType| {
        if found == ty {
            Ok(())
        } else {
            Err(invalid_argument!("AttrValue had value with type '{found}' when '{ty}' expected"))
        }
    };
    let one = |kind| found(AttrType::one(kind));
    match &value.value {
        None if ty.is_list => Ok(()),
        None => Err(missing_value(ty)),
        Some(Value::Placeholder(_)) => Err(invalid_argument!("AttrValue had value with unexpected type 'placeholder'")),
        Some(Value::S(_)) => one(AttrKind::String),
        Some(Value::I(_)) => one(AttrKind::Int),
        Some(Value::F(_)) => one(AttrKind::Float),
        Some(Value::B(_)) => one(AttrKind::Bool),
        Some(Value::Shape(_)) => one(AttrKind::Shape),
        Some(Value::Tensor(_)) => one(AttrKind::Tensor),
        Some(Value::Func(_)) => one(AttrKind::Func),
        Some(Value::Type(number)) => {
            one(AttrKind::Type)?;
            check_data_type(*number, "AttrValue has invalid DataType")
        }
        Some(Value::List(list)) => {
            for (kind, len) in list_lengths(list) {
                if len > 0 {
                    found(AttrType::list(kind))?;
                }
            }
            if !ty.is_list {
                return Err(missing_value(ty));
            }
            for &number in &list.r#type {
                check_data_type(number, "AttrValue contains invalid DataType")?;
            }
            Ok(())
        }
    }
}

/// How many elements of each kind a list has; in a well-formed one all are of one kind.
pub(crate) fn list_lengths(list: &ListValue) -> [(AttrKind, usize); 8] {
    [
        (AttrKind::String, list.s.len()),
        (AttrKind::Int, list.i.len()),
        (AttrKind::Float, list.f.len()),
        (AttrKind::Bool, list.b.len()),
        (AttrKind::Type, list.r#type.len()),
        (AttrKind::Shape, list.shape.len()),
        (AttrKind::Tensor, list.tensor.len()),
        (AttrKind::Func, list.func.len()),
    ]
}

fn check_data_type(number: i32, invalid: &str) -> Result<()> {
    if number == 0 {
        return Err(invalid_argument!("{invalid}"));
    }
    match SlotType::from_number(number) {
        Ok(slot) if slot.is_ref => Err(invalid_argument!("AttrValue must not have reference type value of {slot}")),
        Ok(_) => Ok(()),
        Err(_) => Err(invalid_argument!("AttrValue has invalid DataType enum: {number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;
    use graphmill_wire::tensorflow::{TensorProto, TensorShapeProto};

    fn attrs(value: Value) -> Attrs {
        let mut attrs = Attrs::new();
        attrs.set("a", value);
        attrs
    }

    fn list(list: ListValue) -> Attrs {
        attrs(Value::List(Box::new(list)))
    }

    #[test]
    fn values_of_each_type() {
        assert_eq!(attrs(Value::Type(1)).dtype("a").unwrap(), DType::Float);
        assert_eq!(attrs(Value::Type(9)).slot_type("a").unwrap(), SlotType::value(DType::Int64));
        assert_eq!(attrs(Value::I(-3)).int("a").unwrap(), -3);
        assert!(attrs(Value::B(true)).bool("a").unwrap());
        assert_eq!(attrs(Value::F(1.5)).float("a").unwrap(), 1.5);
        assert_eq!(attrs(Value::S(Bytes::from("x"))).string("a").unwrap(), b"x");
        assert_eq!(attrs(Value::S(Bytes::from("x"))).str("a").unwrap(), "x");
        assert_eq!(attrs(Value::Shape(TensorShapeProto::default())).shape("a").unwrap().rank(), Some(0));
        let tensor = TensorProto { dtype: 3, int_val: vec![7], ..Default::default() };
        let tensor = attrs(Value::Tensor(Box::new(tensor))).tensor("a").unwrap();
        assert_eq!(tensor.scalar_value::<i32>().unwrap(), 7);
        let func = NameAttrList { name: "f".into(), ..Default::default() };
        assert_eq!(attrs(Value::Func(func.clone())).func("a").unwrap(), &func);
        assert_eq!(list(ListValue { i: vec![1, 2], ..Default::default() }).int_list("a").unwrap(), [1, 2]);
        assert_eq!(list(ListValue { r#type: vec![1], ..Default::default() }).dtype_list("a").unwrap(), [DType::Float]);
        assert_eq!(list(ListValue { f: vec![0.5], ..Default::default() }).float_list("a").unwrap(), [0.5]);
        assert_eq!(list(ListValue { b: vec![true], ..Default::default() }).bool_list("a").unwrap(), [true]);
        assert_eq!(
            list(ListValue { s: vec![Bytes::from("y")], ..Default::default() }).string_list("a").unwrap(),
            ["y"]
        );
        let shapes = list(ListValue { shape: vec![TensorShapeProto::default()], ..Default::default() });
        assert_eq!(shapes.shape_list("a").unwrap().len(), 1);
        let tensors = ListValue { tensor: vec![TensorProto { dtype: 1, ..Default::default() }], ..Default::default() };
        assert_eq!(list(tensors).tensor_list("a").unwrap().len(), 1);
        assert_eq!(list(ListValue { func: vec![func], ..Default::default() }).func_list("a").unwrap().len(), 1);
        assert!(list(ListValue::default()).int_list("a").unwrap().is_empty());
        assert!(list(ListValue::default()).func_list("a").unwrap().is_empty());
    }

    #[test]
    fn missing_and_wrong_values() {
        let error = Attrs::new().dtype("T").unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::NotFound, "No attr named 'T' in NodeDef:"));
        for (attrs, text) in [
            (attrs(Value::I(1)), "AttrValue had value with type 'int' when 'type' expected"),
            (
                list(ListValue { s: vec![Bytes::new()], ..Default::default() }),
                "AttrValue had value with type 'list(string)' when 'type' expected",
            ),
            (list(ListValue::default()), "AttrValue missing value with expected type 'type'"),
            (attrs(Value::Placeholder("p".into())), "AttrValue had value with unexpected type 'placeholder'"),
            (attrs(Value::Type(0)), "AttrValue has invalid DataType"),
            (attrs(Value::Type(99)), "AttrValue has invalid DataType enum: 99"),
            (attrs(Value::Type(101)), "AttrValue must not have reference type value of float_ref"),
            (
                Attrs::from_sorted(vec![("a".into(), AttrValue::default())]),
                "AttrValue missing value with expected type 'type'",
            ),
        ] {
            let error = attrs.dtype("a").unwrap_err();
            assert_eq!((error.code(), error.message()), (Code::InvalidArgument, text));
        }
        let error = attrs(Value::I(1)).int_list("a").unwrap_err();
        assert_eq!(error.message(), "AttrValue had value with type 'int' when 'list(int)' expected");
        let error = list(ListValue { r#type: vec![1, 0], ..Default::default() }).dtype_list("a").unwrap_err();
        assert_eq!(error.message(), "AttrValue contains invalid DataType");
        let error = attrs(Value::I(1 << 31)).int32("a").unwrap_err();
        assert_eq!(error.message(), "Attr a has value 2147483648 out of range for an int32");
        assert!(attrs(Value::S(Bytes::from_static(b"\xff"))).str("a").is_err());
    }

    #[test]
    fn values_are_replaced_and_removed() {
        let mut attrs = Attrs::new();
        for name in ["b", "a", "c"] {
            attrs.set(name, Value::I(1));
        }
        let copy = attrs.clone();
        attrs.set("b", Value::I(2));
        assert_eq!(attrs.int("b").unwrap(), 2);
        assert_eq!(copy.int("b").unwrap(), 1);
        assert!(attrs.remove("a").is_some() && !attrs.has("a") && attrs.remove("a").is_none());
        assert_eq!(attrs.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(Attrs::from_proto(&copy.to_proto()), copy);
    }
}
