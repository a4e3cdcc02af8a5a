//! Messages taken apart into tensors.

use super::{Coding, DELIMITED, END_GROUP, FIXED32, FIXED64, Field, Form, START_GROUP, VARINT, message_type};
use graphmill_formats::FileSystem;
use graphmill_runtime::{Construction, Context, Kernel};
use graphmill_tensor::{Bytes, DType, Element, Result, Shape, Status, Tensor, data_loss, internal, invalid_argument};
use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor};

/// Groups within groups at most.
const DEPTH: usize = 100;

pub(super) struct Decode {
    message: MessageDescriptor,
    fields: Vec<(Field, DType)>,
    is_text: bool,
    sanitize: bool,
}

impl Decode {
    pub fn new(c: &Construction<'_>, files: &dyn FileSystem) -> Result<Decode> {
        let message = message_type(c, files)?;
        let names = c.attrs().string_list("field_names")?;
        let types = c.attrs().dtype_list("output_types")?;
        if names.len() != types.len() {
            return Err(invalid_argument!("field_names and output_types attributes must have the same length"));
        }
        let mut fields = Vec::with_capacity(names.len());
        for (name, dtype) in names.iter().zip(types) {
            let name = String::from_utf8_lossy(name);
            let field = Field::find(&message, &name, true)?;
            if !field.form.fits(dtype, field.is_enum) {
                return Err(invalid_argument!("Unexpected output type for {}.{name}: {dtype}", message.full_name()));
            }
            fields.push((field, dtype));
        }
        let is_text = match c.attrs().str("message_format")? {
            "binary" => false,
            "text" => true,
            _ => return Err(invalid_argument!("format must be one of binary or text")),
        };
        Ok(Decode { message, fields, is_text, sanitize: c.attrs().bool("sanitize")? })
    }

    /// The message in the binary form, as the library writes it.
    fn normal(&self, message: &Bytes) -> Result<Bytes> {
        let parsed = if self.is_text {
            let text = std::str::from_utf8(message).map_err(|_| data_loss!("Unable to parse text protobuf"))?;
            DynamicMessage::parse_text_format(self.message.clone(), text)
                .map_err(|_| data_loss!("Unable to parse text protobuf"))?
        } else if self.sanitize {
            DynamicMessage::decode(self.message.clone(), message.clone())
                .map_err(|_| data_loss!("Unable to parse binary protobuf"))?
        } else {
            return Ok(message.clone());
        };
        Ok(parsed.encode_to_vec().into())
    }

    /// For each field its values in a message.
    fn values(&self, message: &Bytes) -> Result<Vec<Vec<Value>>> {
        let mut values: Vec<Vec<Value>> = self.fields.iter().map(|_| Vec::new()).collect();
        let mut reader = Reader { bytes: message, at: 0 };
        while reader.at < message.len() {
            let tag = reader.varint()?;
            let (number, wire_type) = (tag >> 3, tag & 7);
            let start = reader.at;
            let mut wanted = false;
            for ((field, _), values) in self.fields.iter().zip(&mut values) {
                if u64::from(field.number) == number {
                    wanted = true;
                    reader.at = start;
                    reader.field(field, wire_type, number, values)?;
                }
            }
            if !wanted {
                reader.skip(wire_type, number, DEPTH)?;
            }
        }
        Ok(values)
    }
}

impl Kernel for Decode {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        if input.num_elements() == 0 {
            return Err(invalid_argument!("Bufs argument must contain at least one value"));
        }
        let messages = input.strings()?.iter().map(|message| self.values(&self.normal(message)?));
        let messages = messages.collect::<Result<Vec<_>>>()?;
        let with_last = |size: usize| {
            let dims: Vec<usize> = input.shape().dims().iter().copied().chain([size]).collect();
            Shape::from_dims(&dims)
        };
        let sizes: Vec<i32> = messages.iter().flatten().map(|values| values.len() as i32).collect();
        let sizes = Tensor::from_slice(with_last(self.fields.len())?, &sizes)?;
        let mut outputs = Vec::with_capacity(self.fields.len());
        for (i, (field, dtype)) in self.fields.iter().enumerate() {
            let columns: Vec<&[Value]> = messages.iter().filter_map(|m| m.get(i)).map(Vec::as_slice).collect();
            // There is room for one value even if no message has any, which then is the default.
            let size = columns.iter().map(|values| values.len()).max().unwrap_or(0).max(1);
            outputs.push(column(field, *dtype, &columns, size, with_last(size)?)?);
        }
        ctx.set_output(0, sizes)?;
        for (i, output) in outputs.into_iter().enumerate() {
            ctx.set_output(i + 1, output)?;
        }
        Ok(())
    }
}

