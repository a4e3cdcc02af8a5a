//! `AsString`: elements as text.

use crate::printf::{Notation, Spec};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    Bytes, Complex32, Complex64, DType, Element, Result, Tensor, bf16, dispatch, f16, invalid_argument,
};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("AsString").kernel(AsString::new);
}

/// The widest a number is written, and the most digits it has behind the point; memory is not for padding.
const LIMIT: i64 = 1 << 16;

struct AsString {
    spec: Spec,
    notation: Notation,
}

impl AsString {
    fn new(c: &Construction<'_>) -> Result<AsString> {
        let dtype = c.dtype("T")?;
        let (precision, width) = (c.attrs().int("precision")?, c.attrs().int("width")?);
        let (scientific, shortest) = (c.attrs().bool("scientific")?, c.attrs().bool("shortest")?);
        if !dtype.is_floating() && !dtype.is_complex() {
            if scientific || shortest {
                return Err(invalid_argument!("scientific and shortest format not supported for datatype {dtype}"));
            }
            if precision >= 0 {
                return Err(invalid_argument!("precision not supported for datatype {dtype}"));
            }
        }
        let flag = match c.attrs().string("fill")? {
            [] => None,
            &[flag @ (b' ' | b'+' | b'-' | b'0' | b'#')] => Some(flag),
            [other] => return Err(invalid_argument!("Fill argument not supported: \"{}\"", char::from(*other))),
            _ => return Err(invalid_argument!("Fill string must be one or fewer characters")),
        };
        if scientific && shortest {
            return Err(invalid_argument!("Cannot select both scientific and shortest notation"));
        }
        if precision > LIMIT || width > LIMIT {
            return Err(invalid_argument!("width and precision must not be larger than {LIMIT}"));
        }
        let notation = match (scientific, shortest) {
            (true, _) => Notation::Scientific,
            (_, true) => Notation::Shortest,
            _ => Notation::Fixed,
        };
        let spec =
            Spec { flag, width: usize::try_from(width).unwrap_or(0), precision: usize::try_from(precision).ok() };
        Ok(AsString { spec, notation })
    }

    fn fill<T: Element>(&self, input: &Tensor, output: &mut Tensor, text: impl Fn(T) -> String) -> Result<()> {
        for (to, &from) in output.strings_mut()?.iter_mut().zip(input.as_slice::<T>()?) {
            *to = Bytes::from(text(from));
        }
        Ok(())
    }

    fn complex(&self, real: f64, imaginary: f64) -> String {
        format!("({},{})", self.spec.float(real, self.notation), self.spec.float(imaginary, self.notation))
    }
}

impl Kernel for AsString {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.take_input(0)?;
        let mut output = ctx.alloc_output(0, input.shape().clone())?;
        let float = |value: f64| self.spec.float(value, self.notation);
        match input.dtype() {
            DType::String => return ctx.set_output(0, input),
            DType::Float => self.fill(&input, &mut output, |v: f32| float(f64::from(v)))?,
            DType::Double => self.fill(&input, &mut output, |v: f64| float(v))?,
            DType::Half => self.fill(&input, &mut output, |v: f16| float(v.to_f64()))?,
            DType::BFloat16 => self.fill(&input, &mut output, |v: bf16| float(v.to_f64()))?,
            DType::Complex64 => {
                self.fill(&input, &mut output, |v: Complex32| self.complex(v.re.into(), v.im.into()))?;
            }
            DType::Complex128 => self.fill(&input, &mut output, |v: Complex64| self.complex(v.re, v.im))?,
            DType::Bool => {
                self.fill(&input, &mut output, |v: bool| if v { "true" } else { "false" }.to_owned())?;
            }
            dtype => {
                let done = dispatch!(dtype, T in [i32, i64, i16, i8] => self.fill(&input, &mut output, |v: T| {
                    self.spec.integer(v < 0, true, v.unsigned_abs().to_string())
                }));
                let done = done.or_else(|| {
                    dispatch!(dtype, T in [u8, u16, u32, u64] => {
                        self.fill(&input, &mut output, |v: T| self.spec.integer(false, false, v.to_string()))
                    })
                });
                done.unwrap_or_else(|| Err(invalid_argument!("Cannot encode input of type {dtype}")))?;
            }
        }
        ctx.set_output(0, output)
    }
}
