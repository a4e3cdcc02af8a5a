//! Distinct values, and differences of lists.

use crate::args::{axis_of, integers};
use crate::types::{STRING, union};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Mover, Result, Shape, Tensor, bf16, dispatch, f16, internal, invalid_argument};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

pub(crate) fn register(registry: &mut Registry) {
    let compared = union(&[DType::REALS, STRING]);
    let unique = union(&[&compared, &[DType::Bool]]);
    for op in ["Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2"] {
        registry.op(op).types("T", &unique).types("out_idx", DType::INDICES).kernel(|_| Ok(Unique));
    }
    registry.op("ListDiff").types("T", &compared).types("out_idx", DType::INDICES).kernel(|_| Ok(ListDiff));
}

/// What an element is equal to: equal elements have equal keys, and NaN, equal to nothing, has none.
trait Key: Element {
    fn key(self) -> Option<u64>;
}

macro_rules! integer_keys {
    ($($t:ty),*) => {$(
        impl Key for $t {
            fn key(self) -> Option<u64> {
                Some(self as u64)
            }
        }
    )*};
}

macro_rules! float_keys {
    ($($t:ty),*) => {$(
        impl Key for $t {
            fn key(self) -> Option<u64> {
                // Both zeros are equal.
                if self == <$t>::default() { Some(0) } else { (!self.is_nan()).then(|| u64::from(self.to_bits())) }
            }
        }
    )*};
}

integer_keys!(bool, i8, i16, i32, i64, u8, u16, u32, u64);
/// TensorFlow's tables tell the zeros of the 16-bit types apart, as it hashes their bits.
macro_rules! half_keys {
    ($($t:ty),*) => {$(
        impl Key for $t {
            fn key(self) -> Option<u64> {
                (!self.is_nan()).then(|| u64::from(self.to_bits()))
            }
        }
    )*};
}

float_keys!(f32, f64);
half_keys!(f16, bf16);

/// The keys of all elements. Strings get the number of their first occurrence; `known` keeps these numbers.
fn keys<'a>(tensor: &'a Tensor, known: &mut HashMap<&'a [u8], u64>) -> Result<Vec<Option<u64>>> {
    if tensor.dtype() == DType::String {
        let mut number = |value: &'a [u8]| {
            let next = known.len() as u64;
            Some(*known.entry(value).or_insert(next))
        };
        return Ok(tensor.strings()?.iter().map(|s| number(s)).collect());
    }
    dispatch!(tensor.dtype(), T in [f32, f64, i32, i64, u8, i8, i16, u16, u32, u64, f16, bf16, bool] => {
        tensor.as_slice::<T>()?.iter().map(|v| v.key()).collect()
    })
    .ok_or_else(|| internal!("{} elements are not compared", tensor.dtype()))
}

/// Of the items in order: which distinct one each is, and where each distinct one is first.
fn distinct<K: Hash + Eq>(items: impl Iterator<Item = Option<K>>) -> (Vec<usize>, Vec<usize>) {
    let mut numbers: HashMap<K, usize> = HashMap::new();
    let (mut which, mut first) = (Vec::new(), Vec::new());
    for (i, item) in items.enumerate() {
        let next = first.len();
        let number = match item {
            Some(key) => *numbers.entry(key).or_insert(next),
            None => next,
        };
        if number == next {
            first.push(i);
        }
        which.push(number);
    }
    (which, first)
}

fn index_tensor(dtype: DType, values: &[usize]) -> Result<Tensor> {
    match dtype {
        DType::Int64 => Tensor::vector(&values.iter().map(|&v| v as i64).collect::<Vec<_>>()),
        _ => Tensor::vector(&values.iter().map(|&v| v as i32).collect::<Vec<_>>()),
    }
}

/// The distinct slices along an axis in the order of their first occurrence, for each slice which one it is, and optionally how
/// often each occurs.
struct Unique;

impl Unique {
    fn axis(ctx: &Context<'_>) -> Result<usize> {
        let input = ctx.input(0)?.shape();
        let only_vectors = || match input.is_vector() {
            true => Ok(0),
            false => Err(invalid_argument!("unique expects a 1D vector.")),
        };
        if ctx.num_inputs() < 2 {
            return only_vectors();
        }
        let axis = ctx.input(1)?;
        if !axis.shape().is_vector() {
            return Err(invalid_argument!("axis expects a 1D vector."));
        }
        match integers(axis)?.as_slice() {
            [] => only_vectors(),
            [axis] => axis_of(*axis, input.rank())
                .ok_or_else(|| invalid_argument!("axis has to be between [0, {})", input.rank())),
            _ => Err(invalid_argument!("axis does not support input tensors larger than 1 elements")),
        }
    }
}

impl Kernel for Unique {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let index_type = ctx.output_type(1)?;
        if index_type == DType::Int32 && i32::try_from(input.num_elements()).is_err() {
            return Err(invalid_argument!("unique does not support input tensors larger than {} elements", i32::MAX));
        }
        let axis = Unique::axis(ctx)?;
        let shape = input.shape();
        let (count, inner) = (shape.dim(axis), shape.stride(axis));
        let outer: usize = shape.dims()[..axis].iter().product();
        let keys = keys(input, &mut HashMap::new())?;
        let (which, first) = if outer == 1 && inner == 1 {
            distinct(keys.into_iter())
        } else {
            distinct((0..count).map(|i| {
                let rows = (0..outer).flat_map(|o| &keys[(o * count + i) * inner..(o * count + i + 1) * inner]);
                rows.copied().collect::<Option<Vec<u64>>>()
            }))
        };
        let mut values = ctx.alloc_output(0, shape.with_dim(axis, first.len())?)?;
        if inner > 0 {
            values.move_from(&[input], Select { picks: &first, count, inner })?;
        }
        ctx.set_output(0, values)?;
        ctx.set_output(1, index_tensor(index_type, &which)?)?;
        if ctx.num_outputs() > 2 {
            let mut counts = vec![0; first.len()];
            which.iter().for_each(|&i| counts[i] += 1);
            ctx.set_output(2, index_tensor(index_type, &counts)?)?;
        }
        Ok(())
    }
}

