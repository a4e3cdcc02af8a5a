//! Maps from tensors to tensors.

use crate::pieces::{joined, with_front};
use crate::variants::{Described, update, value};
use graphmill_runtime::{Construction, Context, Kernel, Registry, Stored, TensorMap};
use graphmill_tensor::{DType, Result, Status, Tensor, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("EmptyTensorMap").kernel(|_| Ok(Empty));
    registry.op("TensorMapSize").kernel(|_| Ok(Size));
    registry.op("TensorMapLookup").kernel(|_| Ok(Lookup));
    registry.op("TensorMapInsert").kernel(|_| Ok(Insert));
    registry.op("TensorMapErase").kernel(|_| Ok(Erase));
    registry.op("TensorMapHasKey").kernel(|_| Ok(HasKey));
    registry.op("TensorMapStackKeys").kernel(StackKeys::new);
}

impl Described for TensorMap {
    const WORD: &'static str = "map";
}

fn no_such_key(action: &str, key: &Tensor) -> Status {
    invalid_argument!(
        "Trying to {action}. Could not find key of type {} and shape {} with these elements.",
        key.dtype(),
        key.shape()
    )
}

/// A map without entries.
struct Empty;

impl Kernel for Empty {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_output(0, TensorMap::default().into_tensor()?)
    }
}

/// The number of entries.
struct Size;

impl Kernel for Size {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = value::<TensorMap>(ctx, 0)?.len();
        let size = i32::try_from(size).map_err(|_| internal!("a map is too large"))?;
        ctx.set_scalar(0, size)
    }
}

/// The value of a key.
struct Lookup;

impl Kernel for Lookup {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let map = value::<TensorMap>(ctx, 0)?;
        let key = ctx.input(1)?;
        let found = map.get(key)?.cloned();
        drop(map);
        match found {
            Some(found) => ctx.set_output(0, found),
            None => Err(no_such_key("lookup non-existent key", ctx.input(1)?)),
        }
    }
}

/// The map with one more entry, or another value for a key.
struct Insert;

impl Kernel for Insert {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        value::<TensorMap>(ctx, 0)?;
        let (key, new) = (ctx.take_input(1)?, ctx.take_input(2)?);
        update(ctx, |map: &mut TensorMap| map.insert(key, new))
    }
}

/// The map without an entry that is in it.
struct Erase;

impl Kernel for Erase {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        value::<TensorMap>(ctx, 0)?;
        let key = ctx.take_input(1)?;
        update(ctx, |map: &mut TensorMap| match map.remove(&key)? {
            Some(_) => Ok(()),
            None => Err(no_such_key("erase non-existent item", &key)),
        })
    }
}

/// Whether there is an entry of a key.
struct HasKey;

impl Kernel for HasKey {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let found = value::<TensorMap>(ctx, 0)?.get(ctx.input(1)?)?.is_some();
        ctx.set_scalar(0, found)
    }
}

/// The keys in one tensor.
struct StackKeys {
    dtype: DType,
}

impl StackKeys {
    fn new(c: &Construction<'_>) -> Result<StackKeys> {
        Ok(StackKeys { dtype: c.dtype("key_dtype")? })
    }
}

impl Kernel for StackKeys {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let map = value::<TensorMap>(ctx, 0)?;
        let keys: Vec<&Tensor> = map.keys().collect();
        let Some(first) = keys.first() else {
            return Err(invalid_argument!("TensorMapStackKeys cannot be called on empty map."));
        };
        if keys.iter().any(|key| key.dtype() != self.dtype) {
            return Err(invalid_argument!("Key does not match requested dtype."));
        }
        if keys.iter().any(|key| key.shape() != first.shape()) {
            return Err(invalid_argument!("Keys must all have the same shape."));
        }
        let elements = first.num_elements();
        let shape = with_front(keys.len(), first.shape())?;
        let output = joined(self.dtype, shape, keys.iter().map(|&key| (Some(key), elements)))?;
        drop(keys);
        drop(map);
        ctx.set_output(0, output)
    }
}
