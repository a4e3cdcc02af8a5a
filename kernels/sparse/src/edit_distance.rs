//! `EditDistance`: Levenshtein's distance of the sequences in the rows of two sparse tensors.

use crate::coo::{Coo, strides};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    Complex32, Complex64, DType, Result, Shape, Tensor, bf16, dispatch, f16, internal, invalid_argument,
};
use std::collections::BTreeMap;

pub(crate) fn register(registry: &mut Registry) {
    use DType::{
        BFloat16, Bool, Complex64 as C64, Complex128, Double, Float, Half, Int8, Int16, Int32, Int64, UInt8, UInt16,
        UInt32, UInt64,
    };
    let types = [
        BFloat16,
        Bool,
        Complex128,
        C64,
        Double,
        Float,
        Half,
        Int16,
        Int32,
        Int64,
        Int8,
        DType::String,
        UInt16,
        UInt32,
        UInt64,
        UInt8,
    ];
    registry.op("EditDistance").types("T", &types).kernel(EditDistance::new);
}

struct EditDistance {
    normalize: bool,
}

impl EditDistance {
    fn new(c: &Construction<'_>) -> Result<EditDistance> {
        Ok(EditDistance { normalize: c.attrs().bool("normalize")? })
    }

    fn check(ctx: &Context<'_>) -> Result<()> {
        let shapes: Vec<&Shape> = (0..6).map(|i| Ok(ctx.input(i)?.shape())).collect::<Result<_>>()?;
        for (i, name) in [(0, "hypothesis_indices"), (3, "truth_indices")] {
            if !shapes[i].is_matrix() {
                return Err(invalid_argument!("{name} should be a matrix, but got shape: {}", shapes[i]));
            }
        }
        for (i, name) in [(1, "hypothesis_values"), (4, "truth_values"), (2, "hypothesis_shape"), (5, "truth_shape")] {
            if !shapes[i].is_vector() {
                return Err(invalid_argument!("{name} should be a vector, but got shape: {}", shapes[i]));
            }
        }
        for (i, name) in [(0, "hypothesis"), (3, "truth")] {
            let (indices, values, shape) = (shapes[i], shapes[i + 1], shapes[i + 2]);
            if i == 3 && shape.dim(0) < 2 {
                return Err(invalid_argument!(
                    "Input SparseTensors must have rank at least 2, but truth_shape rank is: {}",
                    shape.dim(0)
                ));
            }
            if values.dim(0) != indices.dim(0) {
                return Err(invalid_argument!(
                    "Expected {name}_values.NumElements == #rows({name}_indices), their shapes are: {values} and {indices}"
                ));
            }
            if shape.dim(0) != indices.dim(1) {
                return Err(invalid_argument!(
                    "Expected {name}_shape.NumElements == #cols({name}_indices), their shapes are: {shape} and {indices}"
                ));
            }
        }
        if shapes[5] != shapes[2] {
            return Err(invalid_argument!(
                "Expected truth and hypothesis to have matching ranks, but their shapes are: {} and {}",
                shapes[5],
                shapes[2]
            ));
        }
        Ok(())
    }

    /// The distance of two sequences; infinite where only the truth is empty.
    fn distance<T: PartialEq>(&self, hypothesis: &[T], truth: &[T]) -> f32 {
        let distance = levenshtein(hypothesis, truth) as f32;
        match (self.normalize, truth.is_empty()) {
            (false, _) => distance,
            (true, true) if distance > 0.0 => f32::INFINITY,
            (true, true) => 0.0,
            (true, false) => distance / truth.len() as f32,
        }
    }

    fn run<T: PartialEq + Clone>(&self, ctx: &Context<'_>, hypothesis: &[T], truth: &[T]) -> Result<Tensor> {
        let first = Coo::with_shape(ctx.input(0)?, ctx.input(1)?, ctx.input(2)?.to_i64_vec()?)?;
        let second = Coo::with_shape(ctx.input(3)?, ctx.input(4)?, ctx.input(5)?.to_i64_vec()?)?;
        let outer = first.rank() - 1;
        let sizes: Vec<i64> = (0..outer).map(|d| first.shape[d].max(second.shape[d])).collect();
        let shape = Shape::new(&sizes)?;
        if shape.num_elements() == 0 {
            return Err(invalid_argument!("Got output shape {shape} which has 0 elements"));
        }
        let mut out = Tensor::zeros(DType::Float, shape)?;
        let mut rows: BTreeMap<&[i64], [Vec<T>; 2]> = BTreeMap::new();
        for (which, coo, values) in [(0, &first, hypothesis), (1, &second, truth)] {
            for (i, value) in values.iter().enumerate() {
                let row = &coo.row(i)[..outer];
                rows.entry(row).or_insert_with(|| [Vec::new(), Vec::new()])[which].push(value.clone());
            }
        }
        let strides = strides(&sizes);
        let distances = out.as_mut_slice::<f32>()?;
        let most = distances.len();
        for (row, [hypothesis, truth]) in &rows {
            let at = row.iter().zip(&strides).fold(0i64, |at, (&i, &s)| at.saturating_add(i.saturating_mul(s)));
            let slot = usize::try_from(at).ok().and_then(|at| distances.get_mut(at));
            *slot.ok_or_else(|| {
                internal!(
                    "Got an inner product {at} which would require writing to outside of the buffer for the output tensor (max \
                     elements {most})"
                )
            })? = self.distance(hypothesis, truth);
        }
        Ok(out)
    }
}

fn levenshtein<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    // Costs of turning the beginning of `a` into each beginning of `b`.
    let mut costs: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = costs[0];
        costs[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = costs[j + 1];
            costs[j + 1] = replaced.min(diagonal + 1).min(costs[j] + 1);
        }
    }
    costs[b.len()]
}

impl Kernel for EditDistance {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        EditDistance::check(ctx)?;
        let (hypothesis, truth) = (ctx.input(1)?, ctx.input(4)?);
        let out = if hypothesis.dtype() == DType::String {
            self.run(ctx, hypothesis.strings()?, truth.strings()?)?
        } else {
            let done = dispatch!(hypothesis.dtype(), T in [
                f32, f64, i32, i64, u8, i8, i16, u16, u32, u64, f16, bf16, Complex32, Complex64, bool
            ] => self.run(ctx, hypothesis.as_slice::<T>()?, truth.as_slice::<T>()?)?);
            done.ok_or_else(|| internal!("no such type"))?
        };
        ctx.set_output(0, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshteins() {
        let distance = |a: &str, b: &str| levenshtein(a.as_bytes(), b.as_bytes());
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("flaw", "lawn"), 2);
        assert_eq!(distance("same", "same"), 0);
    }
}
