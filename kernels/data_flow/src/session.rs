//! Tensors that a session keeps: `GetSessionHandle`, `GetSessionHandleV2`, `GetSessionTensor`, `DeleteSessionTensor`.

use graphmill_runtime::{Construction, Context, Device, Kernel, Registry, Resource, unique_number};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument};
use parking_lot::Mutex;
use std::sync::Arc;

/// Where a device keeps them, under names that no other tensor has.
const CONTAINER: &str = "_session_tensors";

pub(crate) fn register(registry: &mut Registry) {
    registry.op("GetSessionHandle").kernel(Keep::new);
    registry.op("GetSessionHandleV2").kernel(Keep::new);
    registry.op("GetSessionTensor").kernel(|_| Ok(Get));
    registry.op("DeleteSessionTensor").kernel(|_| Ok(Delete));
}

struct SessionTensor(Tensor);

impl Resource for SessionTensor {
    const TYPE_NAME: &'static str = "TensorHandle";
}

/// Keeps a tensor until it is deleted or the session, which owns this kernel, ends.
struct Keep {
    device: Arc<Device>,
    kept: Mutex<Vec<String>>,
}

impl Keep {
    fn new(c: &Construction<'_>) -> Result<Keep> {
        Ok(Keep { device: c.device().clone(), kept: Mutex::new(Vec::new()) })
    }
}

impl Kernel for Keep {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.take_input(0)?;
        let name = format!("{};{};{}", ctx.node().name, unique_number(), self.device.name());
        self.device.resources().create(CONTAINER, &name, SessionTensor(tensor))?;
        self.kept.lock().push(name.clone());
        let handle = match ctx.output_type(0)? {
            DType::Resource => {
                let handle = self.device.resource_handle::<SessionTensor>(CONTAINER, &name, Vec::new());
                Tensor::from_handles(Shape::scalar(), vec![handle])?
            }
            _ => Tensor::from_strings(Shape::scalar(), vec![Bytes::from(name)])?,
        };
        ctx.set_output(0, handle)
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        for name in self.kept.get_mut() {
            // It may have been deleted by then.
            let _ = self.device.resources().delete::<SessionTensor>(CONTAINER, name);
        }
    }
}

fn name_of(ctx: &Context<'_>) -> Result<String> {
    match ctx.input(0)?.strings()? {
        [name] => Ok(String::from_utf8_lossy(name).into_owned()),
        _ => Err(invalid_argument!("The handle of a session's tensor must be a scalar")),
    }
}

struct Get;

impl Kernel for Get {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let name = name_of(ctx)?;
        let kept = ctx.device().resources().lookup::<SessionTensor>(CONTAINER, &name);
        let kept =
            kept.map_err(|_| invalid_argument!("The tensor with handle '{name}' is not in the session store."))?;
        let declared = ctx.output_type(0)?;
        if kept.0.dtype() != declared {
            return Err(invalid_argument!(
                "The tensor with handle '{name}' is of type {}, not {declared}",
                kept.0.dtype()
            ));
        }
        ctx.set_output(0, kept.0.clone())
    }
}

struct Delete;

impl Kernel for Delete {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let name = name_of(ctx)?;
        ctx.device()
            .resources()
            .delete::<SessionTensor>(CONTAINER, &name)
            .map_err(|_| invalid_argument!("Failed to delete a tensor with handle '{name}' in the session store."))
    }
}
