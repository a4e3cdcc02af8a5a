//! Tensor arrays: lists of a step that loops write to and read from, each element once. The second output of most ops, the flow,
//! orders them.
//!
//! The ops come in three generations, which differ in their handle: a reference to two strings, two strings, a resource.

mod gather;
mod item;
mod make;
mod scatter;
mod state;

use graphmill_graph::PartialShape;
use graphmill_runtime::{Context, Registry, Value};
use graphmill_tensor::DType::{self, *};
use graphmill_tensor::{Result, Shape, Tensor, invalid_argument};
use state::{CONTAINER, TensorArray};
use std::sync::Arc;

/// Types of elements that are written and read one by one.
const ITEMS: &[DType] = &[
    BFloat16, Bool, Complex128, Complex64, Double, Float, Half, Int16, Int32, Int64, Int8, Resource, String, UInt16,
    UInt32, UInt64, UInt8, Variant,
];
/// Types of elements that are gathered into one tensor.
const GATHERED: &[DType] = &[
    BFloat16, Bool, Complex128, Complex64, Double, Float, Half, Int16, Int32, Int64, Int8, QInt32, QInt8, QUInt8,
    String, UInt16, UInt32, UInt64, UInt8, Variant,
];

pub(crate) fn register(registry: &mut Registry) {
    make::register(registry);
    item::register(registry);
    gather::register(registry);
    scatter::register(registry);
}

/// The two strings of a handle of the first or second generation: container and name.
fn string_handle(ctx: &mut Context<'_>) -> Result<(std::string::String, std::string::String)> {
    let value = ctx.take_value(0)?;
    let handle = match &value {
        Value::Tensor(tensor) => tensor.clone(),
        reference => reference.snapshot()?,
    };
    match handle.strings()? {
        [container, name] => {
            let text = |bytes: &[u8]| std::string::String::from_utf8_lossy(bytes).into_owned();
            Ok((text(container), text(name)))
        }
        _ => Err(invalid_argument!("Tensor array handle must be 2-element vector, but had shape: {}", handle.shape())),
    }
}

/// The name under which the step holds the array that input 0 names.
fn key(ctx: &mut Context<'_>) -> Result<std::string::String> {
    let is_resource = ctx.node().input_types.first().is_some_and(|slot| slot.dtype == Resource);
    if !is_resource {
        let (container, name) = string_handle(ctx)?;
        return Ok(format!("{container}{name}"));
    }
    match ctx.input(0)?.handles()? {
        [handle] => {
            ctx.device().check_handle::<TensorArray>(handle)?;
            Ok(handle.name.clone())
        }
        _ => Err(invalid_argument!("A tensor array's handle must have exactly one element")),
    }
}

/// The array that input 0 names.
///
/// # Errors
/// `NOT_FOUND` if the step has none of this name.
fn array(ctx: &mut Context<'_>) -> Result<Arc<TensorArray>> {
    let key = key(ctx)?;
    ctx.step().resources().lookup::<TensorArray>(CONTAINER, &key)
}

/// Passes the flow, input `i`, on.
fn pass_flow(ctx: &mut Context<'_>, i: usize) -> Result<()> {
    let flow = ctx.take_input(i)?;
    ctx.set_output(0, flow)
}

/// # Errors
/// `INVALID_ARGUMENT` if an op reads another type than the array holds.
fn check_read(array: &TensorArray, dtype: DType) -> Result<()> {
    if array.dtype == dtype {
        return Ok(());
    }
    Err(invalid_argument!("TensorArray dtype is {} but Op requested dtype {dtype}.", array.dtype))
}

/// # Errors
/// `INVALID_ARGUMENT` if an op writes another type than the array holds.
fn check_write(array: &TensorArray, value: &Tensor) -> Result<()> {
    if array.dtype == value.dtype() {
        return Ok(());
    }
    Err(invalid_argument!("TensorArray dtype is {} but Op is trying to write dtype {}.", array.dtype, value.dtype()))
}

/// Two shapes one behind the other.
fn appended(front: &Shape, back: &PartialShape) -> Result<PartialShape> {
    match back.dims() {
        None => Ok(PartialShape::unknown()),
        Some(dims) => {
            let all: Vec<i64> = front.dims_i64().chain(dims.iter().copied()).collect();
            PartialShape::new(&all)
        }
    }
}
