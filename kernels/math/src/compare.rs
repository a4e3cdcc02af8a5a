//! Comparisons.

use crate::elementwise::Compare;
use crate::isa::map2;
use crate::number::{Half, Ordered};
use crate::strings::CompareStrings;
use graphmill_runtime::{Construction, Registry};
use graphmill_tensor::{
    Complex32, Complex64, DType, Element, QInt8, QInt16, QInt32, QUInt8, QUInt16, Result, bf16, f16,
};

/// Nanoseconds for an element of a loop that the memory's speed limits.
const PLAIN: f64 = 0.25;

/// What `Equal` and `NotEqual` yield for shapes that do not broadcast; `None` where that is an error.
fn on_mismatch(c: &Construction<'_>, value: bool) -> Result<Option<bool>> {
    Ok(if c.attrs().bool("incompatible_shape_error")? { None } else { Some(value) })
}

fn equality<T: Element>(r: &mut Registry) {
    equality_by::<T>(r, |a, b| a == b);
}

fn equality_by<T: Element>(r: &mut Registry, equal: impl Fn(T, T) -> bool + Copy + Send + Sync + 'static) {
    r.op("Equal").types("T", &[T::DTYPE]).kernel(move |c| Ok(Compare::new(PLAIN, map2(equal), on_mismatch(c, false)?)));
    r.op("NotEqual")
        .types("T", &[T::DTYPE])
        .kernel(move |c| Ok(Compare::new(PLAIN, map2(move |a, b| !equal(a, b)), on_mismatch(c, true)?)));
}

fn order<T: Ordered>(r: &mut Registry) {
    let mut op = |name, map: fn() -> crate::isa::Map2<T, bool>| {
        r.op(name).types("T", &[T::DTYPE]).kernel(move |_| Ok(Compare::new(PLAIN, map(), None)));
    };
    op("Greater", || map2(|a: T, b: T| a.above(b)));
    op("Less", || map2(|a: T, b: T| b.above(a)));
    // With NaN every comparison is false, so that the negations of the other two will not do.
    op("GreaterEqual", || map2(|a: T, b: T| !b.above(a) & !a.nan() & !b.nan()));
    op("LessEqual", || map2(|a: T, b: T| !a.above(b) & !a.nan() & !b.nan()));
}

pub(crate) fn register(r: &mut Registry) {
    equality::<f32>(r);
    equality::<f64>(r);
    equality_by::<f16>(r, |a, b| a.widen() == b.widen());
    equality_by::<bf16>(r, |a, b| a.widen() == b.widen());
    equality::<Complex32>(r);
    equality::<Complex64>(r);
    equality::<i8>(r);
    equality::<i16>(r);
    equality::<i32>(r);
    equality::<i64>(r);
    equality::<u8>(r);
    equality::<u16>(r);
    equality::<u32>(r);
    equality::<u64>(r);
    equality::<bool>(r);
    equality::<QInt8>(r);
    equality::<QUInt8>(r);
    equality::<QInt16>(r);
    equality::<QUInt16>(r);
    equality::<QInt32>(r);
    r.op("Equal").types("T", &[DType::String]).kernel(|c| Ok(CompareStrings::new(true, on_mismatch(c, false)?)));
    r.op("NotEqual").types("T", &[DType::String]).kernel(|c| Ok(CompareStrings::new(false, on_mismatch(c, true)?)));
    order::<f32>(r);
    order::<f64>(r);
    order::<f16>(r);
    order::<bf16>(r);
    order::<i8>(r);
    order::<i16>(r);
    order::<i32>(r);
    order::<i64>(r);
    order::<u8>(r);
    order::<u16>(r);
    order::<u32>(r);
    order::<u64>(r);
}
