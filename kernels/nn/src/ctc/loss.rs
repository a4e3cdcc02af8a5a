//! `CTCLoss`.

use super::{Real, Sizes, lengths, log_add};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};
use parking_lot::Mutex;

/// `CTCLoss(inputs, labels_indices, labels_values, sequence_length) -> (loss, gradient)`. The last class is the blank.
struct CtcLoss {
    collapse_repeated: bool,
    merge_repeated: bool,
    ignore_longer: bool,
}

/// A matrix of labels by steps, step after step.
struct Table<T> {
    data: Vec<T>,
    labels: usize,
}

impl<T: Real> Table<T> {
    fn new(labels: usize, steps: usize, value: T) -> Table<T> {
        Table { data: vec![value; labels * steps], labels }
    }

    fn at(&self, label: usize, step: usize) -> T {
        self.data[step * self.labels + label]
    }

    fn set(&mut self, label: usize, step: usize, value: T) {
        self.data[step * self.labels + label] = value;
    }
}

impl CtcLoss {
    fn new(c: &Construction<'_>) -> Result<CtcLoss> {
        let attrs = c.attrs();
        Ok(CtcLoss {
            collapse_repeated: attrs.bool("preprocess_collapse_repeated")?,
            merge_repeated: attrs.bool("ctc_merge_repeated")?,
            ignore_longer: attrs.bool("ignore_longer_outputs_than_inputs")?,
        })
    }

    /// The labels of each sequence, from the indices and values of a sparse matrix.
    fn labels(indices: &Tensor, values: &Tensor, batch: usize) -> Result<Vec<Vec<i32>>> {
        let mut labels = vec![Vec::new(); batch];
        let mut before: Option<[i64; 2]> = None;
        let width = indices.shape().dim(1);
        for (row, &value) in indices.as_slice::<i64>()?.chunks_exact(width).zip(values.as_slice::<i32>()?) {
            let at = [row[0], row[1]];
            if before.is_some_and(|before| before >= at) {
                return Err(invalid_argument!(
                    "label SparseTensor is not valid: indices[{},{}] is out of order or repeated",
                    at[0],
                    at[1]
                ));
            }
            before = Some(at);
            match usize::try_from(at[0]).ok().and_then(|b| labels.get_mut(b)) {
                Some(sequence) if at[1] >= 0 => sequence.push(value),
                _ => {
                    return Err(invalid_argument!(
                        "labels batch index must be between 0 and {batch} but saw: {}",
                        at[0]
                    ));
                }
            }
        }
        Ok(labels)
    }

    /// The labels with blanks between them and around.
    fn with_blanks(&self, labels: &[i32], b: usize, classes: usize, steps: usize) -> Result<Vec<usize>> {
        let join = |labels: &[i32]| labels.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        if labels.is_empty() {
            return Err(invalid_argument!("Labels length is zero in batch {b}"));
        }
        let blank = classes.saturating_sub(1);
        let (mut kept, mut finished) = (Vec::new(), false);
        for (i, &label) in labels.iter().enumerate() {
            if i > 0 && self.collapse_repeated && label == labels[i - 1] {
                continue;
            }
            if i64::from(label) >= blank as i64 {
                finished = true;
            } else if finished {
                return Err(invalid_argument!(
                    "Saw a non-null label (index >= num_classes - 1) following a null label, batch: {b} num_classes: \
                     {classes} labels: {} labels seen so far: {}",
                    join(labels),
                    join(&kept)
                ));
            } else {
                kept.push(label);
            }
        }
        if kept.iter().any(|&l| l < 0) {
            return Err(invalid_argument!(
                "All labels must be nonnegative integers, batch: {b} labels: {}",
                join(&kept)
            ));
        }
        if !self.ignore_longer && labels.len() > steps {
            return Err(invalid_argument!(
                "Not enough time for target transition sequence (required: {}, available: {steps}){b}You can turn this \
                 error into a warning by using the flag ignore_longer_outputs_than_inputs",
                labels.len()
            ));
        }
        let mut all = Vec::with_capacity(2 * kept.len() + 1);
        for label in kept {
            all.extend([blank, label as usize]);
        }
        all.push(blank);
        Ok(all)
    }

    /// Whether a path may stay at label `u`.
    fn stays(&self, labels: &[usize], u: usize, blank: usize) -> bool {
        self.merge_repeated || labels[u] == blank
    }

    /// Whether a path may skip from label `u` over the blank to label `v`.
    fn skips(&self, labels: &[usize], u: usize, v: usize, blank: usize) -> bool {
        labels[u] != blank && !(self.merge_repeated && labels[u] == labels[v])
    }

