//! `RaggedTensorToTensor`: a dense tensor with a default where rows are short.

use crate::coo::joined;
use crate::ragged::VALUES;
use crate::types::INDICES;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Mover, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("RaggedTensorToTensor").types("T", &VALUES).types("Tindex", &INDICES).kernel(ToTensor::new);
}

/// How a row partition is written down.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Partition {
    FirstDimSize,
    ValueRowids,
    RowSplits,
}

impl Partition {
    fn new(name: &[u8]) -> Result<Partition> {
        match name {
            b"FIRST_DIM_SIZE" => Ok(Partition::FirstDimSize),
            b"VALUE_ROWIDS" => Ok(Partition::ValueRowids),
            b"ROW_SPLITS" => Ok(Partition::RowSplits),
            other => {
                Err(invalid_argument!("Unknown string for partition info type: {}", String::from_utf8_lossy(other)))
            }
        }
    }
}

struct ToTensor {
    partitions: Vec<Partition>,
    ragged_rank: usize,
}

/// The inputs in front of the partitions.
const FIRST_PARTITION: usize = 3;

impl ToTensor {
    fn new(c: &Construction<'_>) -> Result<ToTensor> {
        let partitions = c
            .attrs()
            .string_list("row_partition_types")?
            .iter()
            .map(|n| Partition::new(n))
            .collect::<Result<Vec<_>>>()?;
        let sized = partitions.first() == Some(&Partition::FirstDimSize);
        if partitions.is_empty() {
            return Err(invalid_argument!("No row_partition_types given."));
        }
        if partitions.len() != c.input_range("row_partition_tensors")?.len() {
            return Err(invalid_argument!(
                "There are {} row_partition_types for {} row_partition_tensors",
                partitions.len(),
                c.input_range("row_partition_tensors")?.len()
            ));
        }
        let ragged_rank = partitions.len() - usize::from(sized);
        Ok(ToTensor { partitions, ragged_rank })
    }

    fn partition(&self, ctx: &Context<'_>, dim: usize) -> Result<(Partition, Vec<i64>)> {
        let at = dim + usize::from(self.partitions[0] == Partition::FirstDimSize);
        Ok((self.partitions[at], ctx.input(FIRST_PARTITION + at)?.to_i64_vec()?))
    }

    fn first_dim(&self, ctx: &Context<'_>) -> Result<i64> {
        let first = ctx.input(FIRST_PARTITION)?;
        match self.partitions[0] {
            Partition::FirstDimSize => match first.to_i64_vec()?.as_slice() {
                [size] => Ok(*size),
                _ => Err(invalid_argument!("Invalid first partition input. Tensor requires at least one element.")),
            },
            Partition::ValueRowids => Err(invalid_argument!("Cannot handle VALUE_ROWIDS in first dimension.")),
            Partition::RowSplits if first.num_elements() == 0 => {
                Err(invalid_argument!("Invalid first partition input. Tensor requires at least one element."))
            }
            Partition::RowSplits => Ok(first.num_elements() as i64 - 1),
        }
    }

    /// The shape of the result; -1 in the input stands for a size that the values decide.
    fn output_size(&self, ctx: &Context<'_>, first_dim: i64) -> Result<Vec<i64>> {
        let (shape, values, default) = (ctx.input(0)?, ctx.input(1)?.shape(), ctx.input(2)?.shape());
        check_default(default, values)?;
        let rank = self.ragged_rank + values.rank();
        let given = shape.to_i64_vec()?;
        let mut sizes = match shape.shape().rank() {
            0 if given == [-1] => vec![-1; rank],
            0 => {
                return Err(invalid_argument!(
                    "The only valid scalar shape tensor is the fully unknown shape specified as -1."
                ));
            }
            1 => given,
            n => return Err(invalid_argument!("Shape must be at most rank 1 but is rank {n}")),
        };
        if sizes.len() != rank {
            return Err(invalid_argument!(
                "rt_input.shape and shape=[{}] are incompatible: rt_input.rank = {rank} but shape.rank = {}",
                joined(&sizes, ",").replace("-1", "?"),
                sizes.len()
            ));
        }
        let text = joined(&sizes, ",").replace("-1", "?");
        for i in 1..values.rank() {
            let (at, have) = (self.ragged_rank + i, values.dim(i) as i64);
            if sizes[at] >= 0 && sizes[at] != have {
                return Err(invalid_argument!(
                    "rt_input.shape and shape=[{text}] are incompatible: rt_input.shape[{at}] = {have} but shape[{at}] = {}",
                    sizes[at]
                ));
            }
            sizes[at] = have;
        }
        if sizes[0] < 0 {
            sizes[0] = first_dim;
        }
        for (above, size) in sizes.iter_mut().skip(1).take(self.ragged_rank).enumerate() {
            if *size < 0 {
                *size = self.widest(ctx, above)?;
            }
        }
        Ok(sizes)
    }

