//! `SobolSample`: points of a Sobol sequence, from the direction numbers of Joe and Kuo (see `make_sobol_numbers.py`).

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

// TensorFlow's points come out negative from the 2^30th on, as a sign overflows there; these do not.

/// How the direction numbers of each dimension start, packed.
const PACKED: &[u8] = include_bytes!("sobol_numbers.bin");
/// Dimensions that there are numbers for.
const MOST_DIMENSIONS: usize = 21200;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SobolSample").types("dtype", &[DType::Double, DType::Float]).kernel(SobolSample::new);
}

/// Reads fields of bits, the lowest first.
struct Bits {
    at: usize,
}

impl Bits {
    fn take(&mut self, width: usize) -> u32 {
        let bit = |i: usize| PACKED.get(i / 8).map_or(0, |byte| u32::from(byte >> (i % 8) & 1));
        let value = (0..width).fold(0, |value, i| value | bit(self.at + i) << i);
        self.at += width;
        value
    }

    /// The first `digits` direction numbers of the next dimension.
    fn dimension(&mut self, digits: usize) -> Vec<u32> {
        let degree = self.take(5) as usize + 1;
        let coefficients = self.take(degree - 1);
        let mut numbers: Vec<u32> = (0..degree).map(|i| self.take(i) << 1 | 1).collect();
        for i in degree..digits {
            let mut next = numbers[i - degree] ^ numbers[i - degree] << degree;
            for k in 1..degree {
                if coefficients >> (degree - 1 - k) & 1 == 1 {
                    next ^= numbers[i - k] << k;
                }
            }
            numbers.push(next);
        }
        numbers.truncate(digits);
        numbers
    }
}

/// For each dimension its direction numbers as fractions of `1 << digits`.
fn directions(dimensions: usize, digits: usize) -> Vec<Vec<u32>> {
    let mut bits = Bits { at: 0 };
    let mut all = Vec::with_capacity(dimensions);
    for dimension in 0..dimensions {
        let numbers = if dimension == 0 { vec![1; digits] } else { bits.dimension(digits) };
        all.push(numbers.iter().enumerate().map(|(k, number)| number << (digits - k - 1)).collect());
    }
    all
}

struct SobolSample(DType);

impl SobolSample {
    fn new(c: &Construction<'_>) -> Result<SobolSample> {
        c.dtype("dtype").map(SobolSample)
    }
}

impl Kernel for SobolSample {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let scalar = |i: usize, name: &str| {
            let input = ctx.input(i)?;
            if input.num_elements() != 1 {
                return Err(invalid_argument!("{name} must be a scalar, got shape {}", input.shape()));
            }
            Ok(i64::from(input.as_slice::<i32>()?.first().copied().unwrap_or(0)))
        };
        let (dimensions, count, skip) = (scalar(0, "dim")?, scalar(1, "num_results")?, scalar(2, "skip")?);
        if dimensions < 1 {
            return Err(invalid_argument!("dim must be at least one"));
        }
        if dimensions > MOST_DIMENSIONS as i64 {
            return Err(invalid_argument!("dim must be at most {MOST_DIMENSIONS}"));
        }
        if count < 1 {
            return Err(invalid_argument!("num_results must be at least one"));
        }
        if skip < 0 {
            return Err(invalid_argument!("skip must be non-negative"));
        }
        let limit = i64::from(i32::MAX);
        if count >= limit - skip {
            return Err(invalid_argument!("num_results+skip must be less than {limit}"));
        }
        let mut output = Tensor::alloc(self.0, Shape::new(&[count, dimensions])?)?;
        let (dimensions, first) = (dimensions as usize, skip as u64 + 1);
        // As many digits as the number of the last point has.
        let digits = 64 - (first + count as u64).leading_zeros() as usize;
        let directions = directions(dimensions, digits.min(31));
        let points = Points { directions: &directions, first, unit: 1.0 / (1u64 << digits.min(31)) as f64 };
        let cost = 3.0 * dimensions as f64;
        match self.0 {
            DType::Double => ctx.parallel_chunks(output.as_mut_slice::<f64>()?, dimensions, cost, |range, part| {
                points.fill(range.start, part, |value| value);
            }),
            _ => ctx.parallel_chunks(output.as_mut_slice::<f32>()?, dimensions, cost, |range, part| {
                points.fill(range.start, part, |value| value as f32);
            }),
        }
        ctx.set_output(0, output)
    }
}

struct Points<'a> {
    directions: &'a [Vec<u32>],
    /// The number of the first point.
    first: u64,
    unit: f64,
}

impl Points<'_> {
    /// Points from `start` on: the first by its Gray code, and each other from the one before it, of whose code one bit changes.
    fn fill<T>(&self, start: usize, part: &mut [T], value: impl Fn(f64) -> T) {
        let number = self.first + start as u64;
        let code = number ^ number >> 1;
        let at = |directions: &Vec<u32>| {
            directions.iter().enumerate().filter(|&(k, _)| code >> k & 1 == 1).fold(0, |sum, (_, d)| sum ^ d)
        };
        let mut point: Vec<u32> = self.directions.iter().map(at).collect();
        for (i, out) in part.chunks_exact_mut(point.len()).enumerate() {
            if i > 0 {
                let bit = (number + i as u64 - 1).trailing_ones() as usize;
                for (coordinate, directions) in point.iter_mut().zip(self.directions) {
                    *coordinate ^= directions.get(bit).copied().unwrap_or(0);
                }
            }
            out.iter_mut().zip(&point).for_each(|(out, &coordinate)| *out = value(f64::from(coordinate) * self.unit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_three_dimensions() {
        let directions = directions(3, 3);
        let mut out = vec![0.0; 9];
        Points { directions: &directions, first: 1, unit: 0.125 }.fill(0, &mut out, |value| value);
        assert_eq!(out, [0.5, 0.5, 0.5, 0.75, 0.25, 0.25, 0.25, 0.75, 0.75]);
    }

    #[test]
    fn the_packed_numbers_end_with_the_last_dimension() {
        let mut bits = Bits { at: 0 };
        (1..MOST_DIMENSIONS).for_each(|_| drop(bits.dimension(1)));
        assert_eq!(bits.at.div_ceil(8), PACKED.len());
    }
}
