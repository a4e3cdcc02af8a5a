//! `Cast`: conversion of element types.
//!
//! Floats become integers as x86 does it: towards 0, and what does not fit 32 (for `int64` and 64-bit unsigned types 64) bits
//! becomes the integer with only the top bit set, of which narrower types take the low bits.

use crate::isa::{Map1, map1};
use crate::number::Half;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    Complex32, Complex64, DType, Element, Float8E4M3FN, Float8E5M2, Int4, Result, UInt4, bf16, dispatch, f16,
    unimplemented_op,
};

/// Nanoseconds for an element.
const COST: f64 = 0.4;

/// Conversion from another element type.
pub(crate) trait CastFrom<T> {
    /// The value as this type.
    fn cast_from(value: T) -> Self;
}

macro_rules! plain {
    ($($from:ident => $($to:ident)*;)*) => {$($(
        impl CastFrom<$from> for $to {
            #[inline(always)]
            fn cast_from(value: $from) -> $to {
                value as $to
            }
        }
    )*)*};
}

plain! {
    i8 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
    i16 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
    i32 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
    i64 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
    u8 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
    u16 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
    u32 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
    u64 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
    f32 => f32 f64;
    f64 => f32 f64;
}

/// A float to an integer as `cvttsd2si` gives it.
macro_rules! to_integer {
    ($($float:ident: $wide:ident via $($to:ident)*;)*) => {$($(
        impl CastFrom<$float> for $to {
            #[inline(always)]
            fn cast_from(value: $float) -> $to {
                let fits = value >= $wide::MIN as $float && value < -($wide::MIN as $float);
                (if fits { value as $wide } else { $wide::MIN }) as $to
            }
        }
    )*)*};
}

to_integer! {
    f32: i32 via i8 i16 i32 u8 u16;
    f32: i64 via i64 u32;
    f64: i32 via i8 i16 i32 u8 u16;
    f64: i64 via i64 u32;
}

macro_rules! to_u64 {
    ($($float:ident)*) => {$(
        impl CastFrom<$float> for u64 {
            #[inline(always)]
            fn cast_from(value: $float) -> u64 {
                // As compilers build it from the signed conversion: the upper half of the range is shifted down first.
                let low = i64::cast_from(value);
                let high = i64::cast_from(value - 9_223_372_036_854_775_808.0);
                (low | (high & (low >> 63))) as u64
            }
        }
    )*};
}

to_u64!(f32 f64);

macro_rules! through {
    ($via:ident: $($from:ident)* => $to:tt) => { $(through!(@one $via: $from => $to);)* };
    (@one $via:ident: $from:ident => [$($to:ident)*]) => {$(
        impl CastFrom<$from> for $to {
            #[inline(always)]
            fn cast_from(value: $from) -> $to {
                $to::cast_from(<$via as CastFrom<$from>>::cast_from(value))
            }
        }
    )*};
}

/// 16-bit and 8-bit floats widen to `f32`.
macro_rules! small_floats {
    ($($t:ident, $widen:expr, $narrow:expr;)*) => {$(
        impl CastFrom<$t> for f32 {
            #[inline(always)]
            fn cast_from(value: $t) -> f32 {
                $widen(value)
            }
        }

        impl CastFrom<f32> for $t {
            #[inline(always)]
            fn cast_from(value: f32) -> $t {
                $narrow(value)
            }
        }

        impl CastFrom<bool> for $t {
            #[inline(always)]
            fn cast_from(value: bool) -> $t {
                $narrow(f32::from(u8::from(value)))
            }
        }

        through!(f32: $t => [f64 i8 i16 i32 i64 u8 u16 u32 u64 bool Complex32 Complex64]);
        through!(f32: i8 i16 i32 i64 u8 u16 u32 u64 => [$t]);
    )*};
}

small_floats! {
    f16, <f16 as Half>::widen, <f16 as Half>::narrow;
    bf16, <bf16 as Half>::widen, <bf16 as Half>::narrow;
    Float8E5M2, |v: Float8E5M2| v.to_f64() as f32, |v: f32| Float8E5M2::from_f64(f64::from(v));
    Float8E4M3FN, |v: Float8E4M3FN| v.to_f64() as f32, |v: f32| Float8E4M3FN::from_f64(f64::from(v));
}

macro_rules! by {
    ($($from:ident => $to:ident: $f:expr;)*) => {$(
        impl CastFrom<$from> for $to {
            #[inline(always)]
            fn cast_from(value: $from) -> $to {
                $f(value)
            }
        }
    )*};
}

