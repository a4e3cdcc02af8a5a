//! Connectionist temporal classification (Graves et al. 2006): the loss, and two decoders.

mod decode;
mod loss;

use graphmill_runtime::Registry;
use graphmill_tensor::{Element, Result, Shape, Tensor, invalid_argument};
use num_traits::Float;

pub(crate) fn register(registry: &mut Registry) {
    loss::register(registry);
    decode::register(registry);
}

/// Numbers that the ops compute with.
trait Real: Element + Float + std::ops::AddAssign {}

impl Real for f32 {}
impl Real for f64 {}

/// `ln(exp(a) + exp(b))`.
fn log_add<T: Real>(a: T, b: T) -> T {
    if a == T::neg_infinity() {
        b
    } else if b == T::neg_infinity() {
        a
    } else {
        a.max(b) + (a.min(b) - a.max(b)).exp().ln_1p()
    }
}

/// Steps, sequences and classes of the inputs.
#[derive(Clone, Copy)]
struct Sizes {
    time: usize,
    batch: usize,
    classes: usize,
}

impl Sizes {
    fn new(shape: &Shape) -> Result<Sizes> {
        match *shape.dims() {
            [time, batch, classes] => Ok(Sizes { time, batch, classes }),
            _ => Err(invalid_argument!("inputs is not a 3-Tensor")),
        }
    }

    /// The classes' scores at a step of a sequence.
    fn row<T>(self, inputs: &[T], step: usize, sequence: usize) -> &[T] {
        let start = (step * self.batch + sequence) * self.classes;
        &inputs[start..start + self.classes]
    }
}

/// The lengths in a tensor, none of which may be above `most`.
fn lengths(tensor: &Tensor, most: usize, above: impl Fn(usize) -> graphmill_tensor::Status) -> Result<Vec<usize>> {
    let check = |(i, &length): (usize, &i32)| match usize::try_from(length) {
        Ok(length) if length <= most => Ok(length),
        Ok(_) => Err(above(i)),
        Err(_) => Err(invalid_argument!("seq_len({i}) < 0")),
    };
    tensor.as_slice::<i32>()?.iter().enumerate().map(check).collect()
}
