//! `CTCGreedyDecoder` and `CTCBeamSearchDecoder`.

use super::{Real, Sizes, lengths, log_add};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, dispatch, failed_precondition, internal, invalid_argument};
use std::collections::HashMap;

/// The inputs of a decoder, checked.
fn inputs(ctx: &Context<'_>) -> Result<(Sizes, Vec<usize>)> {
    let (inputs, steps) = (ctx.input(0)?, ctx.input(1)?);
    let sizes = Sizes::new(inputs.shape())?;
    if inputs.num_elements() == 0 {
        return Err(invalid_argument!("inputs must not be empty"));
    }
    if !steps.shape().is_vector() {
        return Err(invalid_argument!("sequence_length is not a vector"));
    }
    if steps.num_elements() != sizes.batch {
        return Err(failed_precondition!(
            "len(sequence_length) != batch_size.  len(sequence_length):  {} batch_size: {}",
            steps.num_elements(),
            sizes.batch
        ));
    }
    let above = |b: usize| failed_precondition!("sequence_length({b}) <= {}", sizes.time);
    Ok((sizes, lengths(steps, sizes.time, above)?))
}

/// Sets the outputs: for each path the sequences of the batch as a sparse matrix, and the scores.
fn set_outputs(ctx: &mut Context<'_>, paths: usize, decoded: &[Vec<Vec<i64>>], scores: Tensor) -> Result<()> {
    for path in 0..paths {
        let (mut indices, mut values, mut longest) = (Vec::new(), Vec::new(), 0);
        for (b, sequences) in decoded.iter().enumerate() {
            let sequence = &sequences[path];
            longest = longest.max(sequence.len());
            for (t, &class) in sequence.iter().enumerate() {
                indices.extend([b as i64, t as i64]);
                values.push(class);
            }
        }
        let shape = Shape::from_dims(&[values.len(), 2])?;
        ctx.set_output(path, Tensor::from_slice(shape, &indices)?)?;
        ctx.set_output(paths + path, Tensor::vector(&values)?)?;
        ctx.set_output(2 * paths + path, Tensor::vector(&[decoded.len() as i64, longest as i64])?)?;
    }
    ctx.set_output(3 * paths, scores)
}

/// `CTCGreedyDecoder(inputs, sequence_length)`: the likeliest class at each step.
struct Greedy {
    merge_repeated: bool,
    blank: i64,
}

impl Greedy {
    fn run<T: Real>(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (sizes, steps) = inputs(ctx)?;
        let classes = sizes.classes as i64;
        let blank = if self.blank < 0 { classes + self.blank } else { self.blank };
        if !(0..classes).contains(&blank) {
            return Err(invalid_argument!(
                "blank_index expected to be between {} and {} but was {}",
                -classes,
                classes - 1,
                self.blank
            ));
        }
        let x = ctx.input(0)?.as_slice::<T>()?;
        let mut scores = Tensor::zeros(T::DTYPE, Shape::from_dims(&[sizes.batch, 1])?)?;
        let mut decoded = Vec::with_capacity(sizes.batch);
        for (b, score) in scores.as_mut_slice::<T>()?.iter_mut().enumerate() {
            let (mut sequence, mut previous) = (Vec::new(), -1);
            for t in 0..steps[b] {
                let row = sizes.row(x, t, b);
                let mut best = 0;
                for (class, &v) in row.iter().enumerate() {
                    if v > row[best] {
                        best = class;
                    }
                }
                *score += -row[best];
                let best = best as i64;
                if best != blank && !(self.merge_repeated && best == previous) {
                    sequence.push(best);
                }
                previous = best;
            }
            decoded.push(vec![sequence]);
        }
        set_outputs(ctx, 1, &decoded, scores)
    }
}

impl Kernel for Greedy {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        dispatch!(ctx.input(0)?.dtype(), T in [f32, f64] => self.run::<T>(ctx))
            .unwrap_or_else(|| Err(internal!("CTCGreedyDecoder does not take this type")))
    }
}

/// Logarithms of the probability of a prefix: in all, ending in a blank, ending in its last label.
#[derive(Clone, Copy)]
struct Probability<T> {
    total: T,
    blank: T,
    label: T,
}

impl<T: Real> Probability<T> {
    fn none() -> Probability<T> {
        let none = T::neg_infinity();
        Probability { total: none, blank: none, label: none }
    }
}

/// A prefix: a label behind another prefix.
struct Entry<T> {
    parent: Option<usize>,
    label: usize,
    old: Probability<T>,
    new: Probability<T>,
}

/// The search over the prefixes of one sequence.
struct Beam<T> {
    entries: Vec<Entry<T>>,
    children: HashMap<(usize, usize), usize>,
    /// The best prefixes, at most `width`.
    leaves: Vec<usize>,
    width: usize,
}

impl<T: Real> Beam<T> {
    fn new(width: usize) -> Beam<T> {
        let certain = Probability { total: T::zero(), blank: T::zero(), label: T::neg_infinity() };
        let root = Entry { parent: None, label: usize::MAX, old: Probability::none(), new: certain };
        Beam { entries: vec![root], children: HashMap::new(), leaves: vec![0], width }
    }

    fn sort(&mut self) {
        let entries = &self.entries;
        let total = |leaf: usize| entries[leaf].new.total;
        self.leaves.sort_by(|&a, &b| total(b).partial_cmp(&total(a)).unwrap_or(std::cmp::Ordering::Equal));
    }

    /// The place of the least likely leaf.
    fn bottom(&self) -> usize {
        let total = |place: usize| self.entries[self.leaves[place]].new.total;
        (1..self.leaves.len()).fold(0, |bottom, place| if total(place) < total(bottom) { place } else { bottom })
    }

