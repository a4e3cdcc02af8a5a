//! Non-maximum suppression: the best boxes, without those that overlap better ones.

use crate::overlap::intersection_over_union;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, f16, internal, invalid_argument};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

pub(crate) fn register(registry: &mut Registry) {
    let types = [DType::Float, DType::Half];
    registry
        .op("NonMaxSuppression")
        .kernel(|c| Ok(Suppress { iou: Some(c.attrs().float("iou_threshold")?), ..plain() }));
    registry.op("NonMaxSuppressionV2").types("T", &types).kernel(|_| Ok(plain()));
    registry.op("NonMaxSuppressionV3").types("T", &types).kernel(|_| Ok(Suppress { scores: true, ..plain() }));
    registry.op("NonMaxSuppressionV4").types("T", &types).kernel(|c| Ok(Suppress { counts: true, ..padded(c)? }));
    registry
        .op("NonMaxSuppressionV5")
        .types("T", &types)
        .kernel(|c| Ok(Suppress { counts: true, soft: true, ..padded(c)? }));
    registry.op("NonMaxSuppressionWithOverlaps").kernel(|_| Ok(Suppress { scores: true, overlaps: true, ..plain() }));
    registry.op("CombinedNonMaxSuppression").kernel(Combined::new);
}

/// Selects boxes by score; which inputs and outputs there are depends on the version.
struct Suppress {
    /// The largest overlap, if it is an attribute.
    iou: Option<f32>,
    /// Whether there is a lowest score.
    scores: bool,
    /// Whether overlaps are given rather than boxes.
    overlaps: bool,
    /// Whether scores of boxes that overlap selected ones sink instead, and are given out.
    soft: bool,
    /// Whether the number of boxes is given out.
    counts: bool,
    /// Whether the result is filled up to the largest number of boxes.
    pad: bool,
}

fn plain() -> Suppress {
    Suppress { iou: None, scores: false, overlaps: false, soft: false, counts: false, pad: false }
}

fn padded(c: &Construction<'_>) -> Result<Suppress> {
    Ok(Suppress { scores: true, pad: c.attrs().bool("pad_to_max_output_size")?, ..plain() })
}

/// The value of a scalar of either type.
fn scalar(ctx: &Context<'_>, i: usize, name: &str) -> Result<f32> {
    let tensor = ctx.input(i)?;
    if !tensor.shape().is_scalar() {
        return Err(invalid_argument!("{name} must be 0-D, got shape {}", tensor.shape()));
    }
    Ok(floats(tensor)?.first().copied().unwrap_or_default())
}

fn floats(tensor: &Tensor) -> Result<Vec<f32>> {
    match tensor.dtype() {
        DType::Half => Ok(tensor.as_slice::<f16>()?.iter().map(|v| v.to_f32()).collect()),
        _ => Ok(tensor.as_slice::<f32>()?.to_vec()),
    }
}

/// A box that may be selected; the heap gives out the highest score, and of equal ones the first box.
#[derive(Clone, Copy)]
struct Candidate {
    index: usize,
    score: f32,
    /// Selected boxes that it has been compared with.
    compared: usize,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.index.cmp(&self.index))
    }
}

/// What decides which boxes are selected.
struct Rules {
    most: usize,
    largest_overlap: f32,
    lowest_score: f32,
    sigma: f32,
    /// Whether numbers are rounded to half precision as TensorFlow computes them.
    half: bool,
}

impl Rules {
    fn round(&self, value: f32) -> f32 {
        if self.half { f16::from_f32(value).to_f32() } else { value }
    }

    /// The selected boxes and their scores.
    fn select(&self, scores: &[f32], overlap: impl Fn(usize, usize) -> f32) -> (Vec<usize>, Vec<f32>) {
        let soft = self.sigma > 0.0;
        let scale = if soft { self.round(-0.5 / self.sigma) } else { 0.0 };
        let candidates = scores.iter().enumerate().filter(|&(_, &score)| score > self.lowest_score);
        let candidate = |(index, &score): (usize, &f32)| Candidate { index, score, compared: 0 };
        let mut heap: BinaryHeap<Candidate> = candidates.map(candidate).collect();
        let (mut selected, mut selected_scores) = (Vec::new(), Vec::new());
        while selected.len() < self.most {
            let Some(mut next) = heap.pop() else { break };
            let original = next.score;
            let mut suppressed = false;
            for &other in selected.get(next.compared..).unwrap_or_default().iter().rev() {
                let similarity = self.round(overlap(next.index, other));
                let keep = soft || similarity <= self.largest_overlap;
                let weight = if keep { self.round((scale * similarity * similarity).exp()) } else { 0.0 };
                next.score = self.round(next.score * weight);
                if !soft && similarity > self.largest_overlap {
                    suppressed = true;
                    break;
                }
                if next.score <= self.lowest_score {
                    break;
                }
            }
            next.compared = selected.len();
            if suppressed {
                continue;
            }
            if next.score == original {
                selected.push(next.index);
                selected_scores.push(next.score);
            } else if next.score > self.lowest_score {
                heap.push(next);
            }
        }
        (selected, selected_scores)
    }
}

