//! What an optimiser is: names of its inputs, and what happens to one element.

use crate::number::Number;
use graphmill_runtime::{Construction, Context, Variable};
use graphmill_tensor::{
    Code, Complex32, Complex64, DType, Element, Result, Shape, Tensor, bf16, f16, internal, invalid_argument,
};
use num_traits::Float;
use smallvec::SmallVec;
use std::ops::{Add, Div, Mul, Neg, Sub};
use std::sync::Arc;

use crate::access::{Form, check_type};

/// Numbers that every optimiser works on.
pub(crate) trait Field:
    Number + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// The nearest value to a constant of a formula.
    fn constant(value: f64) -> Self;
    fn sqrt(self) -> Self;
    /// The real part, for checks.
    fn real(self) -> f64;

    #[inline(always)]
    fn one() -> Self {
        Self::constant(1.0)
    }

    #[inline(always)]
    fn square(self) -> Self {
        self * self
    }

    #[inline(always)]
    fn rsqrt(self) -> Self {
        Self::one() / self.sqrt()
    }
}

/// Numbers with an order and powers.
pub(crate) trait Real: Field + PartialOrd {
    fn abs(self) -> Self;
    fn pow(self, exponent: Self) -> Self;
    fn exp(self) -> Self;

    /// -1, 0 or 1.
    #[inline(always)]
    fn sign(self) -> Self {
        let zero = Self::default();
        if self > zero {
            Self::one()
        } else if self < zero {
            -Self::one()
        } else {
            zero
        }
    }

    /// The larger one; of a NaN and a number, the first.
    #[inline(always)]
    fn at_least(self, other: Self) -> Self {
        if self < other { other } else { self }
    }
}

macro_rules! reals {
    ($($real:ty, $from:expr;)*) => {$(
        impl Field for $real {
            #[inline(always)]
            fn constant(value: f64) -> Self { $from(value) }
            #[inline(always)]
            fn sqrt(self) -> Self { Float::sqrt(self) }
            #[inline(always)]
            fn real(self) -> f64 { self.into() }
        }

        impl Real for $real {
            #[inline(always)]
            fn abs(self) -> Self { Float::abs(self) }
            #[inline(always)]
            fn pow(self, exponent: Self) -> Self { Float::powf(self, exponent) }
            #[inline(always)]
            fn exp(self) -> Self { Float::exp(self) }
        }
    )*};
}

reals! {
    f32, |value| value as f32;
    f64, |value| value;
    f16, f16::from_f64;
    bf16, bf16::from_f64;
}

macro_rules! complexes {
    ($($complex:ty, $part:ty;)*) => {$(
        impl Field for $complex {
            #[inline(always)]
            fn constant(value: f64) -> Self { <$complex>::new(value as $part, 0.0) }
            #[inline(always)]
            fn sqrt(self) -> Self { <$complex>::sqrt(self) }
            #[inline(always)]
            fn real(self) -> f64 { self.re.into() }
        }
    )*};
}

complexes! {
    Complex32, f32;
    Complex64, f64;
}

/// A scalar input.
pub(crate) struct Scalar {
    /// What errors call it.
    pub label: &'static str,
    /// Which values it may have.
    pub sign: Sign,
    /// What errors have before the colon: some of TensorFlow's have a space there.
    pub gap: &'static str,
}

/// Which values a scalar input may have.
#[derive(Clone, Copy)]
pub(crate) enum Sign {
    Any,
    Positive,
    PositiveOrZeroIf(&'static str, bool),
    NonNegative,
    NonPositive,
}

/// A scalar that may have any value.
pub(crate) const fn any(label: &'static str) -> Scalar {
    Scalar { label, sign: Sign::Any, gap: "" }
}

/// A scalar that may have any value, whose error has a space before the colon.
pub(crate) const fn any_spaced(label: &'static str) -> Scalar {
    Scalar { label, sign: Sign::Any, gap: " " }
}

/// A scalar with a condition on its value.
pub(crate) const fn signed(label: &'static str, sign: Sign) -> Scalar {
    Scalar { label, sign, gap: "" }
}

impl Scalar {
    /// The value of this scalar in input `i`; an int64 is converted.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not a scalar or not of the right sign.
    pub fn read<T: Field>(&self, ctx: &Context<'_>, i: usize) -> Result<T> {
        let tensor = ctx.input(i)?;
        let value = if !tensor.shape().is_scalar() {
            None
        } else if tensor.dtype() == DType::Int64 {
            // By way of a float, as TensorFlow does.
            Some(T::constant(f64::from(tensor.scalar_value::<i64>()? as f32)))
        } else {
            Some(tensor.scalar_value::<T>()?)
        };
        match value.filter(|value| self.sign.permits(value.real())) {
            Some(value) => Ok(value),
            None => {
                let Scalar { label, sign, gap } = self;
                let (adjective, exception) = (sign.adjective(), sign.exception());
                Err(invalid_argument!("{label} is not a {adjective}scalar{exception}{gap}: {}", tensor.shape()))
            }
        }
    }
}

impl Sign {
    fn permits(self, value: f64) -> bool {
        match self {
            Sign::Any => true,
            Sign::Positive => value > 0.0,
            Sign::PositiveOrZeroIf(_, zero) => value > 0.0 || (zero && value >= 0.0),
            Sign::NonNegative => value >= 0.0,
            Sign::NonPositive => value <= 0.0,
        }
    }

