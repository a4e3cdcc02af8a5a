//! Tensors as text: for people, shortened where they are large, and as JSON, whole.

use anyhow::{Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use graphmill_client::{DType, Element, Tensor};
use graphmill_tensor::{Bytes, Complex32, Complex64, dispatch};
use serde_json::json;
use std::fmt::Debug;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// A tensor with more elements is shortened for people.
const MANY: usize = 1000;
/// How many items a shortened axis shows at each end.
const EDGE: usize = 3;

/// Prints tensors for people.
///
/// # Errors
/// If one is a handle, or the output cannot be written.
pub fn pretty(fetches: &[(&str, &Tensor)]) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for (name, tensor) in fetches {
        let plain = plain(tensor)?;
        let elements = elements(&plain)?;
        writeln!(out, "{name}  {} {}", tensor.dtype(), tensor.shape())?;
        let edge = if tensor.num_elements() > MANY { EDGE } else { usize::MAX };
        let mut nested = Nested { out: &mut out, dims: tensor.shape().dims(), edge, people: true };
        nested.write(0, 0, &|out, index| out.write_all(elements.people(index).as_bytes()))?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

/// Prints a JSON object with a member for each tensor.
///
/// # Errors
/// As [`pretty`].
pub fn json(fetches: &[(&str, &Tensor)]) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    write!(out, "{{")?;
    for (at, (name, tensor)) in fetches.iter().enumerate() {
        let plain = plain(tensor)?;
        let elements = elements(&plain)?;
        let separator = if at == 0 { "" } else { ", " };
        let dims = tensor.shape().dims();
        write!(
            out,
            "{separator}{}: {{\"dtype\": \"{}\", \"shape\": {}, \"values\": ",
            json!(name),
            tensor.dtype(),
            json!(dims)
        )?;
        let mut nested = Nested { out: &mut out, dims, edge: usize::MAX, people: false };
        nested.write(0, 0, &|out, index| out.write_all(elements.json(index).as_bytes()))?;
        write!(out, "}}")?;
    }
    writeln!(out, "}}")?;
    Ok(out.flush()?)
}

/// Prints which files hold the tensors.
///
/// # Errors
/// If the output cannot be written.
pub fn files(fetches: &[(&str, &Tensor)], files: &[PathBuf], json: bool) -> Result<()> {
    let mut out = io::stdout().lock();
    let all = fetches.iter().zip(files);
    if json {
        let entry = |((name, tensor), file): (&(&str, &Tensor), &PathBuf)| {
            let file = file.to_string_lossy();
            let value = json!({ "dtype": tensor.dtype().name(), "shape": tensor.shape().dims(), "file": file });
            ((*name).to_owned(), value)
        };
        let object: serde_json::Map<String, serde_json::Value> = all.map(entry).collect();
        writeln!(out, "{}", serde_json::Value::from(object))?;
        return Ok(());
    }
    for ((name, tensor), file) in all {
        writeln!(out, "{name}  {} {}  {}", tensor.dtype(), tensor.shape(), file.display())?;
    }
    Ok(())
}

/// Writes elements in nested brackets.
struct Nested<'a, W> {
    out: &'a mut W,
    dims: &'a [usize],
    /// How many items at each end of an axis are written.
    edge: usize,
    /// Whether rows get lines of their own.
    people: bool,
}

impl<W: Write> Nested<'_, W> {
    /// Writes the block that begins at `start`, and yields where the next one begins.
    fn write(
        &mut self,
        axis: usize,
        start: usize,
        element: &impl Fn(&mut W, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(&dim) = self.dims.get(axis) else { return element(self.out, start) };
        let stride: usize = self.dims[axis + 1..].iter().product();
        self.out.write_all(b"[")?;
        let mut index = 0;
        while index < dim {
            if index > 0 {
                self.separate(axis)?;
            }
            let left_out = dim.saturating_sub(self.edge.saturating_mul(2));
            if left_out > 0 && index == self.edge {
                self.out.write_all(b"...")?;
                index += left_out;
                continue;
            }
            self.write(axis + 1, start + index * stride, element)?;
            index += 1;
        }
        self.out.write_all(b"]")
    }

    fn separate(&mut self, axis: usize) -> io::Result<()> {
        // Innermost items share a line; blocks of more axes are further apart.
        let inner = self.dims.len() - axis - 1;
        if inner == 0 || !self.people {
            return self.out.write_all(b", ");
        }
        self.out.write_all(b",")?;
        (0..inner).try_for_each(|_| self.out.write_all(b"\n"))?;
        (0..=axis).try_for_each(|_| self.out.write_all(b" "))
    }
}

/// The elements of a tensor as texts.
trait Elements {
    fn people(&self, index: usize) -> String;
    fn json(&self, index: usize) -> String;
}

struct Numbers<'a, T>(&'a [T]);

impl<T: Element + Debug> Elements for Numbers<'_, T> {
    fn people(&self, index: usize) -> String {
        self.0.get(index).map(|value| format!("{value:?}")).unwrap_or_default()
    }

    fn json(&self, index: usize) -> String {
        number(self.people(index))
    }
}

/// JSON has no numbers that are not finite.
fn number(text: String) -> String {
    match text.as_str() {
        "NaN" => "\"NaN\"".to_owned(),
        "inf" => "\"Infinity\"".to_owned(),
        "-inf" => "\"-Infinity\"".to_owned(),
        _ => text,
    }
}

struct ComplexNumbers<F>(F);

impl<D: Debug, F: Fn(usize) -> Option<(D, D)>> Elements for ComplexNumbers<F> {
    fn people(&self, index: usize) -> String {
        let Some((re, im)) = (self.0)(index) else { return String::new() };
        let im = format!("{im:?}");
        let sign = if im.starts_with('-') { "" } else { "+" };
        format!("{re:?}{sign}{im}j")
    }