fn column(field: &Field, dtype: DType, columns: &[&[Value]], size: usize, shape: Shape) -> Result<Tensor> {
    let default = Value::of_default(&field.default);
    if dtype == DType::String {
        let mut all = Vec::with_capacity(shape.num_elements());
        for values in columns {
            let missing = size - values.len();
            let rest = std::iter::repeat_n(&default, missing);
            all.extend(values.iter().chain(rest).map(Value::bytes));
        }
        return Tensor::from_strings(shape, all);
    }
    let bad = || internal!("a field cannot be decoded as {dtype}");
    match dtype {
        DType::Bool => fill(columns, size, shape, |value| value.or(&default).bits() != 0),
        DType::Int32 => fill(columns, size, shape, |value| value.or(&default).bits() as i32),
        DType::Int64 => fill(columns, size, shape, |value| value.or(&default).bits() as i64),
        DType::UInt32 => fill(columns, size, shape, |value| value.or(&default).bits() as u32),
        DType::UInt64 => fill(columns, size, shape, |value| value.or(&default).bits()),
        DType::Float => fill(columns, size, shape, |value| value.or(&default).real() as f32),
        DType::Double => fill(columns, size, shape, |value| value.or(&default).real()),
        _ => Err(bad()),
    }
}

/// A value, or what stands in its place.
struct Slot<'a>(Option<&'a Value>);

impl<'a> Slot<'a> {
    fn or(self, default: &'a Value) -> &'a Value {
        self.0.unwrap_or(default)
    }
}

fn fill<T: Element>(columns: &[&[Value]], size: usize, shape: Shape, value: impl Fn(Slot<'_>) -> T) -> Result<Tensor> {
    let mut all = Vec::with_capacity(shape.num_elements());
    for values in columns {
        all.extend((0..size).map(|i| value(Slot(values.get(i)))));
    }
    Tensor::from_slice(shape, &all)
}

/// A value on its way from the wire into a tensor; integers as the bits of their sign-extended form.
enum Value {
    Bits(u64),
    Real(f64),
    Bytes(Bytes),
}

impl Value {
    fn of_default(value: &prost_reflect::Value) -> Value {
        use prost_reflect::Value as Given;
        match value {
            Given::Bool(value) => Value::Bits(u64::from(*value)),
            Given::I32(value) | Given::EnumNumber(value) => Value::Bits(i64::from(*value) as u64),
            Given::I64(value) => Value::Bits(*value as u64),
            Given::U32(value) => Value::Bits(u64::from(*value)),
            Given::U64(value) => Value::Bits(*value),
            Given::F32(value) => Value::Real(f64::from(*value)),
            Given::F64(value) => Value::Real(*value),
            Given::String(value) => Value::Bytes(Bytes::from(value.clone())),
            Given::Bytes(value) => Value::Bytes(value.clone()),
            _ => Value::Bytes(Bytes::new()),
        }
    }

    fn bits(&self) -> u64 {
        if let Value::Bits(bits) = self { *bits } else { 0 }
    }

    fn real(&self) -> f64 {
        if let Value::Real(value) = self { *value } else { 0.0 }
    }

    fn bytes(&self) -> Bytes {
        if let Value::Bytes(bytes) = self { bytes.clone() } else { Bytes::new() }
    }
}

struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

fn broken() -> Status {
    data_loss!("CountFields: Failed to consume entire buffer")
}

impl Reader<'_> {
    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or_else(broken)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(data_loss!("Corrupt packed varint"))
    }

