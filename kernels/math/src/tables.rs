//! The macros in which tables of elementwise ops are written.
//!
//! A row registers one kernel for each of its types. `floats` stands for `f32`, `f64` and the two 16-bit floats, whose body
//! sees `f32`.

/// `unary!(registry, "Neg", cost, map1, [f32, f64], |x| -x)`: an op with a result of its operand's type.
macro_rules! unary {
    ($registry:ident, $op:literal, $cost:expr, $map:ident, floats, |$x:ident| $body:expr) => {
        unary!($registry, $op, $cost, $map, [f32, f64], |$x| $body);
        unary!($registry, $op, $cost, $map, halves, |$x| $body);
    };
    ($registry:ident, $op:literal, $cost:expr, $map:ident, halves, |$x:ident| $body:expr) => {
        unary!($registry, $op, $cost, $map, widened [f16, bf16], |$x| $body);
    };
    ($registry:ident, $op:literal, $cost:expr, $map:ident, widened [$($t:ty),+], |$x:ident| $body:expr) => {$(
        $registry.op($op).types("T", &[<$t as graphmill_tensor::Element>::DTYPE]).kernel(|_| {
            Ok($crate::elementwise::Unary::new($cost, $crate::isa::$map(|$x: $t| {
                let $x = <$t as $crate::number::Half>::widen($x);
                <$t as $crate::number::Half>::narrow($body)
            })))
        });
    )+};
    ($registry:ident, $op:literal, $cost:expr, $map:ident, [$($t:ty),+], |$x:ident| $body:expr) => {$(
        $registry.op($op).types("T", &[<$t as graphmill_tensor::Element>::DTYPE]).kernel(|_| {
            Ok($crate::elementwise::Unary::new($cost, $crate::isa::$map(|$x: $t| -> $t { $body })))
        });
    )+};
}

/// As `unary!` for two operands, by an engine such as `Binary` or `Paired`.
macro_rules! binary {
    ($registry:ident, $engine:ident, $op:literal, $cost:expr, $map:ident, floats, |$a:ident, $b:ident| $body:expr) => {
        binary!($registry, $engine, $op, $cost, $map, [f32, f64], |$a, $b| $body);
        binary!($registry, $engine, $op, $cost, $map, halves, |$a, $b| $body);
    };
    ($registry:ident, $engine:ident, $op:literal, $cost:expr, $map:ident, halves, |$a:ident, $b:ident| $body:expr) => {
        binary!($registry, $engine, $op, $cost, $map, widened [f16, bf16], |$a, $b| $body);
    };
    ($registry:ident, $engine:ident, $op:literal, $cost:expr, $map:ident, widened [$($t:ty),+], |$a:ident, $b:ident| $body:expr) => {$(
        $registry.op($op).types("T", &[<$t as graphmill_tensor::Element>::DTYPE]).kernel(|_| {
            Ok($crate::elementwise::$engine::new($cost, $crate::isa::$map(|$a: $t, $b: $t| {
                let ($a, $b) = (<$t as $crate::number::Half>::widen($a), <$t as $crate::number::Half>::widen($b));
                <$t as $crate::number::Half>::narrow($body)
            })))
        });
    )+};
    ($registry:ident, $engine:ident, $op:literal, $cost:expr, $map:ident, [$($t:ty),+], |$a:ident, $b:ident| $body:expr) => {$(
        $registry.op($op).types("T", &[<$t as graphmill_tensor::Element>::DTYPE]).kernel(|_| {
            Ok($crate::elementwise::$engine::new($cost, $crate::isa::$map(|$a: $t, $b: $t| -> $t { $body })))
        });
    )+};
}