    fn json(&self, index: usize) -> String {
        let Some((re, im)) = (self.0)(index) else { return String::new() };
        format!("[{}, {}]", number(format!("{re:?}")), number(format!("{im:?}")))
    }
}

struct Strings<'a>(&'a [Bytes]);

impl Elements for Strings<'_> {
    fn people(&self, index: usize) -> String {
        let Some(bytes) = self.0.get(index) else { return String::new() };
        match std::str::from_utf8(bytes) {
            Ok(text) => format!("{text:?}"),
            Err(_) => format!("b\"{}\"", bytes.escape_ascii()),
        }
    }

    fn json(&self, index: usize) -> String {
        let Some(bytes) = self.0.get(index) else { return String::new() };
        match std::str::from_utf8(bytes) {
            Ok(text) => json!(text).to_string(),
            Err(_) => json!({ "b64": STANDARD.encode(bytes) }).to_string(),
        }
    }
}

/// Quantised numbers as the integers that they are stored as; other tensors as they are.
fn plain(tensor: &Tensor) -> Result<Tensor> {
    let stored = match tensor.dtype() {
        DType::QInt8 => DType::Int8,
        DType::QUInt8 => DType::UInt8,
        DType::QInt16 => DType::Int16,
        DType::QUInt16 => DType::UInt16,
        DType::QInt32 => DType::Int32,
        _ => return Ok(tensor.clone()),
    };
    Ok(tensor.bitcast(stored, tensor.shape().clone())?)
}

fn elements(tensor: &Tensor) -> Result<Box<dyn Elements + '_>> {
    match tensor.dtype() {
        DType::String => return Ok(Box::new(Strings(tensor.strings()?))),
        DType::Complex64 => {
            let values = tensor.as_slice::<Complex32>()?;
            return Ok(Box::new(ComplexNumbers(move |at: usize| values.get(at).map(|v| (v.re, v.im)))));
        }
        DType::Complex128 => {
            let values = tensor.as_slice::<Complex64>()?;
            return Ok(Box::new(ComplexNumbers(move |at: usize| values.get(at).map(|v| (v.re, v.im)))));
        }
        _ => {}
    }
    let numbers = dispatch!(tensor.dtype(), T in all => tensor.as_slice::<T>().map(|all| Box::new(Numbers(all)) as Box<dyn Elements + '_>));
    match numbers {
        Some(numbers) => Ok(numbers?),
        None => bail!("tensors of type {} cannot be shown", tensor.dtype()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_client::Shape;
    use graphmill_tensor::{QInt8, bf16};

    fn text(tensor: &Tensor, edge: usize, people: bool) -> String {
        let plain = plain(tensor).unwrap();
        let elements = elements(&plain).unwrap();
        let mut out = Vec::new();
        let mut nested = Nested { out: &mut out, dims: tensor.shape().dims(), edge, people };
        let element = |out: &mut Vec<u8>, at| match people {
            true => out.write_all(elements.people(at).as_bytes()),
            false => out.write_all(elements.json(at).as_bytes()),
        };
        nested.write(0, 0, &element).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_stand_below_each_other() {
        let tensor = |dims: &[i64]| {
            let shape = Shape::new(dims).unwrap();
            let values: Vec<i32> = (0..shape.num_elements() as i32).collect();
            Tensor::from_slice(shape, &values).unwrap()
        };
        assert_eq!(text(&tensor(&[]), 9, true), "0");
        assert_eq!(text(&tensor(&[2, 2]), 9, true), "[[0, 1],\n [2, 3]]");
        assert_eq!(text(&tensor(&[2, 1, 2]), 9, true), "[[[0, 1]],\n\n [[2, 3]]]");
        assert_eq!(text(&tensor(&[2, 0]), 9, true), "[[],\n []]");
        assert_eq!(text(&tensor(&[9]), 2, true), "[0, 1, ..., 7, 8]");
        assert_eq!(text(&tensor(&[5, 2]), 1, true), "[[0, 1],\n ...,\n [8, 9]]");
        assert_eq!(text(&tensor(&[2, 2]), usize::MAX, false), "[[0, 1], [2, 3]]");
    }

    #[test]
    fn elements_of_each_kind() {
        let floats = Tensor::vector(&[0.1f32, 1.0, f32::NAN, f32::NEG_INFINITY, 1e30]).unwrap();
        assert_eq!(text(&floats, 9, true), "[0.1, 1.0, NaN, -inf, 1e30]");
        assert_eq!(text(&floats, 9, false), "[0.1, 1.0, \"NaN\", \"-Infinity\", 1e30]");
        let complex = Tensor::vector(&[Complex32::new(1.0, -2.0)]).unwrap();
        assert_eq!(text(&complex, 9, true), "[1.0-2.0j]");
        assert_eq!(text(&complex, 9, false), "[[1.0, -2.0]]");
        let strings = Tensor::from_strings(Shape::vector(2), vec!["a\"é".into(), Bytes::from_static(b"\xff")]).unwrap();
        assert_eq!(text(&strings, 9, true), "[\"a\\\"é\", b\"\\xff\"]");
        assert_eq!(text(&strings, 9, false), "[\"a\\\"é\", {\"b64\":\"/w==\"}]");
        assert_eq!(text(&Tensor::vector(&[true, false]).unwrap(), 9, false), "[true, false]");
        assert_eq!(text(&Tensor::scalar(bf16::from_f32(1.5)).unwrap(), 9, false), "1.5");
        assert_eq!(text(&Tensor::scalar(QInt8(-3)).unwrap(), 9, true), "-3");
        assert_eq!(text(&Tensor::vector(&[u64::MAX]).unwrap(), 9, false), "[18446744073709551615]");
    }
}
