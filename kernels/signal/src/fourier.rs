//! `FFT`, `RFFT` and their inverses, over the last one, two or three dimensions.

use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, internal, invalid_argument};
use parking_lot::Mutex;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};
use std::sync::Arc;

/// Plans that a kernel keeps; a program transforms few lengths with one op.
const KEPT: usize = 8;
/// Columns that are gathered at once for a transform along an axis other than the last.
const COLUMNS: usize = 16;

/// Which transform.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Complex(FftDirection),
    /// From real numbers to the half of the spectrum that tells all.
    RealForward,
    /// Back from it.
    RealBackward,
}

/// Lengths with their plans, the most recent last.
type Kept<P> = Mutex<Vec<(usize, Arc<P>)>>;

struct Plans<T: FftNum> {
    complex: Kept<dyn Fft<T>>,
    to_complex: Kept<dyn RealToComplex<T>>,
    to_real: Kept<dyn ComplexToReal<T>>,
}

impl<T: FftNum> Plans<T> {
    fn new() -> Plans<T> {
        Plans { complex: Mutex::default(), to_complex: Mutex::default(), to_real: Mutex::default() }
    }
}

fn plan<P: ?Sized>(kept: &Kept<P>, length: usize, new: impl FnOnce() -> Arc<P>) -> Arc<P> {
    let mut kept = kept.lock();
    if let Some((_, plan)) = kept.iter().find(|(known, _)| *known == length) {
        return plan.clone();
    }
    if kept.len() == KEPT {
        kept.remove(0);
    }
    let plan = new();
    kept.push((length, plan.clone()));
    plan
}

/// Real numbers to transform.
trait Part: FftNum + Element {
    fn plans(op: &Fourier) -> &Plans<Self>;
}

impl Part for f32 {
    fn plans(op: &Fourier) -> &Plans<f32> {
        &op.single
    }
}

impl Part for f64 {
    fn plans(op: &Fourier) -> &Plans<f64> {
        &op.double
    }
}

struct Fourier {
    form: Form,
    rank: usize,
    single: Plans<f32>,
    double: Plans<f64>,
}

/// What a call transforms.
struct Call {
    output: Shape,
    /// The lengths of the transform, outermost first.
    lengths: Vec<usize>,
}

impl Fourier {
    fn new(form: Form, rank: usize) -> Fourier {
        Fourier { form, rank, single: Plans::new(), double: Plans::new() }
    }

    /// The direction of the transforms along all axes but the last.
    fn direction(&self) -> FftDirection {
        match self.form {
            Form::Complex(direction) => direction,
            Form::RealForward => FftDirection::Forward,
            Form::RealBackward => FftDirection::Inverse,
        }
    }

    fn call(&self, ctx: &Context<'_>) -> Result<Call> {
        let input = ctx.input(0)?.shape();
        let Some(outer) = input.rank().checked_sub(self.rank) else {
            return Err(invalid_argument!("Input must have rank of at least {} but got: {input}", self.rank));
        };
        if let Form::Complex(_) = self.form {
            return Ok(Call { output: input.clone(), lengths: input.dims()[outer..].to_vec() });
        }
        let length = ctx.input(1)?;
        if length.shape().dims() != [self.rank] {
            return Err(invalid_argument!("fft_length must have shape [{}]", self.rank));
        }
        let mut dims = input.dims().to_vec();
        let mut lengths = Vec::with_capacity(self.rank);
        for (i, &length) in length.as_slice::<i32>()?.iter().enumerate() {
            let Ok(size) = usize::try_from(length) else {
                return Err(invalid_argument!("fft_length[{i}] must >= 0, but got: {length}"));
            };
            let innermost = i + 1 == self.rank;
            let half = size / 2 + 1;
            let least = if innermost && self.form == Form::RealBackward { half } else { size };
            let axis = outer + i;
            if dims[axis] != 0 && dims[axis] < least {
                return Err(invalid_argument!(
                    "Input dimension {axis} must have length of at least {least} but got: {}",
                    dims[axis]
                ));
            }
            dims[axis] = if innermost && self.form == Form::RealForward && size != 0 { half } else { size };
            lengths.push(size);
        }
        Ok(Call { output: Shape::from_dims(&dims)?, lengths })
    }

