//! The largest elements of rows, and whether a target is among them.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Tensor, dispatch, internal, invalid_argument};

/// A binary heap that never asks for a total order, which NaN would break, and takes the steps of the C++ standard library, so that
/// NaN ends up where it does in TensorFlow. `less(a, b)` puts the greatest at the front.
mod heap {
    /// Sinks `value` from `hole` to where it belongs among the first `length` elements.
    fn adjust<T: Copy>(heap: &mut [T], mut hole: usize, length: usize, value: T, less: &impl Fn(T, T) -> bool) {
        let top = hole;
        let mut child = hole;
        while child < (length.saturating_sub(1)) / 2 {
            child = 2 * (child + 1);
            if less(heap[child], heap[child - 1]) {
                child -= 1;
            }
            heap[hole] = heap[child];
            hole = child;
        }
        if length.is_multiple_of(2) && length >= 2 && child == (length - 2) / 2 {
            child = 2 * (child + 1);
            heap[hole] = heap[child - 1];
            hole = child - 1;
        }
        while hole > top {
            let parent = (hole - 1) / 2;
            if !less(heap[parent], value) {
                break;
            }
            heap[hole] = heap[parent];
            hole = parent;
        }
        heap[hole] = value;
    }

    /// Makes a heap of all elements.
    pub fn make<T: Copy>(heap: &mut [T], less: &impl Fn(T, T) -> bool) {
        let length = heap.len();
        for parent in (0..length / 2).rev() {
            let value = heap[parent];
            adjust(heap, parent, length, value, less);
        }
    }

    /// Moves the front to the end and makes a heap of the others.
    pub fn pop<T: Copy>(heap: &mut [T], less: &impl Fn(T, T) -> bool) {
        if let Some(last) = heap.len().checked_sub(1).filter(|&last| last > 0) {
            let value = heap[last];
            heap[last] = heap[0];
            adjust(heap, 0, last, value, less);
        }
    }

    /// Sorts a heap, the greatest last.
    pub fn sort<T: Copy>(heap: &mut [T], less: &impl Fn(T, T) -> bool) {
        for length in (2..=heap.len()).rev() {
            pop(&mut heap[..length], less);
        }
    }
}

/// Puts the positions of the `k` largest elements of a row into `found`, which has room for one more.
fn largest<T: PartialOrd + Copy>(row: &[T], k: usize, sorted: bool, found: &mut Vec<u32>) {
    found.clear();
    let at = |position: u32| row[position as usize];
    if k == 1 {
        // As TensorFlow: the maximum passes over NaN unless that comes first.
        let mut best = 0;
        for (position, &value) in row.iter().enumerate() {
            if row[best] < value {
                best = position;
            }
        }
        found.push(best as u32);
        return;
    }
    let better = |a: u32, b: u32| {
        if at(b) < at(a) {
            true
        } else if at(b) > at(a) {
            false
        } else {
            a < b
        }
    };
    if k == row.len() {
        found.extend(0..k as u32);
        // A total order, as sorting needs: what compares with nothing comes last.
        let order = |v: T| v.partial_cmp(&v).is_none();
        found.sort_by(|&a, &b| {
            order(at(a)).cmp(&order(at(b))).then(at(b).partial_cmp(&at(a)).unwrap_or(std::cmp::Ordering::Equal))
        });
        return;
    }
    found.extend(0..=k as u32);
    heap::make(found, &better);
    heap::pop(found, &better);
    for position in k as u32 + 1..row.len() as u32 {
        if better(position, found[0]) {
            found[k] = position;
            heap::pop(found, &better);
        }
    }
    found.truncate(k);
    if sorted {
        heap::sort(found, &better);
    }
}

/// `TopKV2(input, k) -> (values, indices)`, `TopK(input) -> (values, indices)`: the `k` largest of each row along the last
/// dimension, the lower position first among equals; in descending order, or in no particular one if `sorted` is false.
struct TopK {
    dtype: DType,
    index_type: DType,
    /// The attribute, for the op that has no second input.
    k: Option<i64>,
    sorted: bool,
}

impl TopK {
    fn new(c: &Construction<'_>, from_attr: bool) -> Result<TopK> {
        Ok(TopK {
            dtype: c.dtype("T")?,
            index_type: if from_attr { DType::Int32 } else { c.dtype("index_type")? },
            k: if from_attr { Some(c.attrs().int("k")?) } else { None },
            sorted: c.attrs().bool("sorted")?,
        })
    }

    fn k(&self, ctx: &Context<'_>) -> Result<i64> {
        let Some(k) = self.k else {
            let k = ctx.input(1)?;
            if !k.shape().is_scalar() {
                return Err(invalid_argument!("k must be scalar, got shape {}", k.shape()));
            }
            return match k.dtype() {
                DType::Int16 => k.scalar_value::<i16>().map(i64::from),
                // The kernel holds k in 32 bits.
                DType::Int64 => k.scalar_value::<i64>().map(|k| i64::from(k as i32)),
                _ => k.scalar_value::<i32>().map(i64::from),
            };
        };
        Ok(k)
    }
}

