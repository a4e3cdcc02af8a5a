//! `RemoteCall`, on the one task that there is.

use crate::functional::call;
use graphmill_runtime::{AsyncContext, AsyncKernel, Construction, DeviceSpec, FunctionHandle, Registry};
use graphmill_tensor::{Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("RemoteCall").async_kernel(RemoteCall::new);
}

/// Calls a function on the device that the first input names, which must be the node's own.
struct RemoteCall {
    function: FunctionHandle,
}

impl RemoteCall {
    fn new(c: &Construction<'_>) -> Result<RemoteCall> {
        Ok(RemoteCall { function: c.function("f")? })
    }
}

impl AsyncKernel for RemoteCall {
    fn start(&self, mut ctx: AsyncContext) {
        let checked = ctx.with_context(|ctx| {
            let target = match ctx.input(0)?.strings()? {
                [target] => String::from_utf8_lossy(target).into_owned(),
                _ => return Err(invalid_argument!("target must be a scalar, got shape {}", ctx.input(0)?.shape())),
            };
            let device = ctx.device().name();
            let wanted = DeviceSpec::parse(&target)
                .ok_or_else(|| invalid_argument!("Could not parse {target} into a device specification."))?;
            match DeviceSpec::parse(device) {
                Some(own) if wanted.matches(&own) => Ok(()),
                _ => Err(invalid_argument!(
                    "{target} unknown device. A function can be called on the devices of this task alone: [ {device} ]"
                )),
            }
        });
        match checked {
            Ok(_) => call(&self.function, 1, ctx),
            Err(error) => ctx.complete(Err(error)),
        }
    }
}
