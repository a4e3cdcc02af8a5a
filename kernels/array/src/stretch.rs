//! Dimensions cut into stretches that are each copied in one direction.

use crate::walk::{Dims, Walk, strides_of};
use graphmill_runtime::Context;
use graphmill_tensor::{Result, Tensor};

/// A stretch of a target's dimension, and the stretch of the source's that it shows, forwards or backwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    /// First position in the target.
    pub(crate) to: usize,
    /// Position in the source that is shown first.
    pub(crate) from: usize,
    pub(crate) length: usize,
    pub(crate) backwards: bool,
}

/// Visits every combination of stretches, one for each dimension, leaving out those of length 0.
pub(crate) fn combinations(all: &[Dims<Stretch>], visit: &mut impl FnMut(&[Stretch]) -> Result<()>) -> Result<()> {
    fn descend(
        all: &[Dims<Stretch>],
        chosen: &mut Dims<Stretch>,
        visit: &mut impl FnMut(&[Stretch]) -> Result<()>,
    ) -> Result<()> {
        let Some(choices) = all.get(chosen.len()) else { return visit(chosen) };
        for choice in choices.iter().filter(|c| c.length > 0) {
            chosen.push(*choice);
            descend(all, chosen, visit)?;
            chosen.pop();
        }
        Ok(())
    }
    descend(all, &mut Dims::new(), visit)
}

/// Copies what the stretches of each dimension show.
///
/// # Errors
/// `INTERNAL` if a stretch reaches outside of its tensor.
pub(crate) fn copy(ctx: &Context<'_>, all: &[Dims<Stretch>], source: &Tensor, target: &mut Tensor) -> Result<()> {
    let (from, to) = (strides_of(source.shape()), strides_of(target.shape()));
    combinations(all, &mut |chosen| {
        let sizes: Dims<usize> = chosen.iter().map(|s| s.length).collect();
        let steps: Dims<isize> = chosen.iter().zip(&from).map(|(s, &f)| if s.backwards { -f } else { f }).collect();
        let read = chosen.iter().zip(&from).map(|(s, f)| s.from * f.unsigned_abs()).sum();
        let write = chosen.iter().zip(&to).map(|(s, t)| s.to * t.unsigned_abs()).sum();
        Walk::new(&sizes, &steps, read, &to, write).copy(ctx, source, target)
    })
}