    fn adjective(self) -> &'static str {
        match self {
            Sign::Any => "",
            Sign::Positive | Sign::PositiveOrZeroIf(..) => "positive ",
            Sign::NonNegative => "non-negative ",
            Sign::NonPositive => "non-positive ",
        }
    }

    fn exception(self) -> String {
        match self {
            Sign::PositiveOrZeroIf(attr, _) => format!(" (or zero if {attr} is set)"),
            _ => String::new(),
        }
    }
}

/// An optimiser with `V` variables and `S` scalars. Inputs are the variables, then the scalars with the gradient among them; in the
/// sparse op the indices follow the gradient.
pub(crate) trait Rule<const V: usize, const S: usize>: Sized + Send + Sync + 'static {
    /// What errors call the variables.
    const VARIABLES: [&'static str; V];
    /// What errors call the gradient.
    const GRADIENT: &'static str = "grad";
    /// Which input the gradient is.
    const GRADIENT_INPUT: usize;

    /// Reads the attributes.
    ///
    /// # Errors
    /// If one is missing.
    fn new(c: &Construction<'_>) -> Result<Self>;

    /// The scalars of the dense or the sparse op.
    fn scalars(&self, sparse: bool) -> [Scalar; S];
}

/// The arithmetic of an optimiser for one type of number.
pub(crate) trait Step<T, const V: usize, const S: usize>: Rule<V, S> {
    /// Works out what is the same for all elements.
    fn prepare(&self, scalars: [T; S]) -> [T; S] {
        scalars
    }

    /// The new values of an element's variables.
    fn step(&self, state: [T; V], gradient: T, scalars: &[T; S]) -> [T; V];
}

/// The variables of an optimiser, found and checked.
///
/// # Errors
/// `INTERNAL` `Invalid variable reference.` as in TensorFlow if a resource does not exist, `INVALID_ARGUMENT` if one has another type.
pub(crate) fn variables<const V: usize>(
    ctx: &Context<'_>,
    form: Form,
    dtype: DType,
) -> Result<SmallVec<[Arc<Variable>; 4]>> {
    let mut found = SmallVec::new();
    for i in 0..V {
        let variable = form.variable(ctx, i).map_err(|error| match error.code() {
            Code::NotFound => internal!("Invalid variable reference. {}", error.message()),
            _ => error,
        })?;
        check_type(&variable, dtype)?;
        found.push(variable);
    }
    Ok(found)
}

/// The scalars of an optimiser, read and checked.
///
/// # Errors
/// As [`Scalar::read`].
pub(crate) fn scalars<T: Field, R: Step<T, V, S>, const V: usize, const S: usize>(
    rule: &R,
    ctx: &Context<'_>,
    sparse: bool,
) -> Result<[T; S]> {
    let mut values = [T::default(); S];
    let mut input = V;
    for (value, scalar) in values.iter_mut().zip(rule.scalars(sparse)) {
        if input == R::GRADIENT_INPUT {
            input += 1 + usize::from(sparse);
        }
        *value = scalar.read(ctx, input)?;
        input += 1;
    }
    Ok(rule.prepare(values))
}

/// Checks that two shapes are equal.
///
/// # Errors
/// `INVALID_ARGUMENT` naming both if not.
pub(crate) fn same_shape(names: [&str; 2], shapes: [&Shape; 2]) -> Result<()> {
    if shapes[0] == shapes[1] {
        return Ok(());
    }
    Err(invalid_argument!("{} and {} do not have the same shape{} {}", names[0], names[1], shapes[0], shapes[1]))
}

/// The elements of several tensors for writing.
///
/// # Errors
/// `INTERNAL` if their number or type is wrong.
pub(crate) fn slices<T: Element, const V: usize>(tensors: SmallVec<[&mut Tensor; 4]>) -> Result<[&mut [T]; V]> {
    let mut tensors = tensors.into_iter();
    let mut failed = Ok(());
    let slices = std::array::from_fn(|_| match tensors.next().map(Tensor::as_mut_slice::<T>) {
        Some(Ok(slice)) => slice,
        Some(Err(error)) => {
            failed = Err(error);
            &mut []
        }
        None => {
            failed = Err(internal!("an optimiser has too few variables"));
            &mut []
        }
    });
    failed.map(|()| slices)
}