    fn take(&mut self, length: u64) -> Result<Bytes> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let end = end.filter(|&end| end <= self.bytes.len()).ok_or_else(broken)?;
        let taken = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }

    fn fixed32(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.take(4)?);
        Ok(u32::from_le_bytes(bytes))
    }

    fn fixed64(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.take(8)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn skip(&mut self, wire_type: u64, number: u64, depth: usize) -> Result<()> {
        match wire_type {
            VARINT => drop(self.varint()?),
            FIXED64 => drop(self.fixed64()?),
            FIXED32 => drop(self.fixed32()?),
            DELIMITED => {
                let length = self.varint()?;
                self.take(length)?;
            }
            START_GROUP => {
                self.group(number, depth)?;
            }
            _ => return Err(data_loss!("Failed skipping unrequested field")),
        }
        Ok(())
    }

    /// The bytes within a group, whose start has been read; its end is read too.
    fn group(&mut self, number: u64, depth: usize) -> Result<Bytes> {
        let depth = depth.checked_sub(1).ok_or_else(|| data_loss!("groups are nested too deeply"))?;
        let start = self.at;
        loop {
            let end = self.at;
            let tag = self.varint()?;
            match (tag >> 3, tag & 7) {
                (found, END_GROUP) if found == number => return Ok(self.bytes.slice(start..end)),
                (found, wire_type) => self.skip(wire_type, found, depth)?,
            }
        }
    }

    /// Reads what the wire has for a field. Values of another wire type than the field's are passed over, but packed ones are read.
    fn field(&mut self, field: &Field, wire_type: u64, number: u64, values: &mut Vec<Value>) -> Result<()> {
        let own = field.form.wire_type();
        if wire_type == DELIMITED && own != DELIMITED {
            let length = self.varint()?;
            let packed = self.take(length)?;
            if field.form == Form::Group {
                return Err(data_loss!("TYPE_GROUP encountered as packed"));
            }
            let mut packed = Reader { bytes: &packed, at: 0 };
            while packed.at < packed.bytes.len() {
                // TensorFlow takes the 32 bits of packed integers of this kind as they are, also into wider tensors.
                let unsigned = match field.form {
                    Form::Integer { wide: false, coding: Coding::Varint, .. } => {
                        Form::Integer { wide: false, signed: false, coding: Coding::Varint }
                    }
                    form => form,
                };
                let value = packed.value(unsigned, number)?;
                keep(field, values, value);
            }
            return Ok(());
        }
        if wire_type != own {
            return self.skip(wire_type, number, DEPTH);
        }
        let value = self.value(field.form, number)?;
        keep(field, values, value);
        Ok(())
    }

    fn value(&mut self, form: Form, number: u64) -> Result<Value> {
        Ok(match form {
            Form::Double => Value::Real(f64::from_bits(self.fixed64()?)),
            Form::Float => Value::Real(f64::from(f32::from_bits(self.fixed32()?))),
            Form::Bool => Value::Bits(u64::from(self.varint()? != 0)),
            Form::Group => Value::Bytes(self.group(number, DEPTH)?),
            Form::Bytes => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            Form::Integer { wide, signed, coding } => {
                let bits = match (coding, wide) {
                    (Coding::Fixed, true) => self.fixed64()?,
                    (Coding::Fixed, false) => u64::from(self.fixed32()?),
                    (Coding::Varint, _) => self.varint()?,
                    (Coding::ZigZag, _) => {
                        let coded = self.varint()?;
                        let coded = if wide { coded } else { u64::from(coded as u32) };
                        (coded >> 1) ^ (coded & 1).wrapping_neg()
                    }
                };
                Value::Bits(match (wide, signed) {
                    (true, _) => bits,
                    (false, true) => i64::from(bits as u32 as i32) as u64,
                    (false, false) => u64::from(bits as u32),
                })
            }
        })
    }
}

/// A field that is not repeated has the last value that comes.
fn keep(field: &Field, values: &mut Vec<Value>, value: Value) {
    if !field.repeated {
        values.clear();
    }
    values.push(value);
}
