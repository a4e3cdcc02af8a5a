//! Candidate samplers: classes to contrast the true ones with, and how often each is to be expected among them.

use crate::distribution::{pair, uniform_f32, uniform_f64};
use graphmill_formats::{FileReader, FileSystem, io_error};
use graphmill_runtime::philox::{Generator, Words};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, Shape, Tensor, invalid_argument};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Draws that TensorFlow sets aside for each candidate.
const DRAWS_PER_CANDIDATE: u64 = 512;

/// A number in `[0, n)`, which is not empty, from as many words as it takes.
fn uniform(words: &mut Words, n: u32) -> u32 {
    if n.is_power_of_two() {
        return words.next() & (n - 1);
    }
    let reject = u32::MAX % n + 1;
    loop {
        let word = words.next();
        if word >= reject {
            return word % n;
        }
    }
}

/// The same, in 64 bits.
fn uniform_64(words: &mut Words, n: u64) -> u64 {
    let mut next = || {
        let low = words.next();
        pair(low, words.next())
    };
    if n.is_power_of_two() {
        return next() & (n - 1);
    }
    let reject = u64::MAX % n + 1;
    loop {
        let word = next();
        if word >= reject {
            return word % n;
        }
    }
}

/// Classes drawn by integer weights, which are sums in a binary tree.
struct Weights {
    /// From the root down.
    levels: Vec<Vec<i32>>,
    classes: usize,
}

impl Weights {
    /// Every class with weight 1.
    fn new(classes: usize) -> Weights {
        let leaves = classes.next_power_of_two();
        let mut level: Vec<i32> = (0..leaves).map(|i| i32::from(i < classes)).collect();
        let mut levels = vec![level.clone()];
        while level.len() > 1 {
            level = level.chunks(2).map(|pair| pair.iter().sum()).collect();
            levels.push(level.clone());
        }
        levels.reverse();
        Weights { levels, classes }
    }

    fn total(&self) -> i32 {
        self.levels[0][0]
    }

    fn weight(&self, class: i64) -> i32 {
        let class = usize::try_from(class).ok().filter(|&c| c < self.classes);
        class.map_or(0, |class| self.levels[self.levels.len() - 1][class])
    }

    fn pick(&self, words: &mut Words) -> i64 {
        let mut position = uniform(words, self.total() as u32) as i32;
        let mut index = 0;
        for level in &self.levels[1..] {
            let left = level[2 * index];
            index *= 2;
            if position >= left {
                index += 1;
                position -= left;
            }
        }
        index as i64
    }

    fn add_one(&mut self, class: usize) {
        let mut index = class;
        for level in self.levels.iter_mut().rev() {
            level[index] += 1;
            index /= 2;
        }
    }
}

/// Classes drawn by fixed weights in constant time (Walker's alias method).
struct Alias {
    weights: Vec<f32>,
    total: f32,
    /// For each bucket, the chance of its own class, and the other class.
    buckets: Vec<(f32, usize)>,
}

impl Alias {
    fn new(weights: Vec<f32>, total: f32) -> Alias {
        let n = weights.len();
        let sum = weights.iter().fold(0.0f64, |sum, &w| sum + f64::from(w));
        let mut chances: Vec<f64> = weights.iter().map(|&w| f64::from(w * n as f32) / sum).collect();
        let mut others = vec![0; n];
        let (mut low, mut high): (Vec<usize>, Vec<usize>) = (0..n).partition(|&i| chances[i] < 1.0);
        while let (Some(&l), Some(&h)) = (low.last(), high.last()) {
            low.pop();
            high.pop();
            others[l] = h;
            chances[h] -= 1.0 - chances[l];
            if chances[h] < 1.0 {
                low.push(h);
            } else {
                high.push(h);
            }
        }
        for i in high.into_iter().chain(low) {
            chances[i] = 1.0;
            others[i] = i;
        }
        let buckets = chances.into_iter().map(|c| c as f32).zip(others).collect();
        Alias { weights, total, buckets }
    }

    fn pick(&self, words: &mut Words) -> i64 {
        let chance = uniform_f32(words.next());
        let bucket = uniform(words, self.buckets.len() as u32) as usize;
        let (own, other) = self.buckets[bucket];
        (if chance < own { bucket } else { other }) as i64
    }
}