impl Kernel for Suppress {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (boxes, scores, most) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if !most.shape().is_scalar() {
            return Err(invalid_argument!("max_output_size must be 0-D, got shape {}", most.shape()));
        }
        let threshold = if self.overlaps { "overlap_threshold" } else { "iou_threshold" };
        let largest_overlap = match self.iou {
            Some(threshold) => threshold,
            None => scalar(ctx, 3, threshold)?,
        };
        if !self.overlaps && !(0.0..=1.0).contains(&largest_overlap) {
            return Err(invalid_argument!("iou_threshold must be in [0, 1]"));
        }
        let half = scores.dtype() == DType::Half;
        let lowest = if half { f16::MIN.to_f32() } else { f32::MIN };
        let lowest_score = if self.scores { scalar(ctx, 4, "score_threshold")? } else { lowest };
        let sigma = if self.soft { scalar(ctx, 5, "soft_nms_sigma")? } else { 0.0 };
        if sigma.is_nan() || sigma < 0.0 {
            return Err(invalid_argument!("soft_nms_sigma_val must be >= 0"));
        }
        let count = self.check(boxes, scores)?;
        let most = most.scalar_value::<i32>()?;
        let most = usize::try_from(most).map_err(|_| invalid_argument!("output size must be non-negative"))?;
        let rules = Rules { most, largest_overlap, lowest_score, sigma, half };
        let (scores, values) = (floats(scores)?, floats(boxes)?);
        let (mut selected, mut selected_scores) = if self.overlaps {
            rules.select(&scores, |a, b| values.get(a * count + b).copied().unwrap_or_default())
        } else {
            let (corners, _) = values.as_chunks::<4>();
            rules.select(&scores, |a, b| match (corners.get(a), corners.get(b)) {
                (Some(a), Some(b)) => intersection_over_union(a, b),
                _ => 0.0,
            })
        };
        let valid = selected.len();
        if self.pad {
            // A tensor of that size is reserved before the memory of a list is.
            Tensor::alloc(DType::Int32, Shape::from_dims(&[most])?)?;
            selected.resize(most, 0);
            selected_scores.resize(most, 0.0);
        }
        let indices: Vec<i32> = selected.iter().map(|&i| i as i32).collect();
        ctx.set_output(0, Tensor::vector(&indices)?)?;
        if self.soft {
            let output = if half {
                Tensor::vector(&selected_scores.iter().map(|&s| f16::from_f32(s)).collect::<Vec<_>>())?
            } else {
                Tensor::vector(&selected_scores)?
            };
            ctx.set_output(1, output)?;
        }
        if self.counts {
            ctx.set_scalar(if self.soft { 2 } else { 1 }, valid as i32)?;
        }
        Ok(())
    }
}

impl Suppress {
    /// The number of boxes.
    fn check(&self, boxes: &Tensor, scores: &Tensor) -> Result<usize> {
        let shape = boxes.shape();
        if !shape.is_matrix() {
            let what = if self.overlaps { "overlaps" } else { "boxes" };
            let rank = shape.rank();
            return Err(invalid_argument!("{what} must be 2-D{shape} (Shape must be rank 2 but is rank {rank})"));
        }
        let count = shape.dim(0);
        if self.overlaps && shape.dim(1) != count {
            return Err(invalid_argument!("overlaps must be square{shape}"));
        }
        if !self.overlaps && shape.dim(1) != 4 {
            return Err(invalid_argument!("boxes must have 4 columns (Dimension must be 4 but is {})", shape.dim(1)));
        }
        let shape = scores.shape();
        if !shape.is_vector() {
            let rank = shape.rank();
            return Err(invalid_argument!("scores must be 1-D{shape} (Shape must be rank 1 but is rank {rank})"));
        }
        if shape.dim(0) != count {
            return Err(invalid_argument!(
                "scores has incompatible shape (Dimensions must be equal, but are {count} and {})",
                shape.dim(0)
            ));
        }
        Ok(count)
    }
}

/// Suppression for a batch of images and several classes at once.
struct Combined {
    pad_per_class: bool,
    clip: bool,
}

/// A box that was selected for a class.
struct Detection {
    score: f32,
    class: usize,
    corners: [f32; 4],
}

impl Combined {
    fn new(c: &Construction<'_>) -> Result<Combined> {
        Ok(Combined { pad_per_class: c.attrs().bool("pad_per_class")?, clip: c.attrs().bool("clip_boxes")? })
    }
}

fn size(ctx: &Context<'_>, i: usize, name: &str) -> Result<usize> {
    let tensor = ctx.input(i)?;
    if !tensor.shape().is_scalar() {
        return Err(invalid_argument!("{name} must be 0-D, got shape {}", tensor.shape()));
    }
    match usize::try_from(tensor.scalar_value::<i32>()?) {
        Ok(size) if size > 0 => Ok(size),
        _ => Err(invalid_argument!("{name} must be positive")),
    }
}