    /// The loss of a sequence, and its gradient by step and class. `y` are the classes' probabilities.
    fn sequence<T: Real>(&self, labels: &[usize], y: &Table<T>, steps: usize) -> (T, Table<T>) {
        let (classes, count) = (y.labels, labels.len());
        let blank = classes - 1;
        let nothing = T::neg_infinity();
        let reachable = |t: usize| count.saturating_sub(2 * (steps - t))..count.min(2 * (t + 1));
        let mut forward = Table::new(count, steps, nothing);
        forward.set(0, 0, y.at(blank, 0).ln());
        if count > 1 {
            forward.set(1, 0, y.at(labels[1], 0).ln());
        }
        for t in 1..steps {
            for u in reachable(t) {
                let mut sum = nothing;
                if self.stays(labels, u, blank) {
                    sum = forward.at(u, t - 1);
                }
                if u > 0 {
                    sum = log_add(sum, forward.at(u - 1, t - 1));
                }
                if u > 1 && self.skips(labels, u, u - 2, blank) {
                    sum = log_add(sum, forward.at(u - 2, t - 1));
                }
                forward.set(u, t, y.at(labels[u], t).ln() + sum);
            }
        }
        let mut backward = Table::new(count, steps, nothing);
        for u in count.saturating_sub(2)..count {
            backward.set(u, steps - 1, T::zero());
        }
        for t in (0..steps - 1).rev() {
            for u in reachable(t) {
                let mut sum = nothing;
                let mut add = |v: usize| sum = log_add(sum, backward.at(v, t + 1) + y.at(labels[v], t + 1).ln());
                if self.stays(labels, u, blank) {
                    add(u);
                }
                if u + 1 < count {
                    add(u + 1);
                }
                if u + 2 < count && self.skips(labels, u, u + 2, blank) {
                    add(u + 2);
                }
                backward.set(u, t, sum);
            }
        }
        let total = (0..count).fold(nothing, |sum, u| log_add(sum, forward.at(u, 0) + backward.at(u, 0)));
        let mut gradient = Table { data: y.data.clone(), labels: classes };
        if total != nothing {
            for t in 0..steps {
                let mut sums = vec![nothing; classes];
                for (u, &label) in labels.iter().enumerate() {
                    sums[label] = log_add(sums[label], forward.at(u, t) + backward.at(u, t));
                }
                for (class, &sum) in sums.iter().enumerate() {
                    gradient.set(class, t, y.at(class, t) - (sum - total).exp());
                }
            }
        }
        (-total, gradient)
    }

    fn run<T: Real>(&self, ctx: &mut Context<'_>) -> Result<()> {
        let inputs = ctx.input(0)?;
        let (indices, values, steps) = (ctx.input(1)?, ctx.input(2)?, ctx.input(3)?);
        let sizes = Sizes::new(inputs.shape())?;
        let Sizes { time, batch, classes } = sizes;
        if !steps.shape().is_vector() {
            return Err(invalid_argument!("sequence_length is not a vector"));
        }
        if !indices.shape().is_matrix() {
            return Err(invalid_argument!("labels_indices is not a matrix"));
        }
        if indices.shape().dim(1) < 2 {
            return Err(invalid_argument!(
                "labels_indices second dimension must be >= 1. Received {}",
                indices.shape().dim(1)
            ));
        }
        if !values.shape().is_vector() {
            return Err(invalid_argument!("labels_values is not a vector"));
        }
        if time == 0 {
            return Err(invalid_argument!("Max time or first dimension of input cannot be 0."));
        }
        if steps.num_elements() != batch {
            return Err(invalid_argument!(
                "len(sequence_length) != batch_size.  len(sequence_length):  {} batch_size: {batch}",
                steps.num_elements()
            ));
        }
        if indices.shape().dim(0) != values.num_elements() {
            return Err(invalid_argument!(
                "labels_indices and labels_values must contain the same number of rows, but saw shapes: {} vs. {}",
                indices.shape(),
                values.shape()
            ));
        }
        if batch == 0 {
            return Err(invalid_argument!("batch_size must not be 0"));
        }
        if classes == 0 {
            return Err(invalid_argument!("inputs must have at least one class"));
        }
        let labels = Self::labels(indices, values, batch)?;
        let steps = lengths(steps, time, |b| invalid_argument!("seq_len({b}) > num_time_steps"))?;
        let mut sequences = Vec::with_capacity(batch);
        for (b, (labels, &steps)) in labels.iter().zip(&steps).enumerate() {
            sequences.push(self.with_blanks(labels, b, classes, steps)?);
        }
        let mut losses = Tensor::zeros(T::DTYPE, Shape::vector(batch))?;
        let mut gradient = Tensor::zeros(T::DTYPE, inputs.shape().clone())?;
        let x = inputs.as_slice::<T>()?;
        let all = gradient.as_mut_slice::<T>()?;
        let results: Vec<Mutex<Option<Table<T>>>> = (0..batch).map(|_| Mutex::new(None)).collect();
        let cost = (time * classes) as f64 * 100.0;
        ctx.parallel_chunks(losses.as_mut_slice::<T>()?, 1, cost, |range, losses| {
            for (b, loss) in range.zip(losses) {
                let steps = steps[b];
                if steps == 0 || (self.ignore_longer && labels[b].len() > steps) {
                    continue;
                }
                let mut y = Table::new(classes, steps, T::zero());
                for (t, y) in y.data.chunks_exact_mut(classes).enumerate() {
                    let row = sizes.row(x, t, b);
                    let largest = row.iter().fold(T::neg_infinity(), |m, &v| m.max(v));
                    let mut sum = T::zero();
                    for (y, &v) in y.iter_mut().zip(row) {
                        *y = (v - largest).exp();
                        sum += *y;
                    }
                    y.iter_mut().for_each(|y| *y = *y / sum);
                }
                let (value, table) = self.sequence(&sequences[b], &y, steps);
                *loss = value;
                *results[b].lock() = Some(table);
            }
        });
        for (b, result) in results.into_iter().enumerate() {
            if let Some(table) = result.into_inner() {
                for (t, row) in table.data.chunks_exact(classes).enumerate() {
                    let start = (t * batch + b) * classes;
                    all[start..start + classes].copy_from_slice(row);
                }
            }
        }
        ctx.set_output(0, losses)?;
        ctx.set_output(1, gradient)
    }
}

impl Kernel for CtcLoss {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        dispatch!(ctx.output_type(0)?, T in [f32, f64] => self.run::<T>(ctx))
            .unwrap_or_else(|| Err(internal!("CTCLoss does not take this type")))
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.op("CTCLoss").types("T", &[DType::Double, DType::Float]).kernel(CtcLoss::new);
}