    fn is_candidate(&self, total: T) -> bool {
        total > T::neg_infinity()
            && (self.leaves.len() < self.width || total > self.entries[self.leaves[self.bottom()]].new.total)
    }

    fn child(&mut self, parent: usize, label: usize) -> usize {
        let next = self.entries.len();
        let child = *self.children.entry((parent, label)).or_insert(next);
        if child == next {
            let (old, new) = (Probability::none(), Probability::none());
            self.entries.push(Entry { parent: Some(parent), label, old, new });
        }
        child
    }

    /// Goes one step on, whose classes have these scores; the last one is the blank.
    fn step(&mut self, scores: &[T]) {
        let largest = scores.iter().fold(T::neg_infinity(), |m, &v| m.max(v));
        let sum = scores.iter().fold(T::zero(), |sum, &v| sum + (v - largest).exp());
        let offset = largest + sum.ln();
        let blank = scores.len() - 1;
        self.sort();
        let branches = self.leaves.clone();
        for &b in &branches {
            self.entries[b].old = self.entries[b].new;
        }
        for &b in &branches {
            if let Some(parent) = self.entries[b].parent {
                let label = self.entries[b].label;
                let above = &self.entries[parent];
                let mut by_label = self.entries[b].new.label;
                if above.new.total != T::neg_infinity() {
                    let previous = if label == above.label { above.old.blank } else { above.old.total };
                    by_label = log_add(by_label, previous);
                }
                self.entries[b].new.label = by_label + scores[label] - offset;
            }
            let entry = &mut self.entries[b];
            entry.new.blank = entry.old.total + scores[blank] - offset;
            entry.new.total = log_add(entry.new.blank, entry.new.label);
        }
        for &b in &branches {
            if !self.is_candidate(self.entries[b].old.total) {
                continue;
            }
            for (label, &score) in scores[..blank].iter().enumerate() {
                let child = self.child(b, label);
                if self.entries[child].new.total != T::neg_infinity() {
                    continue;
                }
                let entry = &self.entries[b];
                let previous = if label == entry.label { entry.old.blank } else { entry.old.total };
                let value = score - offset + previous;
                let new = Probability { total: value, blank: T::neg_infinity(), label: value };
                if self.is_candidate(value) {
                    if self.leaves.len() == self.width {
                        let bottom = self.bottom();
                        let leaf = self.leaves.swap_remove(bottom);
                        self.entries[leaf].new = Probability::none();
                    }
                    self.entries[child].new = new;
                    self.leaves.push(child);
                } else {
                    self.entries[child].old = Probability::none();
                    self.entries[child].new = Probability::none();
                }
            }
        }
    }

    /// The labels of a prefix.
    fn labels(&self, leaf: usize, merge_repeated: bool) -> Vec<i64> {
        let (mut labels, mut previous, mut at) = (Vec::new(), usize::MAX, leaf);
        while let Some(parent) = self.entries[at].parent {
            let label = self.entries[at].label;
            if !merge_repeated || label != previous {
                labels.push(label as i64);
            }
            previous = label;
            at = parent;
        }
        labels.reverse();
        labels
    }
}

/// `CTCBeamSearchDecoder(inputs, sequence_length)`: the likeliest sequences.
struct BeamSearch {
    width: usize,
    paths: usize,
    merge_repeated: bool,
}

impl BeamSearch {
    fn new(c: &Construction<'_>) -> Result<BeamSearch> {
        let size = |name: &str| -> Result<usize> {
            let value = c.attrs().int(name)?;
            match usize::try_from(value) {
                Ok(value) if value > 0 => Ok(value),
                _ => Err(invalid_argument!("{name} must be positive, got {value}")),
            }
        };
        let merge_repeated = c.attrs().bool("merge_repeated")?;
        Ok(BeamSearch { width: size("beam_width")?, paths: size("top_paths")?, merge_repeated })
    }

    fn run<T: Real>(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (sizes, steps) = inputs(ctx)?;
        if self.paths > self.width {
            return Err(invalid_argument!("requested more paths than the beam width."));
        }
        let x = ctx.input(0)?.as_slice::<T>()?;
        let mut scores = Tensor::zeros(T::DTYPE, Shape::from_dims(&[sizes.batch, self.paths])?)?;
        let mut decoded = Vec::with_capacity(sizes.batch);
        for (b, scores) in scores.as_mut_slice::<T>()?.chunks_exact_mut(self.paths).enumerate() {
            let mut beam = Beam::new(self.width);
            (0..steps[b]).for_each(|t| beam.step(sizes.row(x, t, b)));
            if self.paths > beam.leaves.len() {
                return Err(invalid_argument!("Less leaves in the beam search than requested."));
            }
            beam.sort();
            let leaves = &beam.leaves[..self.paths];
            scores.iter_mut().zip(leaves).for_each(|(s, &leaf)| *s = beam.entries[leaf].new.total);
            decoded.push(leaves.iter().map(|&leaf| beam.labels(leaf, self.merge_repeated)).collect());
        }
        set_outputs(ctx, self.paths, &decoded, scores)
    }
}

impl Kernel for BeamSearch {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        dispatch!(ctx.input(0)?.dtype(), T in [f32, f64] => self.run::<T>(ctx))
            .unwrap_or_else(|| Err(internal!("CTCBeamSearchDecoder does not take this type")))
    }
}

pub(super) fn register(registry: &mut Registry) {
    let types = [DType::Double, DType::Float];
    registry.op("CTCGreedyDecoder").types("T", &types).kernel(|c: &Construction<'_>| {
        Ok(Greedy { merge_repeated: c.attrs().bool("merge_repeated")?, blank: c.attrs().int("blank_index")? })
    });
    registry.op("CTCBeamSearchDecoder").types("T", &types).kernel(BeamSearch::new);
}
