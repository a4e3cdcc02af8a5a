//! Kernels that live as long as a session.

use crate::{AnyKernel, FunctionRuntime};
use graphmill_tensor::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The number of a device among those of its task, and a node's name.
type Key = (usize, Arc<str>);

/// Kernels of stateful ops, which all programs of a session share by device and node name: a random op goes on where it was,
/// whatever the signature it runs under.
#[derive(Default)]
pub struct KernelCache(Mutex<HashMap<Key, Cached>>);

struct Cached {
    kernel: Arc<AnyKernel>,
    /// What the functions that the kernel calls need; the program for which it was made may go before it.
    _functions: Option<Arc<FunctionRuntime>>,
}

impl KernelCache {
    /// An empty cache.
    pub fn new() -> KernelCache {
        KernelCache::default()
    }

    /// The kernel of a node, made by `build` if it is not there.
    pub(crate) fn get_or_build(
        &self,
        key: Key,
        functions: Option<&Arc<FunctionRuntime>>,
        build: impl FnOnce() -> Result<AnyKernel>,
    ) -> Result<Arc<AnyKernel>> {
        let mut kernels = self.0.lock();
        if let Some(cached) = kernels.get(&key) {
            return Ok(cached.kernel.clone());
        }
        let kernel = Arc::new(build()?);
        kernels.insert(key, Cached { kernel: kernel.clone(), _functions: functions.cloned() });
        Ok(kernel)
    }
}
