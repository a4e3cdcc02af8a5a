//! Sparse tensors that are kept under numbers: `AddSparseToTensorsMap`, `AddManySparseToTensorsMap`,
//! `TakeManySparseFromTensorsMap`.

use crate::coo::Coo;
use crate::stack::{Part, stack, unstack};
use crate::types::EVERY;
use graphmill_runtime::{Construction, Context, Kernel, OwnedResource, Registry, Resource};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};
use parking_lot::Mutex;
use std::collections::HashMap;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("AddSparseToTensorsMap").kernel(|c| OwnedResource::new(c, true).map(Add));
    registry.op("AddManySparseToTensorsMap").types("T", &EVERY).kernel(|c| OwnedResource::new(c, true).map(AddMany));
    registry.op("TakeManySparseFromTensorsMap").types("dtype", &EVERY).kernel(TakeMany::new);
}

#[derive(Default)]
struct TensorsMap(Mutex<State>);

#[derive(Default)]
struct State {
    next: i64,
    parts: HashMap<i64, Part>,
}

impl Resource for TensorsMap {
    const TYPE_NAME: &'static str = "N10tensorflow16SparseTensorsMapE";
}

impl TensorsMap {
    fn add(&self, part: Part) -> i64 {
        let mut state = self.0.lock();
        let handle = state.next;
        state.next = state.next.wrapping_add(1);
        state.parts.insert(handle, part);
        handle
    }
}

struct Add(OwnedResource<TensorsMap>);

impl Kernel for Add {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let coo = Coo::new(ctx.input(0)?, ctx.input(1)?, ctx.input(2)?)?;
        coo.check_indices()?;
        let part = Part { indices: ctx.input(0)?.clone(), values: ctx.input(1)?.clone(), shape: coo.shape };
        let handle = self.0.get(|| Ok(TensorsMap::default()), |_| Ok(()))?.add(part);
        ctx.set_scalar(0, handle)
    }
}

struct AddMany(OwnedResource<TensorsMap>);

impl Kernel for AddMany {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let coo = Coo::new(ctx.input(0)?, ctx.input(1)?, ctx.input(2)?)?;
        if coo.rank() <= 1 {
            return Err(invalid_argument!("Rank of input SparseTensor should be > 1, but saw rank: {}", coo.rank()));
        }
        coo.check_indices()?;
        let map = self.0.get(|| Ok(TensorsMap::default()), |_| Ok(()))?;
        let handles: Vec<i64> = unstack(&coo)?.into_iter().map(|part| map.add(part)).collect();
        ctx.set_output(0, Tensor::vector(&handles)?)
    }
}

/// Takes sparse tensors out and stacks them.
struct TakeMany {
    map: OwnedResource<TensorsMap>,
    dtype: DType,
}

impl TakeMany {
    fn new(c: &Construction<'_>) -> Result<TakeMany> {
        Ok(TakeMany { map: OwnedResource::new(c, false)?, dtype: c.dtype("dtype")? })
    }
}

impl Kernel for TakeMany {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let map = self.map.get(|| Ok(TensorsMap::default()), |_| Ok(()))?;
        let handles = ctx.input(0)?;
        if !handles.shape().is_vector() {
            return Err(invalid_argument!("sparse_handles should be a vector but received shape {}", handles.shape()));
        }
        let handles = handles.as_slice::<i64>()?;
        if handles.is_empty() {
            return Err(invalid_argument!("Must have at least 1 serialized SparseTensor, but input matrix has 0 rows"));
        }
        let mut parts = Vec::with_capacity(handles.len());
        {
            let mut state = map.0.lock();
            for &handle in handles {
                let part = state.parts.remove(&handle);
                parts.push(part.ok_or_else(|| {
                    invalid_argument!("Unable to find SparseTensor: {handle} in map: {}", self.map.name())
                })?);
            }
        }
        for (i, part) in parts.iter().enumerate() {
            part.check(self.dtype, i, "sparse_handles")?;
        }
        let [indices, values, shape] = stack(&parts, &[parts.len()], self.dtype, 1)?;
        ctx.set_output(0, indices)?;
        ctx.set_output(1, values)?;
        ctx.set_output(2, shape)
    }
}