by! {
    f16 => f16: |v| v;
    bf16 => bf16: |v| v;
    f64 => f16: |v| f16::cast_from(v as f32);
    f64 => bf16: |v| bf16::cast_from(v as f32);
    f64 => Float8E5M2: Float8E5M2::from_f64;
    f64 => Float8E4M3FN: Float8E4M3FN::from_f64;
    Float8E5M2 => Float8E5M2: |v| v;
    Float8E4M3FN => Float8E4M3FN: |v| v;
    bool => bool: |v| v;
    bool => f32: |v| f32::from(u8::from(v));
    bool => f64: |v| f64::from(u8::from(v));
    f32 => bool: |v| v != 0.0;
    f64 => bool: |v| v != 0.0;
    Complex32 => bool: |v: Complex32| v.re != 0.0;
    Complex64 => bool: |v: Complex64| v.re != 0.0;
    Complex32 => Complex32: |v| v;
    Complex64 => Complex64: |v| v;
    Complex32 => Complex64: |v: Complex32| Complex64::new(f64::from(v.re), f64::from(v.im));
    Complex64 => Complex32: |v: Complex64| Complex32::new(v.re as f32, v.im as f32);
    Complex32 => f32: |v: Complex32| v.re;
    Complex64 => f64: |v: Complex64| v.re;
    f32 => Complex32: |v| Complex32::new(v, 0.0);
    f64 => Complex64: |v| Complex64::new(v, 0.0);
}

through!(f32: f16 => [bf16 Float8E5M2 Float8E4M3FN]);
through!(f32: bf16 => [f16 Float8E5M2 Float8E4M3FN]);
through!(f32: Float8E5M2 => [f16 bf16 Float8E4M3FN]);
through!(f32: Float8E4M3FN => [f16 bf16 Float8E5M2]);
through!(f32: Complex32 => [i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f64]);
through!(f64: Complex64 => [i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32]);
through!(f32: i8 i16 i32 i64 u8 u16 u32 u64 bool => [Complex32]);
through!(f64: i8 i16 i32 i64 u8 u16 u32 u64 bool => [Complex64]);
through!(f64: f32 => [Complex64]);
through!(f32: f64 => [Complex32]);

macro_rules! truth {
    ($($t:ident)*) => {$(
        impl CastFrom<bool> for $t {
            #[inline(always)]
            fn cast_from(value: bool) -> $t {
                $t::from(value)
            }
        }

        impl CastFrom<$t> for bool {
            #[inline(always)]
            fn cast_from(value: $t) -> bool {
                value != 0
            }
        }

        impl CastFrom<$t> for Int4 {
            #[inline(always)]
            fn cast_from(value: $t) -> Int4 {
                Int4::new(value as i8)
            }
        }

        impl CastFrom<Int4> for $t {
            #[inline(always)]
            fn cast_from(value: Int4) -> $t {
                value.get() as $t
            }
        }

        impl CastFrom<UInt4> for $t {
            #[inline(always)]
            fn cast_from(value: UInt4) -> $t {
                value.get() as $t
            }
        }

        impl CastFrom<$t> for UInt4 {
            #[inline(always)]
            fn cast_from(value: $t) -> UInt4 {
                UInt4::new(value as u8)
            }
        }
    )*};
}

truth!(i8 i16 i32 i64 u8 u16 u32 u64);

/// Clears the bits of a float that a narrower one has no room for, so that the conversion truncates. NaN stays.
trait Truncate: Copy {
    fn truncated(self, bits: u32) -> Self;
}

impl Truncate for f32 {
    #[inline(always)]
    fn truncated(self, bits: u32) -> f32 {
        if self.is_nan() { self } else { f32::from_bits(self.to_bits() & (u32::MAX << bits)) }
    }
}

impl Truncate for f64 {
    #[inline(always)]
    fn truncated(self, bits: u32) -> f64 {
        if self.is_nan() { self } else { f64::from_bits(self.to_bits() & (u64::MAX << bits)) }
    }
}

impl Truncate for Complex32 {
    #[inline(always)]
    fn truncated(self, bits: u32) -> Complex32 {
        Complex32::new(self.re.truncated(bits), self.im.truncated(bits))
    }
}

impl Truncate for Complex64 {
    #[inline(always)]
    fn truncated(self, bits: u32) -> Complex64 {
        Complex64::new(self.re.truncated(bits), self.im.truncated(bits))
    }
}

trait Convert: Send + Sync {
    fn run(
        &self,
        ctx: &Context<'_>,
        out: &mut graphmill_tensor::Tensor,
        input: &graphmill_tensor::Tensor,
    ) -> Result<()>;
}

struct Loop<T, U>(Map1<T, U>);

impl<T: Element, U: Element> Convert for Loop<T, U> {
    fn run(
        &self,
        ctx: &Context<'_>,
        out: &mut graphmill_tensor::Tensor,
        input: &graphmill_tensor::Tensor,
    ) -> Result<()> {
        let x = input.as_slice::<T>()?;
        ctx.parallel_chunks(out.as_mut_slice::<U>()?, 1, COST, |range, part| (self.0)(&x[range], part));
        Ok(())
    }
}