impl Kernel for Combined {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (boxes, scores) = (ctx.input(0)?, ctx.input(1)?);
        if boxes.shape().dim(0) != scores.shape().dim(0) {
            return Err(invalid_argument!("boxes and scores must have same batch size"));
        }
        let per_class = size(ctx, 2, "max_size_per_class")?;
        let total = size(ctx, 3, "max_total_size")?;
        if total > 1 << 31 {
            return Err(invalid_argument!("max_total_size is too large"));
        }
        let (overlap, lowest_score) = (scalar(ctx, 4, "iou_threshold")?, scalar(ctx, 5, "score_threshold")?);
        if !(0.0..=1.0).contains(&overlap) {
            return Err(invalid_argument!("iou_threshold must be in [0, 1]"));
        }
        let &[batch, count, kinds, corners] = boxes.shape().dims() else {
            return Err(invalid_argument!("boxes must be 4-D{}", boxes.shape()));
        };
        let &[_, score_count, classes] = scores.shape().dims() else {
            return Err(invalid_argument!("scores must be 3-D{}", scores.shape()));
        };
        if kinds != 1 && kinds != classes {
            return Err(invalid_argument!("third dimension of boxes must be either 1 or num classes"));
        }
        if corners != 4 {
            return Err(invalid_argument!("boxes must have 4 columns"));
        }
        if score_count != count {
            return Err(invalid_argument!("scores has incompatible shape"));
        }
        let slots = if self.pad_per_class { total.min(per_class.saturating_mul(classes)) } else { total };
        let shape = Shape::from_dims(&[batch, slots])?;
        let mut out_boxes = Tensor::zeros(DType::Float, Shape::from_dims(&[batch, slots, 4])?)?;
        let mut out_scores = Tensor::zeros(DType::Float, shape.clone())?;
        let mut out_classes = Tensor::zeros(DType::Float, shape)?;
        let mut valid = Vec::with_capacity(batch);
        let rules =
            Rules { most: per_class.min(count), largest_overlap: overlap, lowest_score, sigma: 0.0, half: false };
        let (corners, _) = boxes.as_slice::<f32>()?.as_chunks::<4>();
        let scores = scores.as_slice::<f32>()?;
        for b in 0..batch {
            let corners = corners.get(b * count * kinds..(b + 1) * count * kinds).unwrap_or_default();
            let scores = scores.get(b * count * classes..(b + 1) * count * classes).unwrap_or_default();
            let mut found = Vec::new();
            for class in 0..classes {
                let own: Vec<f32> = scores.iter().skip(class).step_by(classes).copied().collect();
                let kind = if kinds > 1 { class } else { 0 };
                let at = |i: usize| corners.get(i * kinds + kind).copied().unwrap_or_default();
                let (selected, selected_scores) = rules.select(&own, |i, j| intersection_over_union(&at(i), &at(j)));
                for (i, score) in selected.into_iter().zip(selected_scores) {
                    found.push(Detection { score, class, corners: at(i) });
                }
            }
            found.sort_by(|a, b| b.score.total_cmp(&a.score));
            found.truncate(slots);
            valid.push(found.len() as i32);
            let (rows, _) = out_boxes.as_mut_slice::<f32>()?.as_chunks_mut::<4>();
            for (at, detection) in found.iter().enumerate() {
                let place = b * slots + at;
                let bad = || internal!("a detection is out of range");
                let clip = |edge: f32| if self.clip { edge.clamp(0.0, 1.0) } else { edge };
                *rows.get_mut(place).ok_or_else(bad)? = detection.corners.map(clip);
                *out_scores.as_mut_slice::<f32>()?.get_mut(place).ok_or_else(bad)? = detection.score;
                *out_classes.as_mut_slice::<f32>()?.get_mut(place).ok_or_else(bad)? = detection.class as f32;
            }
        }
        ctx.set_output(0, out_boxes)?;
        ctx.set_output(1, out_scores)?;
        ctx.set_output(2, out_classes)?;
        ctx.set_output(3, Tensor::vector(&valid)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::testing::OpRun;

    #[test]
    fn overlapping_boxes_go() {
        let mut registry = Registry::new();
        register(&mut registry);
        let boxes = [0.0f32, 0.0, 1.0, 1.0, 0.0, 0.1, 1.0, 1.1, 0.0, -0.1, 1.0, 0.9, 0.0, 10.0, 1.0, 11.0];
        let boxes = Tensor::from_slice(Shape::from_dims(&[4, 4]).unwrap(), &boxes).unwrap();
        let scores = Tensor::vector(&[0.9f32, 0.75, 0.6, 0.95]).unwrap();
        let inputs = vec![boxes, scores, Tensor::scalar(3i32).unwrap(), Tensor::scalar(0.5f32).unwrap()];
        let found = OpRun::new("NonMaxSuppressionV2").run(&registry, inputs).unwrap();
        assert_eq!(found[0].as_slice::<i32>().unwrap(), [3, 0]);
    }
}