enum Sampler {
    All,
    Uniform(u64),
    LogUniform {
        range: i64,
        log_range: f64,
    },
    /// Weights that grow with the true classes that were seen.
    Learned(Mutex<Weights>),
    Fixed(Alias),
}

impl Sampler {
    fn pick(&self, words: &mut Words, learned: Option<&Weights>) -> i64 {
        match (self, learned) {
            (Sampler::Uniform(range), _) => uniform_64(words, *range) as i64,
            (Sampler::LogUniform { range, log_range }, _) => {
                let (high, low) = (words.next(), words.next());
                ((uniform_f64(high, low) * log_range).exp() as i64 - 1) % range
            }
            (Sampler::Fixed(alias), _) => alias.pick(words),
            (Sampler::Learned(_), Some(weights)) => weights.pick(words),
            (Sampler::Learned(_) | Sampler::All, _) => 0,
        }
    }

    fn probability(&self, class: i64, learned: Option<&Weights>) -> f32 {
        match (self, learned) {
            (Sampler::Uniform(range), _) => (1.0 / *range as f64) as f32,
            (Sampler::LogUniform { log_range, .. }, _) => {
                (((class as f64 + 2.0) / (class as f64 + 1.0)).ln() / log_range) as f32
            }
            (Sampler::Fixed(alias), _) => {
                let weight = usize::try_from(class).ok().and_then(|c| alias.weights.get(c)).copied();
                weight.map_or(0.0, |w| w / alias.total)
            }
            (Sampler::Learned(_), Some(weights)) => weights.weight(class) as f32 / weights.total() as f32,
            (Sampler::Learned(_) | Sampler::All, _) => 1.0,
        }
    }

    /// How many different classes it can give.
    fn classes(&self) -> u64 {
        match self {
            Sampler::All => u64::MAX,
            Sampler::Uniform(range) => *range,
            Sampler::LogUniform { range, .. } => *range as u64,
            Sampler::Learned(weights) => weights.lock().classes as u64,
            Sampler::Fixed(alias) => alias.weights.iter().filter(|&&w| w > 0.0).count() as u64,
        }
    }
}

/// How often a class of probability `p` is in a batch of `size` for which it took `tries` draws.
fn expected_count(p: f32, size: usize, tries: usize) -> f32 {
    if tries == size { p * size as f32 } else { -((tries as f32 * (-p).ln_1p()).exp_m1()) }
}

struct CandidateSampler {
    sampler: Sampler,
    true_count: usize,
    sampled: usize,
    range: u64,
    unique: bool,
    generator: Generator,
}

impl CandidateSampler {
    fn new(c: &Construction<'_>, range: i64, sampler: Sampler) -> Result<CandidateSampler> {
        let size = |name: &str| -> Result<usize> {
            let value = c.attrs().int(name)?;
            usize::try_from(value).map_err(|_| invalid_argument!("{name} must not be negative, got {value}"))
        };
        Ok(CandidateSampler {
            sampler,
            true_count: size("num_true")?,
            sampled: size("num_sampled")?,
            range: range.max(0) as u64,
            unique: c.attrs().bool("unique")?,
            generator: Generator::new(c)?,
        })
    }
}

