//! Messages put together from tensors.

use super::{Coding, DELIMITED, END_GROUP, Field, Form, START_GROUP, message_type};
use graphmill_formats::FileSystem;
use graphmill_runtime::{Construction, Context, Kernel};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, data_loss, invalid_argument};
use prost::encoding::encode_varint;

pub(super) struct Encode {
    /// Fields with their names, and the positions of their values among the inputs, by rising number.
    fields: Vec<(Field, String, usize)>,
}

impl Encode {
    pub fn new(c: &Construction<'_>, files: &dyn FileSystem) -> Result<Encode> {
        let message = message_type(c, files)?;
        let names = c.attrs().string_list("field_names")?;
        let mut fields = Vec::with_capacity(names.len());
        for (i, name) in names.iter().enumerate() {
            let name = String::from_utf8_lossy(name).into_owned();
            fields.push((Field::find(&message, &name, false)?, name, i));
        }
        fields.sort_by_key(|(field, ..)| field.number);
        Ok(Encode { fields })
    }

    /// The shape that all inputs share but for their last dimension.
    fn common_shape(&self, ctx: &Context<'_>) -> Result<Shape> {
        let mut common: Option<&[usize]> = None;
        let mut fields: Vec<_> = self.fields.iter().collect();
        fields.sort_by_key(|&&(_, _, input)| input);
        for (field, name, input) in fields {
            let values = ctx.input(input + 1)?;
            if !field.form.fits(values.dtype(), field.is_enum) {
                return Err(invalid_argument!(
                    "Incompatible type for field {name}.  Saw dtype: {} but field type is: {:?}",
                    values.dtype(),
                    field.form
                ));
            }
            let dims = values.shape().dims();
            let Some((_, outer)) = dims.split_last().filter(|_| dims.len() >= 2) else {
                return Err(invalid_argument!(
                    "Invalid shape for field {name}.  Saw shape {} but it should be at least a matrix.",
                    values.shape()
                ));
            };
            if common.is_some_and(|common| common != outer) {
                return Err(invalid_argument!("Values must match up to the last dimension"));
            }
            common = Some(outer);
        }
        Shape::from_dims(common.unwrap_or_default())
    }
}

impl Kernel for Encode {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let sizes = ctx.input(0)?;
        if ctx.num_inputs() != self.fields.len() + 1 {
            return Err(invalid_argument!("Length of inputs list must match field_names"));
        }
        let shape = self.common_shape(ctx)?;
        let expected: Vec<usize> = shape.dims().iter().copied().chain([self.fields.len()]).collect();
        if sizes.shape().dims() != expected {
            return Err(invalid_argument!(
                "sizes should be batch_size + [len(field_names)].  Saw: {} but expected: {}",
                sizes.shape(),
                Shape::from_dims(&expected)?
            ));
        }
        let sizes = sizes.as_slice::<i32>()?;
        let mut messages = Vec::with_capacity(shape.num_elements());
        for index in 0..shape.num_elements() {
            let mut message = Vec::new();
            for (field, _, input) in &self.fields {
                let values = ctx.input(input + 1)?;
                let most = values.shape().dim(values.shape().rank() - 1);
                let size = sizes.get(index * self.fields.len() + input).copied().unwrap_or(0);
                let count = usize::try_from(size).unwrap_or(0);
                if count > most {
                    return Err(invalid_argument!(
                        "Size to write must not be larger than value tensor; but saw: {size} > {most} at message {index} field \
                         {input}"
                    ));
                }
                if count > 0 {
                    write(field, values, index * most, count, &mut message)?;
                }
            }
            messages.push(Bytes::from(message));
        }
        ctx.set_output(0, Tensor::from_strings(shape, messages)?)
    }
}

fn tag(field: &Field, wire_type: u64, out: &mut Vec<u8>) {
    encode_varint(u64::from(field.number) << 3 | wire_type, out);
}

fn write(field: &Field, values: &Tensor, start: usize, count: usize, out: &mut Vec<u8>) -> Result<()> {
    let wrong = || data_loss!("Failed writing {:?} for {}", field.form, values.dtype());
    let range = start..start + count;
    if let Form::Bytes | Form::Group = field.form {
        for value in values.strings()?.get(range).ok_or_else(wrong)? {
            tag(field, field.form.wire_type(), out);
            if field.form == Form::Group {
                debug_assert_eq!(field.form.wire_type(), START_GROUP);
                out.extend_from_slice(value);
                tag(field, END_GROUP, out);
            } else {
                encode_varint(value.len() as u64, out);
                out.extend_from_slice(value);
            }
        }
        return Ok(());
    }
    let mut packed = Vec::new();
    for at in range {
        let bits = bits(values, at).ok_or_else(wrong)?;
        if field.packed {
            scalar(field.form, bits, &mut packed);
        } else {
            tag(field, field.form.wire_type(), out);
            scalar(field.form, bits, out);
        }
    }
    if field.packed {
        tag(field, DELIMITED, out);
        encode_varint(packed.len() as u64, out);
        out.extend(packed);
    }
    Ok(())
}

/// An element: integers sign-extended, floats as the bits of a double.
fn bits(values: &Tensor, at: usize) -> Option<u64> {
    Some(match values.dtype() {
        DType::Bool => u64::from(*values.as_slice::<bool>().ok()?.get(at)?),
        DType::Int32 => i64::from(*values.as_slice::<i32>().ok()?.get(at)?) as u64,
        DType::Int64 => *values.as_slice::<i64>().ok()?.get(at)? as u64,
        DType::UInt32 => u64::from(*values.as_slice::<u32>().ok()?.get(at)?),
        DType::UInt64 => *values.as_slice::<u64>().ok()?.get(at)?,
        DType::Float => f64::from(*values.as_slice::<f32>().ok()?.get(at)?).to_bits(),
        DType::Double => values.as_slice::<f64>().ok()?.get(at)?.to_bits(),
        _ => return None,
    })
}

fn scalar(form: Form, bits: u64, out: &mut Vec<u8>) {
    match form {
        Form::Double => out.extend(bits.to_le_bytes()),
        Form::Float => out.extend((f64::from_bits(bits) as f32).to_le_bytes()),
        Form::Bool => out.push(u8::from(bits != 0)),
        Form::Integer { wide, signed, coding } => {
            // A value of 32 bits is cut off, and extended anew.
            let bits = match (wide, signed) {
                (true, _) => bits,
                (false, true) => i64::from(bits as i32) as u64,
                (false, false) => u64::from(bits as u32),
            };
            match (coding, wide) {
                (Coding::Varint, _) => encode_varint(bits, out),
                (Coding::ZigZag, true) => encode_varint(bits << 1 ^ ((bits as i64) >> 63) as u64, out),
                (Coding::ZigZag, false) => {
                    let value = bits as i32;
                    encode_varint(u64::from((value << 1 ^ value >> 31) as u32), out);
                }
                (Coding::Fixed, true) => out.extend(bits.to_le_bytes()),
                (Coding::Fixed, false) => out.extend((bits as u32).to_le_bytes()),
            }
        }
        Form::Bytes | Form::Group => {}
    }
}