    fn run<T: Part>(&self, ctx: &mut Context<'_>, call: &Call) -> Result<Tensor>
    where
        Complex<T>: Element,
    {
        let input = ctx.input(0)?;
        if input.num_elements() == 0 || call.output.num_elements() == 0 {
            let batch: usize = input.shape().dims()[..input.shape().rank() - self.rank].iter().product();
            if input.num_elements() > 0 && call.lengths.contains(&0) {
                let shape: Vec<String> =
                    std::iter::once(batch).chain(call.lengths.iter().copied()).map(|d| d.to_string()).collect();
                return Err(invalid_argument!("Obtained a FFT shape of 0 elements: [{}]", shape.join(",")));
            }
            return Tensor::zeros(ctx.output_type(0)?, call.output.clone());
        }
        let plans = T::plans(self);
        match self.form {
            Form::Complex(direction) => {
                let (mut out, reused) = ctx.reuse_or_alloc(&[0], 0, &call.output)?;
                if reused.is_none() {
                    out.copy_elements(0, ctx.input(0)?, 0..call.output.num_elements())?;
                }
                self.along_axes(ctx, &call.lengths, out.as_mut_slice::<Complex<T>>()?);
                if direction == FftDirection::Inverse {
                    scale::<_, T>(ctx, out.as_mut_slice::<Complex<T>>()?, &call.lengths);
                }
                Ok(out)
            }
            Form::RealForward => {
                let length = last(&call.lengths);
                let plan = plan(&plans.to_complex, length, || RealFftPlanner::new().plan_fft_forward(length));
                let (half, width) = (length / 2 + 1, input.shape().dim(input.shape().rank() - 1));
                let x = input.as_slice::<T>()?;
                let rows = Rows::new(input.shape(), &call.lengths);
                let mut out = ctx.alloc_output(0, call.output.clone())?;
                let target = out.as_mut_slice::<Complex<T>>()?;
                ctx.parallel_chunks(target, half, cost(length), |range, part| {
                    let (mut row, mut scratch) = (plan.make_input_vec(), plan.make_scratch_vec());
                    for (i, out) in range.zip(part.chunks_exact_mut(half)) {
                        let start = rows.source(i) * width;
                        row.copy_from_slice(&x[start..start + length]);
                        // Only lengths can be wrong, and they are the plan's own.
                        let _ = plan.process_with_scratch(&mut row, out, &mut scratch);
                    }
                });
                let mut sizes = call.lengths.clone();
                if let Some(size) = sizes.last_mut() {
                    *size = half;
                }
                self.along_outer_axes(ctx, &sizes, target);
                Ok(out)
            }
            Form::RealBackward => {
                let length = last(&call.lengths);
                let plan = plan(&plans.to_real, length, || RealFftPlanner::new().plan_fft_inverse(length));
                let (half, width) = (length / 2 + 1, input.shape().dim(input.shape().rank() - 1));
                let rows = Rows::new(input.shape(), &call.lengths);
                let x = input.as_slice::<Complex<T>>()?;
                let count = call.output.num_elements() / length;
                let mut spectrum = Vec::with_capacity(count * half);
                for i in 0..count {
                    let start = rows.source(i) * width;
                    spectrum.extend_from_slice(&x[start..start + half]);
                }
                let mut sizes = call.lengths.clone();
                if let Some(size) = sizes.last_mut() {
                    *size = half;
                }
                self.along_outer_axes(ctx, &sizes, &mut spectrum);
                let mut out = ctx.alloc_output(0, call.output.clone())?;
                ctx.parallel_chunks(out.as_mut_slice::<T>()?, length, cost(length), |range, part| {
                    let (mut row, mut scratch) = (plan.make_input_vec(), plan.make_scratch_vec());
                    for (i, out) in range.zip(part.chunks_exact_mut(length)) {
                        row.copy_from_slice(&spectrum[i * half..(i + 1) * half]);
                        // The only complaint is of imaginary parts that must be zero; they are taken as zero then.
                        let _ = plan.process_with_scratch(&mut row, out, &mut scratch);
                    }
                });
                scale::<_, T>(ctx, out.as_mut_slice::<T>()?, &call.lengths);
                Ok(out)
            }
        }
    }

    /// Transforms along every axis of `sizes`.
    fn along_axes<T: Part>(&self, ctx: &Context<'_>, sizes: &[usize], data: &mut [Complex<T>]) {
        let length = last(sizes);
        let plan = self.complex_plan::<T>(length);
        ctx.parallel_chunks(data, length, cost(length), |_, part| plan.process(part));
        self.along_outer_axes(ctx, sizes, data);
    }

    fn complex_plan<T: Part>(&self, length: usize) -> Arc<dyn Fft<T>> {
        let direction = self.direction();
        plan(&T::plans(self).complex, length, || FftPlanner::new().plan_fft(length, direction))
    }

    /// Transforms along every axis of `sizes` but the last.
    fn along_outer_axes<T: Part>(&self, ctx: &Context<'_>, sizes: &[usize], data: &mut [Complex<T>]) {
        for axis in (0..sizes.len() - 1).rev() {
            let length = sizes[axis];
            let inner: usize = sizes[axis + 1..].iter().product();
            let plan = self.complex_plan::<T>(length);
            ctx.parallel_chunks(data, length * inner, inner as f64 * cost(length), |_, part| {
                let zero = Complex { re: T::zero(), im: T::zero() };
                let mut columns = vec![zero; COLUMNS * length];
                let mut scratch = vec![zero; plan.get_inplace_scratch_len()];
                for block in part.chunks_exact_mut(length * inner) {
                    for first in (0..inner).step_by(COLUMNS) {
                        let count = COLUMNS.min(inner - first);
                        for i in 0..length {
                            for c in 0..count {
                                columns[c * length + i] = block[i * inner + first + c];
                            }
                        }
                        plan.process_with_scratch(&mut columns[..count * length], &mut scratch);
                        for i in 0..length {
                            for c in 0..count {
                                block[i * inner + first + c] = columns[c * length + i];
                            }
                        }
                    }
                }
            });
        }
    }
}

fn last(lengths: &[usize]) -> usize {
    lengths.last().copied().unwrap_or(1)
}

/// The time of a transform of this length in nanoseconds, roughly.
fn cost(length: usize) -> f64 {
    length as f64 * (1.0 + (length as f64).log2())
}

/// Divides by the number of elements that a transform goes over.
fn scale<T, D>(ctx: &Context<'_>, data: &mut [T], lengths: &[usize])
where
    T: Copy + Send + std::ops::Mul<D, Output = T>,
    D: FftNum,
{
    let count = lengths.iter().fold(1.0, |n, &l| n * l as f64);
    if let Some(factor) = D::from_f64(1.0 / count) {
        ctx.parallel_chunks(data, 1, 0.3, |_, part| part.iter_mut().for_each(|x| *x = *x * factor));
    }
}

/// Where the rows that are transformed lie in the input, whose dimensions may be longer.
struct Rows {
    /// For each dimension of the transform but the last: its length, and the input's.
    dims: Vec<(usize, usize)>,
}

impl Rows {
    fn new(input: &Shape, lengths: &[usize]) -> Rows {
        let outer = input.rank() - lengths.len();
        let dims = lengths.iter().enumerate().take(lengths.len() - 1).map(|(i, &n)| (n, input.dim(outer + i)));
        Rows { dims: dims.collect() }
    }

    /// The row of the input that is row `i` of the transform.
    fn source(&self, i: usize) -> usize {
        let (mut rest, mut source, mut stride) = (i, 0, 1);
        for &(length, size) in self.dims.iter().rev() {
            source += rest % length * stride;
            rest /= length;
            stride *= size;
        }
        source + rest * stride
    }
}

impl Kernel for Fourier {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let call = self.call(ctx)?;
        let (from, to) = (ctx.input(0)?.dtype(), ctx.output_type(0)?);
        let (single, double) = match self.form {
            Form::Complex(_) => ((DType::Complex64, DType::Complex64), (DType::Complex128, DType::Complex128)),
            Form::RealForward => ((DType::Float, DType::Complex64), (DType::Double, DType::Complex128)),
            Form::RealBackward => ((DType::Complex64, DType::Float), (DType::Complex128, DType::Double)),
        };
        let out = if (from, to) == single {
            self.run::<f32>(ctx, &call)?
        } else if (from, to) == double {
            self.run::<f64>(ctx, &call)?
        } else {
            return Err(match self.form {
                Form::Complex(_) => internal!("Wrong types for FFT: in={from} out={to}"),
                Form::RealForward => invalid_argument!("Wrong types for forward real FFT: in={from} out={to}"),
                Form::RealBackward => invalid_argument!("Wrong types for backward real FFT: in={from} out={to}"),
            });
        };
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(r: &mut Registry) {
    let names = [["FFT", "FFT2D", "FFT3D"], ["IFFT", "IFFT2D", "IFFT3D"]];
    for (names, direction) in names.into_iter().zip([FftDirection::Forward, FftDirection::Inverse]) {
        for (name, rank) in names.into_iter().zip(1..) {
            r.op(name).kernel(move |_| Ok(Fourier::new(Form::Complex(direction), rank)));
        }
    }
    let names = [["RFFT", "RFFT2D", "RFFT3D"], ["IRFFT", "IRFFT2D", "IRFFT3D"]];
    for (names, form) in names.into_iter().zip([Form::RealForward, Form::RealBackward]) {
        for (name, rank) in names.into_iter().zip(1..) {
            r.op(name).kernel(move |_| Ok(Fourier::new(form, rank)));
        }
    }
}