impl Kernel for TopK {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let k = self.k(ctx)?;
        let Ok(k) = usize::try_from(k) else {
            return Err(invalid_argument!("Need k >= 0, got {k}"));
        };
        let input = ctx.input(0)?;
        let shape = input.shape();
        let Some(&columns) = shape.dims().last() else {
            return Err(invalid_argument!("input must be >= 1-D, got shape {shape}"));
        };
        if columns < k {
            return Err(invalid_argument!("input must have at least k columns. Had {columns}, needed {k}"));
        }
        let rows = input.num_elements().checked_div(columns).unwrap_or(0);
        for (name, size) in [("First", rows), ("Second", columns)] {
            if i32::try_from(size).is_err() {
                return Err(invalid_argument!("{name} dimension of flattened input must be <= INT_MAX, got {size}"));
            }
        }
        let outputs = dispatch!(self.dtype, T in reals => match self.index_type {
            DType::Int16 => top_k::<T, i16>(ctx, input, k, self.sorted, |at| at as i16),
            DType::Int64 => top_k::<T, i64>(ctx, input, k, self.sorted, i64::from),
            _ => top_k::<T, i32>(ctx, input, k, self.sorted, |at| at as i32),
        });
        let (values, indices) = outputs.ok_or_else(|| internal!("no order of {}", self.dtype))??;
        ctx.set_output(0, values)?;
        ctx.set_output(1, indices)
    }
}

fn top_k<T: Element + PartialOrd, I: Element>(
    ctx: &Context<'_>,
    input: &Tensor,
    k: usize,
    sorted: bool,
    index: impl Fn(u32) -> I + Sync,
) -> Result<(Tensor, Tensor)> {
    let last = input.shape().rank() - 1;
    let columns = input.shape().dim(last);
    let shape = input.shape().with_dim(last, k)?;
    let mut values = Tensor::alloc(T::DTYPE, shape.clone())?;
    let mut indices = Tensor::alloc(I::DTYPE, shape)?;
    if k > 0 {
        let source = input.as_slice::<T>()?;
        let values = values.as_mut_slice::<T>()?.chunks_exact_mut(k);
        let mut places: Vec<(&mut [T], &mut [I])> =
            values.zip(indices.as_mut_slice::<I>()?.chunks_exact_mut(k)).collect();
        let cost = columns as f64 * 2.0 + k as f64 * (k as f64 + 1.0).log2() * 5.0;
        ctx.parallel_chunks(&mut places, 1, cost, |range, part| {
            let mut found = Vec::with_capacity(k + 1);
            for (row, (values, indices)) in range.zip(part) {
                let row = &source[row * columns..(row + 1) * columns];
                largest(row, k, sorted, &mut found);
                for ((value, at), &position) in values.iter_mut().zip(indices.iter_mut()).zip(&found) {
                    *value = row[position as usize];
                    *at = index(position);
                }
            }
        });
    }
    Ok((values, indices))
}

/// `InTopKV2(predictions, targets, k)`, `InTopK(predictions, targets)`: whether fewer than `k` classes of a row are more probable
/// than its target. False if the target does not exist, or its prediction or one looked at before that is decided is not finite.
struct InTopK(Option<i64>);

impl Kernel for InTopK {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let k = match self.0 {
            Some(k) => k,
            None => {
                let k = ctx.input(2)?;
                if !k.shape().is_scalar() {
                    return Err(invalid_argument!("k must be 0-D, got shape {}", k.shape()));
                }
                k.to_i64_vec()?.first().copied().unwrap_or_default()
            }
        };
        let (predictions, targets) = (ctx.input(0)?, ctx.input(1)?);
        if !predictions.shape().is_matrix() {
            return Err(invalid_argument!("predictions must be 2-dimensional"));
        }
        if !targets.shape().is_vector() {
            return Err(invalid_argument!("targets must be 1-dimensional"));
        }
        let (rows, classes) = (predictions.shape().dim(0), predictions.shape().dim(1));
        if rows != targets.num_elements() {
            return Err(invalid_argument!(
                "First dimension of predictions {rows} must match length of targets {}",
                targets.num_elements()
            ));
        }
        let mut output = Tensor::alloc(DType::Bool, targets.shape().clone())?;
        let (predictions, targets) = (predictions.as_slice::<f32>()?, targets.to_i64_vec()?);
        ctx.parallel_chunks(output.as_mut_slice::<bool>()?, 1, classes as f64, |range, part| {
            for (row, to) in range.zip(part) {
                *to = in_top_k(&predictions[row * classes..(row + 1) * classes], targets[row], k);
            }
        });
        ctx.set_output(0, output)
    }
}

fn in_top_k(predictions: &[f32], target: i64, k: i64) -> bool {
    let target = usize::try_from(target).ok().and_then(|t| predictions.get(t)).filter(|p| p.is_finite());
    let Some(&target) = target else {
        return false;
    };
    let mut better = 0;
    for &prediction in predictions {
        if !prediction.is_finite() {
            return false;
        }
        if prediction > target {
            better += 1;
            if better > k {
                break;
            }
        }
    }
    better < k
}

