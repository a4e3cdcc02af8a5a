//! Handles of resource variables: `VarHandleOp`, `_VarHandlesOp`, `DestroyResourceOp`.

use crate::access::handle;
use crate::naming::Place;
use graphmill_runtime::{Construction, Context, Device, Kernel, Registry, Resource, ResourceVariable};
use graphmill_tensor::{Code, DType, Result, Shape, Tensor, invalid_argument};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("VarHandleOp").kernel(VarHandle::new);
    registry.op("_VarHandlesOp").kernel(VarHandles::new);
    registry.op("DestroyResourceOp").kernel(DestroyResource::new);
    registry.op("StubResourceHandleOp").kernel(StubHandle::new);
}

/// The `shared_name` that asks for a new variable in each execution.
const ANONYMOUS: &str = "cd2c89b7-88b7-44c8-ad83-06c2a9158347";
/// Numbers the anonymous variables of the process.
static NEXT_ANONYMOUS: AtomicU64 = AtomicU64::new(0);

fn handle_tensor(device: &Device, place: &Place, dtype: DType, shape: Option<Shape>) -> Result<Tensor> {
    let handle = device.resource_handle::<ResourceVariable>(&place.container, &place.name, vec![(dtype, shape)]);
    Tensor::from_handles(Shape::scalar(), vec![handle])
}

/// Gives out the handle of a variable; the variable itself is made by the first assignment.
enum VarHandle {
    Named(Tensor),
    Anonymous { container: String, dtype: DType, shape: Option<Shape> },
}

impl VarHandle {
    fn new(c: &Construction<'_>) -> Result<VarHandle> {
        let place = Place::unchecked(c)?;
        let (dtype, shape) = (c.dtype("dtype")?, c.attrs().shape("shape")?.to_shape());
        if place.name == ANONYMOUS {
            return Ok(VarHandle::Anonymous { container: place.container, dtype, shape });
        }
        Ok(VarHandle::Named(handle_tensor(c.device(), &place, dtype, shape)?))
    }
}

impl Kernel for VarHandle {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        match self {
            VarHandle::Named(handle) => ctx.set_output(0, handle.clone()),
            VarHandle::Anonymous { container, dtype, shape } => {
                let name = format!("_AnonymousVar{}", NEXT_ANONYMOUS.fetch_add(1, Ordering::Relaxed));
                let place = Place { container: container.clone(), name };
                let handle = handle_tensor(ctx.device(), &place, *dtype, shape.clone())?;
                ctx.set_output(0, handle)
            }
        }
    }
}

/// A kind of resource that never exists, for programs that test what handles are passed through.
struct Stub;

impl Resource for Stub {
    const TYPE_NAME: &'static str = "N10tensorflow12_GLOBAL__N_112StubResourceE";
}

/// `StubResourceHandleOp`: the handle of such a resource.
struct StubHandle(Tensor);

impl StubHandle {
    fn new(c: &Construction<'_>) -> Result<StubHandle> {
        let place = Place::unchecked(c)?;
        let handle = c.device().resource_handle::<Stub>(&place.container, &place.name, Vec::new());
        Ok(StubHandle(Tensor::from_handles(Shape::scalar(), vec![handle])?))
    }
}

impl Kernel for StubHandle {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_output(0, self.0.clone())
    }
}

/// Several handles at once.
struct VarHandles(Vec<Tensor>);

impl VarHandles {
    fn new(c: &Construction<'_>) -> Result<VarHandles> {
        let n = c.output_types().len();
        let (containers, names) = (c.attrs().string_list("containers")?, c.attrs().string_list("shared_names")?);
        let (dtypes, shapes) = (c.attrs().dtype_list("dtypes")?, c.attrs().shape_list("shapes")?);
        if [containers.len(), names.len(), dtypes.len(), shapes.len()] != [n; 4] {
            return Err(invalid_argument!("the lists of containers, names, types and shapes must have {n} elements"));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut handles = Vec::with_capacity(n);
        for (((container, name), dtype), shape) in containers.iter().zip(names).zip(dtypes).zip(shapes) {
            let container =
                if container.is_empty() { c.device().default_container().to_owned() } else { text(container) };
            let place = Place { container, name: text(name) };
            handles.push(handle_tensor(c.device(), &place, dtype, shape.to_shape())?);
        }
        Ok(VarHandles(handles))
    }
}

impl Kernel for VarHandles {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        self.0.iter().enumerate().try_for_each(|(i, handle)| ctx.set_output(i, handle.clone()))
    }
}

/// Removes the resource of a handle, of whatever type it is.
struct DestroyResource {
    ignore_lookup_error: bool,
}

impl DestroyResource {
    fn new(c: &Construction<'_>) -> Result<DestroyResource> {
        Ok(DestroyResource { ignore_lookup_error: c.attrs().bool("ignore_lookup_error")? })
    }
}

impl Kernel for DestroyResource {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let handle = handle(ctx, 0)?;
        ctx.device().check_handle_device(handle)?;
        match ctx.device().resources().delete_of_type(&handle.container, &handle.name, &handle.type_name) {
            Err(error) if !self.ignore_lookup_error || error.code() != Code::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
