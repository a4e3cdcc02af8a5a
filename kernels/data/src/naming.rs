//! Under which container and name an op keeps its resource.

use graphmill_runtime::{Construction, Context, Resource, ResourceManager};
use graphmill_tensor::{ResourceHandle, Result, Shape, Tensor, Variant, VariantObject, invalid_argument};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers the resources that no name is shared for.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Container and name of a resource.
pub(crate) struct Place {
    pub container: String,
    pub name: String,
}

impl Place {
    /// From the attributes `container` and `shared_name`. Without a shared name the resource belongs to this kernel alone.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a container or name that TensorFlow does not permit.
    pub fn private(c: &Construction<'_>) -> Result<Place> {
        let (container, name) = (c.attrs().str("container")?, c.attrs().str("shared_name")?);
        if !container.is_empty() && !is_container_name(container) {
            return Err(invalid_argument!("container contains invalid characters: {container}"));
        }
        if name.starts_with('_') {
            return Err(invalid_argument!("shared_name cannot start with '_':{name}"));
        }
        let container = if container.is_empty() { c.device().default_container() } else { container };
        let name = match name {
            "" => format!("_{}_{}", NEXT.fetch_add(1, Ordering::Relaxed), c.name()),
            name => name.to_owned(),
        };
        Ok(Place { container: container.to_owned(), name })
    }
}

/// A letter, digit or dot, then any number of these, dashes and slashes.
fn is_container_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    name.starts_with(plain) && name.chars().all(|c| plain(c) || c == '-' || c == '/')
}

/// A resource under a name that nobody else knows.
pub(crate) struct Anonymous {
    handle: ResourceHandle,
    deleter: Deleter,
}

impl Anonymous {
    /// Files the resource.
    pub fn create<R: Resource>(ctx: &Context<'_>, prefix: &str, resource: R) -> Result<Anonymous> {
        let device = ctx.device();
        let container = device.default_container().to_owned();
        let name = format!("_{prefix}{}", NEXT.fetch_add(1, Ordering::Relaxed));
        device.resources().create(&container, &name, resource)?;
        let handle = device.resource_handle::<R>(&container, &name, Vec::new());
        let deleter =
            Deleter { resources: device.resources().clone(), container, name, type_name: R::TYPE_NAME, kept: false };
        Ok(Anonymous { handle, deleter })
    }

    /// Sets the handle and, if the op has a second output, what deletes the resource when the last copy of it is dropped.
    /// Without that output the resource stays for as long as its container.
    pub fn set_outputs(self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_output(0, Tensor::from_handles(Shape::scalar(), vec![self.handle])?)?;
        if ctx.num_outputs() > 1 {
            let deleter = Variant::from(Arc::new(self.deleter) as Arc<dyn VariantObject>);
            return ctx.set_output(1, Tensor::from_variants(Shape::scalar(), vec![deleter])?);
        }
        self.deleter.keep();
        Ok(())
    }
}

/// Deletes a resource when it is dropped.
struct Deleter {
    resources: Arc<ResourceManager>,
    container: String,
    name: String,
    type_name: &'static str,
    kept: bool,
}

impl Deleter {
    /// Leaves the resource where it is.
    fn keep(mut self) {
        self.kept = true;
    }
}

impl fmt::Debug for Deleter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceDeleter({})", self.name)
    }
}

impl VariantObject for Deleter {
    fn type_name(&self) -> &str {
        "ResourceDeleter"
    }
}

impl Drop for Deleter {
    fn drop(&mut self) {
        if !self.kept {
            // It may be gone already, with its container or by an explicit deletion.
            let _ = self.resources.delete_of_type(&self.container, &self.name, self.type_name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_names() {
        assert!(["ps", "a-b/c.d", ".", "1"].into_iter().all(is_container_name));
        assert!(!["", "-a", "/a", "a_b", "a b", "_"].into_iter().any(is_container_name));
    }
}
