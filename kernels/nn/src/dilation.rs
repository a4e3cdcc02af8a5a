//! `Dilation2D`, grey-scale morphological dilation, and its gradients.

use crate::window::{Axis, Padding, int32_list};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    DType, Element, Result, Shape, Tensor, bf16, dispatch, f16, internal, invalid_argument, unimplemented_op,
};

/// An element that can be added and compared.
trait Number: Element + PartialOrd {
    const LOWEST: Self;
    fn plus(self, other: Self) -> Self;
}

macro_rules! numbers {
    (ints: $($int:ty)*; floats: $($float:ty)*) => {
        $(impl Number for $int {
            const LOWEST: $int = <$int>::MIN;
            fn plus(self, other: $int) -> $int { self.wrapping_add(other) }
        })*
        $(impl Number for $float {
            const LOWEST: $float = <$float>::MIN;
            fn plus(self, other: $float) -> $float { self + other }
        })*
    };
}

numbers! { ints: i8 i16 i32 i64 u8 u16 u32 u64; floats: f32 f64 f16 bf16 }

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Forward,
    InputGradient,
    FilterGradient,
}

/// `Dilation2D(input, filter)`: `output[n, y, x, c]` is the maximum over `i, j` of `input[n, y*s + i*r - p, x*s + j*r - p, c] +
/// filter[i, j, c]`; the gradients have `out_backprop` as third input, and go to the last of the first largest.
struct Dilation {
    step: Step,
    strides: [i64; 2],
    rates: [i64; 2],
    padding: Padding,
}

struct Sizes {
    batch: usize,
    rows: Axis,
    cols: Axis,
    depth: usize,
}

impl Sizes {
    /// The largest sum under a window in a channel: the sum, the element of the image, and the element of the filter.
    fn largest<T: Number>(&self, image: &[T], filter: &[T], [y, x, c]: [usize; 3]) -> Option<(T, usize, usize)> {
        let mut best: Option<(T, usize, usize)> = None;
        for i in 0..self.rows.window {
            let Some(row) = self.rows.source(y, i) else { continue };
            for j in 0..self.cols.window {
                let Some(col) = self.cols.source(x, j) else { continue };
                let from = (row * self.cols.input + col) * self.depth + c;
                let tap = (i * self.cols.window + j) * self.depth + c;
                let sum = image[from].plus(filter[tap]);
                if best.map_or(T::LOWEST, |best| best.0) < sum {
                    best = Some((sum, from, tap));
                }
            }
        }
        best
    }

    fn image(&self) -> usize {
        self.rows.input * self.cols.input * self.depth
    }

    fn output(&self) -> usize {
        self.rows.output * self.cols.output * self.depth
    }

    /// Row, column and channel of an element of an output image.
    fn place(&self, at: usize) -> [usize; 3] {
        let pixel = at / self.depth;
        [pixel / self.cols.output, pixel % self.cols.output, at % self.depth]
    }
}

impl Dilation {
    fn new(c: &Construction<'_>, step: Step) -> Result<Dilation> {
        let list = |name: &str, field: &str, what: &str| -> Result<[i64; 2]> {
            match int32_list(c, name)?[..] {
                [1, rows, cols, 1] => Ok([rows, cols]),
                [_, _, _, _] => Err(unimplemented_op!("{what} is only supported across spatial dimensions.")),
                _ => Err(invalid_argument!("{field} field must specify 4 dimensions")),
            }
        };
        let padding = match c.attrs().str("padding")? {
            "SAME" => Padding::Same,
            "VALID" => Padding::Valid,
            other => return Err(invalid_argument!("{other} is not an allowed padding type")),
        };
        Ok(Dilation {
            step,
            strides: list("strides", "Sliding window stride", "Stride")?,
            rates: list("rates", "Input stride (atrous rate)", "Rate")?,
            padding,
        })
    }

    fn sizes(&self, input: &Shape, filter: &Shape) -> Result<Sizes> {
        let &[batch, rows, cols, depth] = input.dims() else {
            return Err(invalid_argument!("input must be 4-dimensional{input}"));
        };
        let &[down, across, filter_depth] = filter.dims() else {
            return Err(invalid_argument!("filter must be 3-dimensional: {filter}"));
        };
        if depth != filter_depth {
            return Err(invalid_argument!("input and filter must have the same depth: {depth} vs {filter_depth}"));
        }
        let axis =
            |input, window, i: usize| Axis::new(input, window, self.strides[i], self.rates[i], &self.padding, i + 1);
        Ok(Sizes { batch, rows: axis(rows, down, 0)?, cols: axis(cols, across, 1)?, depth })
    }

    fn run<T: Number>(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, filter) = (ctx.input(0)?, ctx.input(1)?);
        let sizes = self.sizes(input.shape(), filter.shape())?;
        let output = Shape::from_dims(&[sizes.batch, sizes.rows.output, sizes.cols.output, sizes.depth])?;
        let (x, w) = (input.as_slice::<T>()?, filter.as_slice::<T>()?);
        let image = |n: usize| &x[n * sizes.image()..(n + 1) * sizes.image()];
        let window = (sizes.rows.window * sizes.cols.window) as f64;
        if self.step == Step::Forward {
            let mut out = ctx.alloc_output(0, output)?;
            ctx.parallel_chunks(out.as_mut_slice::<T>()?, 1, window, |range, part| {
                for (at, out) in range.zip(part) {
                    let (n, at) = (at / sizes.output(), at % sizes.output());
                    *out = sizes.largest(image(n), w, sizes.place(at)).map_or(T::LOWEST, |best| best.0);
                }
            });
            return ctx.set_output(0, out);
        }
        let gradient = ctx.input(2)?;
        if *gradient.shape() != output {
            return Err(invalid_argument!(
                "out_backprop has incompatible size: expected {output}, got {}",
                gradient.shape()
            ));
        }
        let g = gradient.as_slice::<T>()?;
        let of_input = self.step == Step::InputGradient;
        let target = if of_input { input.shape() } else { filter.shape() };
        let mut out = Tensor::zeros(T::DTYPE, target.clone())?;
        let to = out.as_mut_slice::<T>()?;
        for (at, &g) in g.iter().enumerate() {
            let (n, at) = (at / sizes.output(), at % sizes.output());
            if let Some((_, from, tap)) = sizes.largest(image(n), w, sizes.place(at)) {
                let to = &mut to[if of_input { n * sizes.image() + from } else { tap }];
                *to = to.plus(g);
            }
        }
        ctx.set_output(0, out)
    }
}

impl Kernel for Dilation {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        dispatch!(ctx.output_type(0)?, T in reals => self.run::<T>(ctx))
            .unwrap_or_else(|| Err(internal!("Dilation2D does not take this type")))
    }
}

pub(crate) fn register(registry: &mut Registry) {
    for (op, step) in [
        ("Dilation2D", Step::Forward),
        ("Dilation2DBackpropInput", Step::InputGradient),
        ("Dilation2DBackpropFilter", Step::FilterGradient),
    ] {
        registry.op(op).types("T", DType::REALS).kernel(move |c| Dilation::new(c, step));
    }
}