impl Kernel for CandidateSampler {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let classes = ctx.input(0)?;
        if !classes.shape().is_matrix() {
            return Err(invalid_argument!("true_classes must be a matrix"));
        }
        if classes.shape().dim(1) != self.true_count {
            return Err(invalid_argument!(
                "true_classes must have num_true columns, expected: {} was: {}",
                classes.shape().dim(1),
                self.true_count
            ));
        }
        if self.unique && (self.sampled as u64 > self.range || self.sampled as u64 > self.sampler.classes()) {
            return Err(invalid_argument!("Sampler's range is too small."));
        }
        let mut candidates = ctx.alloc_output(0, Shape::vector(self.sampled))?;
        let mut true_expected = ctx.alloc_output(1, classes.shape().clone())?;
        let mut sampled_expected = ctx.alloc_output(2, Shape::vector(self.sampled))?;
        let true_classes = classes.as_slice::<i64>()?;
        let mut learned = match &self.sampler {
            Sampler::Learned(weights) => Some(weights.lock()),
            _ => None,
        };
        if let Some(weights) = &learned
            && let Some(class) = true_classes.iter().find(|&&c| c < 0 || c >= weights.classes as i64)
        {
            return Err(invalid_argument!("true_classes has the class {class}, which is not in [0, {})", self.range));
        }
        let picked = candidates.as_mut_slice::<i64>()?;
        let mut tries = self.sampled;
        if let Sampler::All = self.sampler {
            picked.iter_mut().zip(0..).for_each(|(p, class)| *p = class);
            sampled_expected.as_mut_slice::<f32>()?.fill(1.0);
            true_expected.as_mut_slice::<f32>()?.fill(1.0);
        } else {
            let draws = (self.sampled as u64).wrapping_mul(DRAWS_PER_CANDIDATE);
            let mut words = Words::new(self.generator.take(draws));
            if self.unique {
                let mut used = HashSet::with_capacity(picked.len());
                tries = 0;
                for slot in picked.iter_mut() {
                    loop {
                        tries += 1;
                        *slot = self.sampler.pick(&mut words, learned.as_deref());
                        if used.insert(*slot) {
                            break;
                        }
                    }
                }
            } else {
                picked.iter_mut().for_each(|slot| *slot = self.sampler.pick(&mut words, learned.as_deref()));
            }
            let expected =
                |class: &i64| expected_count(self.sampler.probability(*class, learned.as_deref()), self.sampled, tries);
            let counts = sampled_expected.as_mut_slice::<f32>()?;
            counts.iter_mut().zip(picked.iter()).for_each(|(count, class)| *count = expected(class));
            let counts = true_expected.as_mut_slice::<f32>()?;
            counts.iter_mut().zip(true_classes).for_each(|(count, class)| *count = expected(class));
        }
        if let Some(weights) = &mut learned {
            for &class in true_classes {
                if weights.total() < i32::MAX {
                    weights.add_one(class as usize);
                }
            }
        }
        drop(learned);
        ctx.set_output(0, candidates)?;
        ctx.set_output(1, true_expected)?;
        ctx.set_output(2, sampled_expected)
    }
}

fn range(c: &Construction<'_>) -> Result<i64> {
    let range = c.attrs().int("range_max")?;
    if range < 1 {
        return Err(invalid_argument!("range_max must be at least 1, got {range}"));
    }
    Ok(range)
}

fn learned(c: &Construction<'_>) -> Result<CandidateSampler> {
    let range = range(c)?;
    match usize::try_from(range).ok().filter(|_| range < i64::from(i32::MAX)) {
        Some(classes) => CandidateSampler::new(c, range, Sampler::Learned(Mutex::new(Weights::new(classes)))),
        None => Err(invalid_argument!("range_max must be below {}, got {range}", i32::MAX)),
    }
}

/// The sampler of `FixedUnigramCandidateSampler`: weights from an attribute, or from the last column of a file.
fn fixed(c: &Construction<'_>, files: &dyn FileSystem) -> Result<CandidateSampler> {
    let range = range(c)?;
    let (file, unigrams) = (c.attrs().str("vocab_file")?, c.attrs().float_list("unigrams")?);
    if file.is_empty() && unigrams.is_empty() {
        return Err(invalid_argument!("Must provide either vocab_file or unigrams."));
    }
    if !file.is_empty() && !unigrams.is_empty() {
        return Err(invalid_argument!("Must only provide one of vocab_file and unigrams."));
    }
    let distortion = c.attrs().float("distortion")?;
    let (reserved, shards, shard) =
        (c.attrs().int("num_reserved_ids")?, c.attrs().int("num_shards")?, c.attrs().int("shard")?);
    if shards < 1 || shard < 0 || shard >= shards || reserved < 0 || reserved > range.saturating_mul(shards) {
        return Err(invalid_argument!(
            "num_reserved_ids {reserved}, num_shards {shards} and shard {shard} do not fit together"
        ));
    }
    let mut weights: Vec<f32> = (0..reserved).filter(|id| id % shards == shard).map(|_| 0.0).collect();
    let listed = if file.is_empty() { unigrams.to_vec() } else { read_vocabulary(files, file)? };
    let mut total = 0.0f32;
    for (weight, id) in listed.into_iter().zip(weights.len() as i64..) {
        if id % shards == shard {
            let weight = weight.powf(distortion);
            total += weight;
            weights.push(weight);
        }
    }
    if weights.len() as i64 != range {
        return Err(invalid_argument!("range_max is {range}, but there are {} weights", weights.len()));
    }
    CandidateSampler::new(c, range, Sampler::Fixed(Alias::new(weights, total)))
}

