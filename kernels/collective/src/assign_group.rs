//! `CollectiveAssignGroupV2`: the group of a device in a table of groups.

use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("CollectiveAssignGroupV2").kernel(|_| Ok(AssignGroup));
}

/// Finds the row of the table that has the device: the size of its group is the length of the row, the key that of the row.
struct AssignGroup;

impl Kernel for AssignGroup {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (table, device, base) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if !device.shape().is_scalar() {
            return Err(invalid_argument!(
                "device_index must be a scalar, but received tensor of shape: {}",
                device.shape()
            ));
        }
        if !table.shape().is_matrix() {
            return Err(invalid_argument!(
                "group_assignment must be a 2-d Tensor, but received tensor of shape: {}",
                table.shape()
            ));
        }
        if !base.shape().is_scalar() {
            return Err(invalid_argument!("base_key must be a scalar, but received tensor of shape: {}", base.shape()));
        }
        let (device, base) = (device.scalar_value::<i32>()?, base.scalar_value::<i32>()?);
        let size = table.shape().dim(1);
        let row = table.as_slice::<i32>()?.chunks(size.max(1)).position(|row| row.contains(&device));
        let row = row.and_then(|row| i32::try_from(row).ok()?.checked_add(base));
        let key = row.ok_or_else(|| invalid_argument!("device_index {device} is not found in group_assignment"))?;
        let size = i32::try_from(size).map_err(|_| invalid_argument!("A group cannot have {size} members"))?;
        ctx.set_scalar(0, size)?;
        ctx.set_scalar(1, key)
    }
}
