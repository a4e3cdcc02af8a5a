//! `MapDefun`: a function for each slice of its arguments.

use crate::sequence::{Next, Sequence, run};
use graphmill_graph::PartialShape;
use graphmill_runtime::{AsyncContext, AsyncKernel, Construction, Function, FunctionHandle, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, internal, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("MapDefun").async_kernel(MapDefun::new);
}

/// Calls a function with each slice of the arguments along their first dimension, and with the captured inputs as they are; the
/// results are stacked.
struct MapDefun {
    function: FunctionHandle,
    arguments: usize,
    types: Arc<[DType]>,
    shapes: Arc<[PartialShape]>,
}

impl MapDefun {
    fn new(c: &Construction<'_>) -> Result<MapDefun> {
        let shapes = c.attrs().shape_list("output_shapes")?;
        let types: Arc<[DType]> = c.output_types().iter().map(|slot| slot.dtype).collect();
        if shapes.len() != types.len() {
            return Err(invalid_argument!("Length of output_shapes and output_types must match."));
        }
        let arguments = c.input_range("arguments")?.len();
        Ok(MapDefun { function: c.function("f")?, arguments, types, shapes: shapes.into() })
    }

    fn sequence(&self, ctx: &mut AsyncContext) -> Result<Slices> {
        let function = self.function.bind()?;
        let mut arguments = ctx.take_tensors(0..ctx.num_inputs())?;
        let captured = arguments.split_off(self.arguments);
        let count = arguments.first().map_or(0, |first| first.shape().dim(0));
        for (i, argument) in arguments.iter().enumerate() {
            if argument.shape().is_scalar() {
                return Err(invalid_argument!("All inputs must have rank at least 1. Input {i} has a rank of 0."));
            }
            let size = argument.shape().dim(0);
            if size != count {
                return Err(invalid_argument!(
                    "All inputs must have the same dimension 0. Input {i} has leading dimension {size}, while all previous inputs \
                     have leading dimension {count}"
                ));
            }
        }
        let outputs = vec![None; self.types.len()];
        let (types, shapes) = (self.types.clone(), self.shapes.clone());
        Ok(Slices { function, arguments, captured, types, shapes, count, called: 0, outputs })
    }
}

impl AsyncKernel for MapDefun {
    fn start(&self, mut ctx: AsyncContext) {
        match self.sequence(&mut ctx) {
            Ok(sequence) => run(sequence, ctx),
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

struct Slices {
    function: Function,
    arguments: Vec<Tensor>,
    captured: Vec<Tensor>,
    types: Arc<[DType]>,
    shapes: Arc<[PartialShape]>,
    count: usize,
    called: usize,
    /// Allocated when the shape of the first result is known.
    outputs: Vec<Option<Tensor>>,
}

impl Slices {
    fn store(&mut self, results: &[Tensor], at: usize) -> Result<()> {
        if results.len() != self.outputs.len() {
            return Err(invalid_argument!("Mismatch in number of function outputs."));
        }
        for (i, (result, output)) in results.iter().zip(&mut self.outputs).enumerate() {
            if result.dtype() != self.types[i] {
                return Err(invalid_argument!(
                    "Mismatch in function return type and expected output type for output: {i}"
                ));
            }
            let elements = result.num_elements();
            let expected = match output {
                Some(output) => PartialShape::new(&output.shape().dims_i64().skip(1).collect::<Vec<_>>())?,
                None => self.shapes[i].clone(),
            };
            if !expected.is_compatible_with(result.shape()) {
                return Err(invalid_argument!(
                    "Mismatch in function retval shape, {}, and expected output shape, {expected}.",
                    result.shape()
                ));
            }
            if output.is_none() {
                *output = Some(Tensor::alloc(result.dtype(), stacked(self.count, result.shape().dims())?)?);
            }
            if let Some(output) = output {
                output.copy_elements(at * elements, result, 0..elements)?;
            }
        }
        Ok(())
    }
}

fn stacked(count: usize, dims: &[usize]) -> Result<Shape> {
    let mut all = vec![count];
    all.extend(dims);
    Shape::from_dims(&all)
}

impl Sequence for Slices {
    fn next(&mut self, results: Option<Vec<Tensor>>) -> Result<Next> {
        if let Some(results) = results {
            self.store(&results, self.called - 1)?;
        }
        if self.called < self.count {
            let slice = |argument: &Tensor| {
                let shape = Shape::from_dims(argument.shape().dims().get(1..).unwrap_or_default())?;
                argument.rows(self.called, 1)?.into_shape(shape)
            };
            let mut args = self.arguments.iter().map(slice).collect::<Result<Vec<_>>>()?;
            args.extend(self.captured.iter().cloned());
            self.called += 1;
            return Ok(Next::Call(self.function.clone(), args));
        }
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for (i, output) in self.outputs.iter_mut().enumerate() {
            outputs.push(match output.take() {
                Some(output) => output,
                None => {
                    // Without a slice nothing is known but what is declared.
                    let shape = self.shapes[i].to_shape();
                    let shape = shape.ok_or_else(|| internal!("Output {i} of MapDefun has no value"))?;
                    Tensor::alloc(self.types[i], stacked(0, shape.dims())?)?
                }
            });
        }
        Ok(Next::Done(outputs))
    }
}
