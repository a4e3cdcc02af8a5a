//! `DeviceIndex`: which of the named types of device a node runs on.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::Result;

/// The first name in a list that is the type of the node's device, or the length of the list.
struct DeviceIndex(i32);

impl DeviceIndex {
    fn new(c: &Construction<'_>) -> Result<DeviceIndex> {
        let names = c.attrs().string_list("device_names")?;
        let own = c.device().device_type().as_bytes();
        let index = names.iter().position(|name| **name == *own).unwrap_or(names.len());
        Ok(DeviceIndex(i32::try_from(index).unwrap_or(i32::MAX)))
    }
}

impl Kernel for DeviceIndex {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_scalar(0, self.0)
    }
}

pub(crate) fn register(registry: &mut Registry) {
    registry.op("DeviceIndex").kernel(DeviceIndex::new);
}
