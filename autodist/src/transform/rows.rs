//! Sends rows of a split variable to the parts that hold them.

use super::nodes::{Emitter, WithAttr, node};
use crate::compiler::PartitionPlan;
use graphmill_tensor::{DType, Result};
use graphmill_wire::tensorflow::attr_value::Value;

/// A vector of row numbers, taken apart.
pub(super) struct Routed {
    /// For each row, its part.
    pub part: String,
    /// For each part, a tensor with the numbers of its rows within it.
    pub local: Vec<String>,
}

/// Where a rewritten node stands.
pub(super) struct Place<'a> {
    /// What new names begin with.
    pub scope: String,
    pub device: &'a str,
}

impl Place<'_> {
    fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.scope)
    }
}

/// Routes the rows in the vector `indices`. Numbers out of range go to the first or last part, whose operation then complains of
/// them as that of the whole variable would.
pub(super) fn route(
    out: &mut Emitter,
    place: &Place<'_>,
    plan: &PartitionPlan,
    indices: &str,
    index_type: DType,
) -> Result<Routed> {
    let offsets: Vec<i64> = plan.ranges().iter().map(|range| i64::try_from(range.offset).unwrap_or(i64::MAX)).collect();
    let device = place.device;
    let starts = out.vector(place.name("starts"), device, index_type, &offsets[1..])?;
    let last_axis = out.scalar(place.name("last_axis"), device, DType::Int32, -1)?;
    let column = out.add(
        node("ExpandDims", place.name("column"), device, vec![indices.to_owned(), last_axis.clone()])
            .with_type("T", index_type)
            .with_type("Tdim", DType::Int32),
    )?;
    // The number of the part is how many of the others' starts have been passed.
    let passed =
        out.add(node("GreaterEqual", place.name("passed"), device, vec![column, starts]).with_type("T", index_type))?;
    let counted = out.add(
        node("Cast", place.name("counted"), device, vec![passed])
            .with_type("SrcT", DType::Bool)
            .with_type("DstT", DType::Int32),
    )?;
    let part = out.add(
        node("Sum", place.name("part"), device, vec![counted, last_axis])
            .with_type("T", DType::Int32)
            .with_type("Tidx", DType::Int32),
    )?;
    let all_offsets = out.vector(place.name("offsets"), device, index_type, &offsets)?;
    let first_axis = out.scalar(place.name("first_axis"), device, DType::Int32, 0)?;
    let offset = out.add(
        node("GatherV2", place.name("offset"), device, vec![all_offsets, part.clone(), first_axis])
            .with_type("Tparams", index_type)
            .with_type("Tindices", DType::Int32)
            .with_type("Taxis", DType::Int32),
    )?;
    let local =
        out.add(node("Sub", place.name("local"), device, vec![indices.to_owned(), offset]).with_type("T", index_type))?;
    let local = partition(out, place, "local_rows", plan, &local, &part, index_type)?;
    Ok(Routed { part, local })
}

/// Sends each row of `data` to the part that `part` says.
pub(super) fn partition(
    out: &mut Emitter,
    place: &Place<'_>,
    name: &str,
    plan: &PartitionPlan,
    data: &str,
    part: &str,
    dtype: DType,
) -> Result<Vec<String>> {
    let parts = plan.ranges().len();
    let inputs = vec![data.to_owned(), part.to_owned()];
    let partitioned = out.add(
        node("DynamicPartition", place.name(name), place.device, inputs)
            .with_type("T", dtype)
            .with("num_partitions", Value::I(parts as i64)),
    )?;
    Ok((0..parts).map(|i| format!("{partitioned}:{i}")).collect())
}

/// Looks rows up in the parts, whose handles are resources; gives the name of the tensor with one row for each of `ids`, which may have any shape. `control` are
/// the nodes to wait for before reading.
pub(super) fn look_up(
    out: &mut Emitter,
    place: &Place<'_>,
    plan: &PartitionPlan,
    handles: &[String],
    ids: &str,
    types: (DType, DType),
    control: &[String],
) -> Result<(String, String)> {
    let (dtype, index_type) = types;
    let device = place.device;
    let any = out.vector(place.name("any_length"), device, DType::Int32, &[-1])?;
    let flat = out.add(
        node("Reshape", place.name("flat"), device, vec![ids.to_owned(), any])
            .with_type("T", index_type)
            .with_type("Tshape", DType::Int32),
    )?;
    let routed = route(out, place, plan, &flat, index_type)?;
    let count = out.add(
        node("Size", place.name("count"), device, vec![flat])
            .with_type("T", index_type)
            .with_type("out_type", DType::Int32),
    )?;
    let zero = out.scalar(place.name("zero"), device, DType::Int32, 0)?;
    let one = out.scalar(place.name("one"), device, DType::Int32, 1)?;
    let range = node("Range", place.name("positions"), device, vec![zero.clone(), count, one]);
    let positions = out.add(range.with_type("Tidx", DType::Int32))?;
    let mut stitched = partition(out, place, "part_positions", plan, &positions, &routed.part, DType::Int32)?;
    for (i, (handle, local)) in handles.iter().zip(&routed.local).enumerate() {
        let mut inputs = vec![handle.clone(), local.clone()];
        inputs.extend_from_slice(control);
        stitched.push(
            out.add(
                node("ResourceGather", place.name(&format!("part_{i}")), device, inputs)
                    .with_type("dtype", dtype)
                    .with_type("Tindices", index_type),
            )?,
        );
    }
    let rows = out.add(
        node("DynamicStitch", place.name("rows"), device, stitched)
            .with_type("T", dtype)
            .with("N", Value::I(handles.len() as i64)),
    )?;
    let ids_shape = out.add(
        node("Shape", place.name("ids_shape"), device, vec![ids.to_owned()])
            .with_type("T", index_type)
            .with_type("out_type", DType::Int32),
    )?;
    let row_shape: Vec<i64> = plan.shape()[1..].iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect();
    let row_shape = out.vector(place.name("row_shape"), device, DType::Int32, &row_shape)?;
    let shape = out.add(
        node("ConcatV2", place.name("shape"), device, vec![ids_shape, row_shape, zero])
            .with_type("T", DType::Int32)
            .with_type("Tidx", DType::Int32)
            .with("N", Value::I(2)),
    )?;
    Ok((rows, shape))
}