pub(crate) fn register(registry: &mut Registry) {
    let labels = &[DType::Int32, DType::Int64];
    registry.op("InTopK").types("T", labels).kernel(|c: &Construction<'_>| c.attrs().int("k").map(|k| InTopK(Some(k))));
    registry.op("InTopKV2").types("T", labels).kernel(|_: &Construction<'_>| Ok(InTopK(None)));
    registry.op("TopK").types("T", DType::REALS).kernel(|c: &Construction<'_>| TopK::new(c, true));
    registry
        .op("TopKV2")
        .types("T", DType::REALS)
        .types("index_type", &[DType::Int16, DType::Int32, DType::Int64])
        .kernel(|c: &Construction<'_>| TopK::new(c, false));
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::Shape;

    fn top(values: &[f32], k: i32, sorted: bool) -> Result<(Vec<f32>, Vec<i32>)> {
        let mut registry = Registry::new();
        register(&mut registry);
        let inputs = vec![Tensor::vector(values).unwrap(), Tensor::scalar(k).unwrap()];
        let op = OpRun::new("TopKV2").attr_type("T", DType::Float).attr_bool("sorted", sorted);
        let outputs = op.run(&registry, inputs)?;
        Ok((outputs[0].as_slice::<f32>()?.to_vec(), outputs[1].as_slice::<i32>()?.to_vec()))
    }

    /// Values of TensorFlow 2.21.
    #[test]
    fn ties_go_to_the_lower_position_and_nan_ends_up_as_in_tensorflow() {
        let few = [1.0, 5.0, 3.0, 5.0, 2.0];
        assert_eq!(top(&few, 3, true).unwrap(), (vec![5.0, 5.0, 3.0], vec![1, 3, 2]));
        assert_eq!(top(&few, 5, false).unwrap(), (vec![5.0, 5.0, 3.0, 2.0, 1.0], vec![1, 3, 2, 4, 0]));
        let more = [1.0, 5.0, 3.0, 5.0, 2.0, 9.0, 8.0, 7.0];
        assert_eq!(top(&more, 3, false).unwrap(), (vec![7.0, 9.0, 8.0], vec![7, 5, 6]));
        let mut unsorted = top(&more, 5, false).unwrap().1;
        unsorted.sort();
        assert_eq!(unsorted, [1, 3, 5, 6, 7]);
        assert_eq!(top(&[f32::NAN, 1.0], 1, true).unwrap().1, [0]);
        assert_eq!(top(&[1.0, f32::NAN, 3.0, f32::NAN, 2.0], 3, true).unwrap().1, [1, 2, 4]);
        assert_eq!(top(&few, 0, true).unwrap().0.len(), 0);
        assert_eq!(top(&few, -1, true).unwrap_err().message(), "Need k >= 0, got -1");
        assert_eq!(top(&few, 6, true).unwrap_err().message(), "input must have at least k columns. Had 5, needed 6");
    }

    #[test]
    fn rows_and_index_types() {
        let mut registry = Registry::new();
        register(&mut registry);
        let input = Tensor::from_slice(Shape::new(&[2, 3]).unwrap(), &[1u8, 255, 3, 3, 2, 1]).unwrap();
        let outputs = OpRun::new("TopKV2")
            .attr_type("T", DType::UInt8)
            .attr_type("Tk", DType::Int16)
            .attr_type("index_type", DType::Int16)
            .run(&registry, vec![input, Tensor::scalar(2i16).unwrap()])
            .unwrap();
        assert_eq!(outputs[0].as_slice::<u8>().unwrap(), &[255, 3, 3, 2]);
        assert_eq!(outputs[1].as_slice::<i16>().unwrap(), &[1, 2, 0, 1]);
    }

    #[test]
    fn targets_among_the_most_probable() {
        let mut registry = Registry::new();
        register(&mut registry);
        let run = |values: &[f32], targets: &[i32], k: i32| {
            let rows = targets.len() as i64;
            let shape = Shape::new(&[rows, values.len() as i64 / rows]).unwrap();
            let inputs = vec![
                Tensor::from_slice(shape, values).unwrap(),
                Tensor::vector(targets).unwrap(),
                Tensor::scalar(k).unwrap(),
            ];
            let outputs = OpRun::new("InTopKV2").attr_type("T", DType::Int32).run(&registry, inputs).unwrap();
            outputs[0].as_slice::<bool>().unwrap().to_vec()
        };
        let rows = [0.1, 0.3, 0.2, 0.3, 0.3, 0.1];
        assert_eq!(run(&rows, &[0, 1], 1), [false, true]);
        assert_eq!(run(&rows, &[2, 1], 2), [true, true]);
        assert_eq!(run(&rows, &[3, -1], 3), [false, false]);
        assert_eq!(run(&rows, &[1, 1], 0), [false, false]);
        assert_eq!(run(&[0.1, f32::NAN, 0.2, 1.0, f32::INFINITY, 2.0], &[0, 0], 3), [false, false]);
    }
}