fn read_vocabulary(files: &dyn FileSystem, path: &str) -> Result<Vec<f32>> {
    let file = files.open(Path::new(path))?;
    let mut text = String::new();
    FileReader::new(file).read_to_string(&mut text).map_err(|error| io_error(path, error))?;
    let weight = |line: &str| {
        let last = line.rsplit(',').next().unwrap_or(line);
        last.trim().parse().map_err(|_| invalid_argument!("Wrong vocabulary format at line: {line}"))
    };
    text.lines().map(weight).collect()
}

/// `ComputeAccidentalHits(true_classes, sampled_candidates) -> (indices, ids, weights)`: where a sampled candidate is a true class.
struct AccidentalHits {
    true_count: i64,
}

impl Kernel for AccidentalHits {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (classes, sampled) = (ctx.input(0)?, ctx.input(1)?);
        if !classes.shape().is_matrix() || classes.shape().dim(1) as i64 != self.true_count {
            return Err(invalid_argument!("true_candidates must be a batch_size * num_true matrix"));
        }
        if !sampled.shape().is_vector() {
            return Err(invalid_argument!(
                "sampled_candidates must be a vector, which is typically an output from CandidateSampler"
            ));
        }
        let places: HashMap<i64, i64> = sampled.as_slice::<i64>()?.iter().copied().zip(0..).collect();
        let columns = classes.shape().dim(1).max(1);
        let (mut rows, mut ids) = (Vec::new(), Vec::new());
        for (at, class) in classes.as_slice::<i64>()?.iter().enumerate() {
            if let Some(&place) = places.get(class) {
                rows.push((at / columns) as i32);
                ids.push(place);
            }
        }
        let weights = vec![-f32::MAX; ids.len()];
        ctx.set_output(0, Tensor::vector(&rows)?)?;
        ctx.set_output(1, Tensor::vector(&ids)?)?;
        ctx.set_output(2, Tensor::vector(&weights)?)
    }
}

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    let files = files.clone();
    registry.op("AllCandidateSampler").kernel(|c| {
        let range = c.attrs().int("num_sampled")?;
        CandidateSampler::new(c, range, Sampler::All)
    });
    registry.op("UniformCandidateSampler").kernel(|c| {
        let range = range(c)?;
        CandidateSampler::new(c, range, Sampler::Uniform(range as u64))
    });
    registry.op("LogUniformCandidateSampler").kernel(|c| {
        let range = range(c)?;
        CandidateSampler::new(c, range, Sampler::LogUniform { range, log_range: (range as f64).ln_1p() })
    });
    registry.op("LearnedUnigramCandidateSampler").kernel(learned);
    registry.op("ThreadUnsafeUnigramCandidateSampler").kernel(learned);
    registry.op("FixedUnigramCandidateSampler").kernel(move |c| fixed(c, files.as_ref()));
    registry.op("ComputeAccidentalHits").kernel(|c| Ok(AccidentalHits { true_count: c.attrs().int("num_true")? }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::philox::Philox;

    #[test]
    fn weights_are_picked_by_their_sums() {
        let mut weights = Weights::new(5);
        (0..95).for_each(|_| weights.add_one(3));
        assert_eq!((weights.total(), weights.weight(3), weights.weight(5)), (100, 96, 0));
        let mut words = Words::new(Philox::from_seeds(1, 2));
        let hits = (0..1000).filter(|_| weights.pick(&mut words) == 3).count();
        assert!((930..990).contains(&hits), "{hits}");
    }

    #[test]
    fn buckets_keep_the_weights() {
        let alias = Alias::new(vec![1.0, 0.0, 6.0, 3.0], 10.0);
        let mut words = Words::new(Philox::from_seeds(3, 4));
        let mut counts = [0i32; 4];
        (0..10_000).for_each(|_| counts[alias.pick(&mut words) as usize] += 1);
        assert_eq!(counts[1], 0);
        assert!(counts[2].abs_diff(6000) < 200 && counts[3].abs_diff(3000) < 200, "{counts:?}");
    }
}