    fn widest(&self, ctx: &Context<'_>, dim: usize) -> Result<i64> {
        let (partition, rows) = self.partition(ctx, dim)?;
        match partition {
            Partition::RowSplits => {
                Ok(rows.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).max().unwrap_or(0).max(0))
            }
            Partition::ValueRowids => Ok(rows.chunk_by(|a, b| a == b).map(<[i64]>::len).max().unwrap_or(0) as i64),
            Partition::FirstDimSize => Err(invalid_argument!("Cannot handle partition type FIRST_DIM_SIZE")),
        }
    }

    /// For each row of a dimension where it goes, or -1 for nowhere, from the same for its parents.
    fn children(&self, ctx: &Context<'_>, dim: usize, parents: &[i64], stride: i64, size: i64) -> Result<Vec<i64>> {
        let (partition, rows) = self.partition(ctx, dim)?;
        let mut places = Vec::new();
        match partition {
            Partition::RowSplits => {
                if rows.len().saturating_sub(1) > parents.len() {
                    return Err(invalid_argument!(
                        "Row partition size is greater than output size: {} > {}",
                        rows.len() - 1,
                        parents.len()
                    ));
                }
                let limit = ctx.input(1)?.num_elements().max(usize::MAX >> 32) as i64;
                if rows.iter().any(|&row| row < 0 || row > limit) || !rows.is_sorted() {
                    return Err(invalid_argument!("Invalid row split size."));
                }
                for (pair, &parent) in rows.windows(2).zip(parents) {
                    for i in 0..pair[1] - pair[0] {
                        places.push(if parent < 0 || i >= size { -1 } else { parent + i * stride });
                    }
                }
                if rows.last().is_some_and(|&last| last != places.len() as i64) {
                    return Err(invalid_argument!("Invalid row split size."));
                }
            }
            Partition::ValueRowids => {
                for group in rows.chunk_by(|a, b| a == b) {
                    let parent = usize::try_from(group[0]).ok().and_then(|row| parents.get(row));
                    let &parent = parent.ok_or_else(|| {
                        let which = if places.is_empty() { "current_value_rowid" } else { "next_value_rowid" };
                        invalid_argument!("Got {which}={} which is not less than {}", group[0], parents.len())
                    })?;
                    for i in 0..group.len() as i64 {
                        places.push(if parent < 0 || i >= size { -1 } else { parent + i * stride });
                    }
                }
            }
            Partition::FirstDimSize => return Err(invalid_argument!("Unsupported partition type:FIRST_DIM_SIZE")),
        }
        Ok(places)
    }
}

fn check_default(default: &Shape, values: &Shape) -> Result<()> {
    let incompatible = |what: String| {
        invalid_argument!(
            "default_value.shape={default} and rt_input.flat_values.shape={values} are incompatible: {what}"
        )
    };
    if default.rank() >= values.rank() {
        return Err(incompatible(format!(
            "default_value.rank = {}  must be less than rt_input.flat_values.rank = {}",
            default.rank(),
            values.rank()
        )));
    }
    for i in 0..default.rank() {
        let (have, want) = (default.dim(i), values.dim(i + 1));
        if have != 1 && have != want {
            let at = i as i64 - default.rank() as i64;
            return Err(incompatible(format!(
                "default_value.shape[{at}] = {have} but rt_input.flat_values.shape[{at}] = {want}"
            )));
        }
    }
    Ok(())
}

/// The default in every place, then the values where they go.
struct Place<'a> {
    places: &'a [i64],
    /// For each element of a value, the element of the default.
    default: &'a [usize],
}

impl Mover for Place<'_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let [values, default] = sources else { return };
        let width = self.default.len();
        if width == 0 {
            return;
        }
        for row in target.chunks_exact_mut(width) {
            for (to, &from) in row.iter_mut().zip(self.default) {
                if let Some(from) = default.get(from) {
                    *to = from.clone();
                }
            }
        }
        for (value, &place) in values.chunks_exact(width).zip(self.places) {
            let Ok(place) = usize::try_from(place) else { continue };
            if let Some(to) = target.get_mut(place * width..(place + 1) * width) {
                to.clone_from_slice(value);
            }
        }
    }
}

/// For each element of shape `to`, the element of a tensor of shape `from` that is broadcast to it.
fn broadcast_places(from: &Shape, to: &[usize]) -> Result<Vec<usize>> {
    let skipped = to.len().checked_sub(from.rank());
    let fits = skipped.is_some_and(|s| from.dims().iter().zip(&to[s..]).all(|(&f, &t)| f == 1 || f == t));
    let Some(skipped) = skipped.filter(|_| fits) else {
        return Err(invalid_argument!("Error broadcasting default_value"));
    };
    let shape = Shape::from_dims(to)?;
    let (strides, from_strides) = (shape.strides(), from.strides());
    let place = |i: usize| {
        let index = (skipped..to.len()).map(|d| i / strides[d].max(1) % to[d].max(1));
        index
            .zip(from.dims())
            .zip(&from_strides)
            .map(|((i, &size), &stride)| if size == 1 { 0 } else { i * stride })
            .sum()
    };
    Ok((0..shape.num_elements()).map(place).collect())
}

impl Kernel for ToTensor {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let first_dim = self.first_dim(ctx)?;
        let sizes = self.output_size(ctx, first_dim)?;
        let (values, default) = (ctx.input(1)?, ctx.input(2)?);
        let shape = Shape::new(&sizes)?;
        let mut out = Tensor::alloc(values.dtype(), shape.clone())?;
        if shape.num_elements() > 0 {
            let mut strides = vec![1i64; self.ragged_rank + 1];
            for i in (0..self.ragged_rank).rev() {
                strides[i] = strides[i + 1] * sizes[i + 1];
            }
            // Checks that there is memory for the places.
            let first_dim = Tensor::alloc(DType::Int64, Shape::new(&[first_dim])?)?.num_elements() as i64;
            let mut places: Vec<i64> =
                (0..first_dim).map(|row| if row < sizes[0] { row * strides[0] } else { -1 }).collect();
            for dim in 1..=self.ragged_rank {
                places = self.children(ctx, dim - 1, &places, strides[dim], sizes[dim])?;
            }
            let element: Vec<usize> = values.shape().dims()[1..].to_vec();
            let default_places = broadcast_places(default.shape(), &element)?;
            out.move_from(&[values, default], Place { places: &places, default: &default_places })?;
        }
        ctx.set_output(0, out)
    }
}
