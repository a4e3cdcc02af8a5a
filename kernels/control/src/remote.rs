//! `RemoteCall`.

use crate::functional::{call, check_results};
use graphmill_runtime::{
    AsyncContext, AsyncKernel, Construction, Device, DeviceSpec, Devices, FunctionHandle, Registry, RemoteFunction,
    outputs,
};
use graphmill_tensor::{Result, internal, invalid_argument};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Devices that a node keeps its function for.
const MOST_KEPT: usize = 256;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("RemoteCall").async_kernel(RemoteCall::new);
}

/// Calls a function on the device that the first input names: one of this task, or of another one.
struct RemoteCall {
    function: FunctionHandle,
    /// The function on each device that it was called on.
    placed: Mutex<HashMap<String, Placed>>,
}

/// A function on a device.
#[derive(Clone)]
enum Placed {
    Here(Arc<FunctionHandle>),
    Elsewhere(Arc<dyn RemoteFunction>),
}

impl RemoteCall {
    fn new(c: &Construction<'_>) -> Result<RemoteCall> {
        Ok(RemoteCall { function: c.function("f")?, placed: Mutex::default() })
    }

    /// The function on a device; what a name leaves open is taken from the node's own device.
    fn place(&self, target: &str, own: &Device) -> Result<Placed> {
        if let Some(placed) = self.placed.lock().get(target) {
            return Ok(placed.clone());
        }
        let (wanted, own) = (DeviceSpec::parse(target), DeviceSpec::parse(own.name()).unwrap_or_default());
        let wanted =
            wanted.ok_or_else(|| invalid_argument!("Could not parse {target} into a device specification."))?;
        let wanted = wanted.or(&own);
        let runtime = self.function.runtime();
        let runtime =
            runtime.ok_or_else(|| internal!("There is no library of functions for {}", self.function.name()))?;
        let placed = match find(runtime.devices(), &wanted) {
            Some(device) => Placed::Here(Arc::new(self.function.on(device))),
            None if wanted.clone().without_device() == own.without_device() => {
                let names: Vec<&str> = runtime.devices().iter().map(|device| device.name()).collect();
                return Err(invalid_argument!("{target} unknown device. There are [ {} ]", names.join(", ")));
            }
            None => Placed::Elsewhere(self.function.on_other_task(&wanted.to_string())?),
        };
        let mut kept = self.placed.lock();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(target.to_owned(), placed.clone());
        Ok(placed)
    }
}

fn find<'a>(devices: &'a Devices, wanted: &DeviceSpec) -> Option<&'a Arc<Device>> {
    devices.matching(wanted).next()
}

impl AsyncKernel for RemoteCall {
    fn start(&self, mut ctx: AsyncContext) {
        let target = ctx.with_context(|ctx| match ctx.input(0)?.strings()? {
            [target] => Ok(String::from_utf8_lossy(target).into_owned()),
            _ => Err(invalid_argument!("target must be a scalar, got shape {}", ctx.input(0)?.shape())),
        });
        let placed = target.and_then(|(target, _)| self.place(&target, ctx.device()));
        match placed {
            Ok(Placed::Here(function)) => call(&function, 1, ctx),
            Ok(Placed::Elsewhere(function)) => {
                let inputs = 1..ctx.num_inputs();
                let args = match ctx.take_tensors(inputs) {
                    Ok(args) => args,
                    Err(error) => return ctx.complete(Err(error)),
                };
                let step = ctx.step().clone();
                let done = move |outcome: Result<_>| {
                    let outcome = outcome.and_then(|results| check_results(&ctx, results));
                    ctx.complete(outcome.map(outputs));
                };
                function.call(&step, args, Box::new(done));
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}