/// Copies the picked slices of a dimension of size `count`.
struct Select<'a> {
    picks: &'a [usize],
    count: usize,
    inner: usize,
}

impl Mover for Select<'_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let picked = self.picks.len().max(1);
        for (k, place) in target.chunks_exact_mut(self.inner).enumerate() {
            let from = (k / picked * self.count + self.picks[k % picked]) * self.inner;
            place.clone_from_slice(&sources[0][from..from + self.inner]);
        }
    }
}

/// The elements of `x` that are not in `y`, and where they are.
struct ListDiff;

impl Kernel for ListDiff {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (x, y) = (ctx.input(0)?, ctx.input(1)?);
        for (name, tensor) in [("x", x), ("y", y)] {
            if !tensor.shape().is_vector() {
                return Err(invalid_argument!("{name} should be a 1D vector."));
            }
        }
        let index_type = ctx.output_type(1)?;
        if index_type == DType::Int32 && i32::try_from(x.num_elements()).is_err() {
            return Err(invalid_argument!("x too large for int32 indexing"));
        }
        let mut known = HashMap::new();
        let taken: HashSet<u64> = keys(y, &mut known)?.into_iter().flatten().collect();
        let keys = keys(x, &mut known)?;
        let kept: Vec<usize> = (0..keys.len()).filter(|&i| keys[i].is_none_or(|key| !taken.contains(&key))).collect();
        let mut values = ctx.alloc_output(0, Shape::vector(kept.len()))?;
        values.move_from(&[x], Select { picks: &kept, count: keys.len(), inner: 1 })?;
        drop(known);
        ctx.set_output(0, values)?;
        ctx.set_output(1, index_tensor(index_type, &kept)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, registry, tensor};
    use graphmill_runtime::testing::OpRun;

    #[test]
    fn values_in_the_order_of_occurrence() {
        let outputs = int_op("UniqueWithCounts").run(&registry(), vec![tensor(&[5], &[4, 2, 4, 4, 7])]).unwrap();
        assert_ints(&outputs[0], &[3], &[4, 2, 7]);
        assert_ints(&outputs[1], &[5], &[0, 1, 0, 0, 2]);
        assert_ints(&outputs[2], &[3], &[3, 1, 1]);
        let floats = tensor(&[5], &[1.0f32, f32::NAN, f32::NAN, 0.0, -0.0]);
        let outputs = OpRun::new("Unique").attr_type("T", DType::Float).run(&registry(), vec![floats]).unwrap();
        assert_ints(&outputs[1], &[5], &[0, 1, 2, 3, 3]);
        assert_error(int_op("Unique").run(&registry(), vec![counting(&[1, 1])]), "unique expects a 1D vector.");
        let strings = Tensor::from_strings(Shape::vector(3), vec!["a".into(), "".into(), "a".into()]).unwrap();
        let outputs = OpRun::new("Unique").attr_type("T", DType::String).run(&registry(), vec![strings]).unwrap();
        assert_eq!(outputs[0].strings().unwrap(), ["a", ""]);
    }

    #[test]
    fn slices_along_an_axis() {
        let x = tensor(&[3, 2], &[1, 2, 1, 2, 3, 2]);
        let unique = |axis: i32| {
            int_op("UniqueV2").attr_type("Taxis", DType::Int32).run(&registry(), vec![x.clone(), tensor(&[1], &[axis])])
        };
        let outputs = unique(0).unwrap();
        assert_ints(&outputs[0], &[2, 2], &[1, 2, 3, 2]);
        assert_ints(&outputs[1], &[3], &[0, 0, 1]);
        assert_ints(&unique(-1).unwrap()[0], &[3, 2], &[1, 2, 1, 2, 3, 2]);
        assert_error(unique(2), "axis has to be between [0, 2)");
    }

    #[test]
    fn differences() {
        let outputs =
            int_op("ListDiff").run(&registry(), vec![tensor(&[4], &[5, 1, 5, 2]), tensor(&[2], &[1, 9])]).unwrap();
        assert_ints(&outputs[0], &[3], &[5, 5, 2]);
        assert_ints(&outputs[1], &[3], &[0, 2, 3]);
        let strings = |v: &[&str]| {
            Tensor::from_strings(Shape::vector(v.len()), v.iter().map(|s| s.as_bytes().to_vec().into()).collect())
                .unwrap()
        };
        let op = OpRun::new("ListDiff").attr_type("T", DType::String);
        let outputs = op.run(&registry(), vec![strings(&["a", "b"]), strings(&["b"])]).unwrap();
        assert_eq!(outputs[0].strings().unwrap(), ["a"]);
        assert_error(
            int_op("ListDiff").run(&registry(), vec![counting(&[1, 1]), counting(&[1])]),
            "x should be a 1D vector.",
        );
    }
}