type Body = Box<dyn Convert>;

fn body<T: Element, U: Element + CastFrom<T>>() -> Body {
    Box::new(Loop(map1(|x: T| U::cast_from(x))))
}

fn truncating<T: Element + Truncate, U: Element + CastFrom<T>>(bits: u32) -> Body {
    Box::new(Loop(map1(move |x: T| U::cast_from(x.truncated(bits)))))
}

/// The integer type whose elements a quantised type's elements are.
fn unquantized(dtype: DType) -> DType {
    match dtype {
        DType::QInt8 => DType::Int8,
        DType::QUInt8 => DType::UInt8,
        DType::QInt16 => DType::Int16,
        DType::QUInt16 => DType::UInt16,
        DType::QInt32 => DType::Int32,
        other => other,
    }
}

/// Bits that the mantissa of `to` is shorter than that of `from`, for the pairs for which TensorFlow truncates.
fn truncated_body(from: DType, to: DType) -> Option<Body> {
    Some(match (from, to) {
        (DType::Double, DType::Float) => truncating::<f64, f32>(29),
        (DType::Complex128, DType::Float) => truncating::<Complex64, f32>(29),
        (DType::Complex128, DType::Complex64) => truncating::<Complex64, Complex32>(29),
        (DType::Double, DType::Complex64) => truncating::<f64, Complex32>(29),
        (DType::Double, DType::Half) => truncating::<f64, f16>(42),
        (DType::Float, DType::Half) => truncating::<f32, f16>(13),
        (DType::Complex128, DType::Half) => truncating::<Complex64, f16>(42),
        (DType::Complex64, DType::Half) => truncating::<Complex32, f16>(13),
        (DType::Float, DType::BFloat16) => truncating::<f32, bf16>(16),
        (DType::Float, DType::Float8E5M2) => truncating::<f32, Float8E5M2>(21),
        (DType::Float, DType::Float8E4M3FN) => truncating::<f32, Float8E4M3FN>(20),
        _ => return None,
    })
}

fn plain_body(from: DType, to: DType) -> Option<Body> {
    match from {
        DType::Float8E5M2 => dispatch!(to, U in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool, Complex32, Complex64, Float8E4M3FN
        ] => body::<Float8E5M2, U>()),
        DType::Float8E4M3FN => dispatch!(to, U in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool, Complex32, Complex64, Float8E5M2
        ] => body::<Float8E4M3FN, U>()),
        _ if matches!(to, DType::Float8E5M2 | DType::Float8E4M3FN) => dispatch!(from, T in [f32, f64, f16, bf16] => {
            if to == DType::Float8E5M2 { body::<T, Float8E5M2>() } else { body::<T, Float8E4M3FN>() }
        }),
        DType::Int4 => dispatch!(to, U in integers => body::<Int4, U>()),
        DType::UInt4 => dispatch!(to, U in integers => body::<UInt4, U>()),
        _ if matches!(to, DType::Int4 | DType::UInt4) => dispatch!(from, T in integers => {
            if to == DType::Int4 { body::<T, Int4>() } else { body::<T, UInt4>() }
        }),
        _ => dispatch!(from, T in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool, Complex32, Complex64
        ] => dispatch!(to, U in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool, Complex32, Complex64
        ] => body::<T, U>()))
        .flatten(),
    }
}

/// `Cast` from `SrcT` to `DstT`. Quantised types count as the integers they are stored as.
struct Cast {
    from: DType,
    to: DType,
    body: Option<Body>,
}

impl Cast {
    fn new(c: &Construction<'_>) -> Result<Cast> {
        let (source, target) = (c.dtype("SrcT")?, c.dtype("DstT")?);
        let (from, to) = (unquantized(source), unquantized(target));
        if from == to {
            return Ok(Cast { from, to, body: None });
        }
        let truncated = if c.attrs().bool("Truncate")? { truncated_body(from, to) } else { None };
        match truncated.or_else(|| plain_body(from, to)) {
            Some(body) => Ok(Cast { from, to, body: Some(body) }),
            None => Err(unimplemented_op!("Cast {source} to {target} is not supported")),
        }
    }
}

impl Kernel for Cast {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let declared = ctx.output_type(0)?;
        let out = match &self.body {
            None => ctx.take_input(0)?,
            Some(body) => {
                let input = ctx.input(0)?;
                let shape = input.shape().clone();
                let mut out = graphmill_tensor::Tensor::alloc(self.to, shape.clone())?;
                if input.dtype() == self.from {
                    body.run(ctx, &mut out, input)?;
                } else {
                    body.run(ctx, &mut out, &input.bitcast(self.from, shape)?)?;
                }
                out
            }
        };
        let out = if out.dtype() == declared { out } else { out.bitcast(declared, out.shape().clone())? };
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(r: &mut Registry) {
    r.op("Cast").kernel(Cast::new);
}
