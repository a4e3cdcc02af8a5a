//! Resources without a name.

use graphmill_runtime::{Context, Resource, ResourceManager, unique_number};
use graphmill_tensor::{ResourceHandle, Result, Shape, Tensor, Variant, VariantObject};
use std::fmt;
use std::sync::Arc;

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
        let name = format!("_{prefix}{}", unique_number());
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
