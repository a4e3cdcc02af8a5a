//! Resources that an op of the graph makes and gives out: queues, tables, barriers, accumulators.

use crate::{Construction, Context, Device, Resource, Value, Variable};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, internal, invalid_argument};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers the resources that have no name of their own.
static NEXT_PRIVATE: AtomicU64 = AtomicU64::new(0);

/// A number that no other resource of the process has, for resources without a name.
pub fn unique_number() -> u64 {
    NEXT_PRIVATE.fetch_add(1, Ordering::Relaxed)
}

/// The resource of a kernel that makes it when it first runs, under the container and name of the node's attributes. A resource
/// without a `shared_name` belongs to the kernel and ends with it.
pub struct OwnedResource<R: Resource> {
    device: Arc<Device>,
    container: String,
    name: String,
    private: bool,
    by_reference: bool,
    made: Mutex<Option<(Arc<R>, Value)>>,
}

impl<R: Resource> OwnedResource<R> {
    /// For a node with the attributes `container` and `shared_name`. With `named_by_node`, the node's name stands in for an empty
    /// `shared_name`; otherwise the resource is then the kernel's own.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a container or name that TensorFlow does not permit.
    pub fn new(c: &Construction<'_>, named_by_node: bool) -> Result<OwnedResource<R>> {
        let (container, shared) = (c.attrs().str("container")?, c.attrs().str("shared_name")?);
        if !container.is_empty() && !is_container_name(container) {
            return Err(invalid_argument!("container contains invalid characters: {container}"));
        }
        if shared.starts_with('_') {
            return Err(invalid_argument!("shared_name cannot start with '_':{shared}"));
        }
        let container = if container.is_empty() { c.device().default_container() } else { container };
        let private = shared.is_empty() && !named_by_node;
        let name = match shared {
            "" if private => format!("_{}_{}", unique_number(), c.name()),
            "" => c.name().to_owned(),
            shared => shared.to_owned(),
        };
        let by_reference = c.output_types().first().is_some_and(|slot| slot.is_ref);
        let (device, container) = (c.device().clone(), container.to_owned());
        Ok(OwnedResource { device, container, name, private, by_reference, made: Mutex::new(None) })
    }

    /// The name of the resource.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The container of the resource.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The resource; at the first call it is looked up, made by `create` if there is none, and checked by `verify`.
    ///
    /// # Errors
    /// What `create` and `verify` return.
    pub fn get(&self, create: impl FnOnce() -> Result<R>, verify: impl FnOnce(&R) -> Result<()>) -> Result<Arc<R>> {
        Ok(self.resolve(create, verify)?.0)
    }

    /// Gives out the handle of the resource in output 0: a resource handle, or a reference to the pair of container and name.
    ///
    /// # Errors
    /// As [`OwnedResource::get`].
    pub fn give_out(
        &self,
        ctx: &mut Context<'_>,
        create: impl FnOnce() -> Result<R>,
        verify: impl FnOnce(&R) -> Result<()>,
    ) -> Result<()> {
        let (_, handle) = self.resolve(create, verify)?;
        ctx.set_value(0, handle)
    }

    fn resolve(
        &self,
        create: impl FnOnce() -> Result<R>,
        verify: impl FnOnce(&R) -> Result<()>,
    ) -> Result<(Arc<R>, Value)> {
        let mut made = self.made.lock();
        if let Some(found) = &*made {
            return Ok(found.clone());
        }
        let resource = self.device.resources().lookup_or_create(&self.container, &self.name, create)?;
        verify(&resource)?;
        let found = (resource, self.handle()?);
        *made = Some(found.clone());
        Ok(found)
    }

    fn handle(&self) -> Result<Value> {
        if !self.by_reference {
            let handle = self.device.resource_handle::<R>(&self.container, &self.name, Vec::new());
            return Ok(Value::Tensor(Tensor::from_handles(Shape::scalar(), vec![handle])?));
        }
        let pair = [&self.container, &self.name].map(|text| Bytes::from(text.clone())).to_vec();
        let variable = Variable::new(&self.name, DType::String);
        variable.write(Tensor::from_strings(Shape::vector(2), pair)?);
        Ok(Value::Ref(Arc::new(variable)))
    }
}

impl<R: Resource> Drop for OwnedResource<R> {
    fn drop(&mut self) {
        if self.private && self.made.get_mut().is_some() {
            // A reset of the session may have removed it already.
            let _ = self.device.resources().delete::<R>(&self.container, &self.name);
        }
    }
}

impl Context<'_> {
    /// The resource that input `i` names: by a resource handle, or by a reference to a pair of container and name.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a handle of another device or type, `NOT_FOUND` if there is no such resource.
    pub fn input_resource<R: Resource>(&self, i: usize) -> Result<Arc<R>> {
        let named = match self.input_ref(i) {
            Ok(variable) => variable.snapshot()?,
            Err(_) => self.input(i)?.clone(),
        };
        if named.dtype() == DType::String {
            return match named.strings()? {
                [container, name] => {
                    let (container, name) = (String::from_utf8_lossy(container), String::from_utf8_lossy(name));
                    self.device().resources().lookup(&container, &name)
                }
                _ => Err(internal!("Resource handle must have 2 elements, but had shape: {}", named.shape())),
            };
        }
        match named.handles()? {
            [handle] => self.device().lookup_handle(handle),
            _ => Err(invalid_argument!("Resource handle must have exactly one element, got shape {}", named.shape())),
        }
    }
}

/// A letter, digit or dot, then any number of these, dashes and slashes.
fn is_container_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    name.starts_with(plain) && name.chars().all(|c| plain(c) || c == '-' || c == '/')
}
