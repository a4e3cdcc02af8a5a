//! Loops written once and compiled for several instruction sets.
//!
//! A loop is a type that implements [`Vectorised`]; [`vectorised`] runs the instance for the widest vectors that the processor
//! has. The bodies are plain Rust that LLVM vectorises.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// A loop to be compiled for each instruction set. `run` must be `#[inline(always)]`, so that it takes on the features of its
/// caller.
pub(crate) trait Vectorised {
    /// What the loop yields.
    type Output;

    /// Runs the loop. `FMA` tells whether `mul_add` is one instruction; without it, it would be a call into a library.
    fn run<const FMA: bool>(self) -> Self::Output;
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

static LEVEL: OnceLock<Level> = OnceLock::new();

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    if !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("fma") || !is_x86_feature_detected!("bmi2") {
        Level::Baseline
    } else if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
    {
        Level::Avx512
    } else {
        Level::Avx2
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Baseline
}

/// Runs a loop with the widest vectors there are.
pub(crate) fn vectorised<V: Vectorised>(body: V) -> V::Output {
    match *LEVEL.get_or_init(detect) {
        Level::Baseline => body.run::<false>(),
        // SAFETY: `detect` saw these features on this processor.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2(body) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(body) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi2")]
fn avx2<V: Vectorised>(body: V) -> V::Output {
    body.run::<true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<V: Vectorised>(body: V) -> V::Output {
    body.run::<true>()
}

/// `a * b + c`, fused where that is one instruction.
#[inline(always)]
pub(crate) fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// A function of one element.
pub(crate) trait Scalar1<T, U>: Copy + Send + Sync + 'static {
    /// The value at `x`.
    fn apply<const FMA: bool>(&self, x: T) -> U;
}

impl<T, U, F: Fn(T) -> U + Copy + Send + Sync + 'static> Scalar1<T, U> for F {
    #[inline(always)]
    fn apply<const FMA: bool>(&self, x: T) -> U {
        self(x)
    }
}

/// A loop over one operand.
pub(crate) type Map1<T, U> = Box<dyn Fn(&[T], &mut [U]) + Send + Sync>;
/// A function of two elements.
pub(crate) type Map2<T, U> = Box<dyn Function2<T, U>>;

/// A function of two elements, with its loop.
pub(crate) trait Function2<T, U>: Send + Sync {
    /// The value for a pair.
    fn one(&self, a: T, b: T) -> U;

    /// The values for operands of the same length.
    fn each(&self, a: &[T], b: &[T], y: &mut [U]);
}

struct Loop1<'a, T, U, F> {
    x: &'a [T],
    y: &'a mut [U],
    f: F,
}

impl<T: Copy, U, F: Scalar1<T, U>> Vectorised for Loop1<'_, T, U, F> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (y, &x) in self.y.iter_mut().zip(self.x) {
            *y = self.f.apply::<FMA>(x);
        }
    }
}

struct Loop2<'a, T, U, F> {
    a: &'a [T],
    b: &'a [T],
    y: &'a mut [U],
    f: F,
}

impl<T: Copy, U, F: Fn(T, T) -> U> Vectorised for Loop2<'_, T, U, F> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((y, &a), &b) in self.y.iter_mut().zip(self.a).zip(self.b) {
            *y = (self.f)(a, b);
        }
    }
}

/// The loop of a function of one element, compiled for each instruction set.
pub(crate) fn map1<T: Copy + 'static, U: 'static>(f: impl Scalar1<T, U>) -> Map1<T, U> {
    Box::new(move |x, y| vectorised(Loop1 { x, y, f }))
}

/// The loop of a function of two elements, compiled for each instruction set.
pub(crate) fn map2<T: Copy + 'static, U: 'static>(f: impl Fn(T, T) -> U + Copy + Send + Sync + 'static) -> Map2<T, U> {
    Box::new(Vectors(f))
}

struct Vectors<F>(F);

impl<T: Copy, U, F: Fn(T, T) -> U + Copy + Send + Sync> Function2<T, U> for Vectors<F> {
    fn one(&self, a: T, b: T) -> U {
        (self.0)(a, b)
    }

    fn each(&self, a: &[T], b: &[T], y: &mut [U]) {
        vectorised(Loop2 { a, b, y, f: self.0 });
    }
}

/// The loop of a function that calls into a library, where vectors gain nothing.
pub(crate) fn call1<T: Copy + 'static, U: 'static>(f: impl Fn(T) -> U + Copy + Send + Sync + 'static) -> Map1<T, U> {
    Box::new(move |x, y| {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = f(x);
        }
    })
}

/// As [`call1`] for two operands.
pub(crate) fn call2<T: Copy + 'static, U: 'static>(f: impl Fn(T, T) -> U + Copy + Send + Sync + 'static) -> Map2<T, U> {
    Box::new(Calls(f))
}

struct Calls<F>(F);

impl<T: Copy, U, F: Fn(T, T) -> U + Send + Sync> Function2<T, U> for Calls<F> {
    fn one(&self, a: T, b: T) -> U {
        (self.0)(a, b)
    }

    fn each(&self, a: &[T], b: &[T], y: &mut [U]) {
        for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
            *y = (self.0)(a, b);
        }
    }
}
