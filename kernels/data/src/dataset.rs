//! What a dataset is, and how an op makes one.

use crate::context::IteratorContext;
use crate::recipe::{Recipe, TYPE_NAME, rebuild};
use crate::state::{Reader, Writer};
use graphmill_graph::PartialShape;
use graphmill_runtime::{Construction, Context, Device, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, Variant, VariantObject, invalid_argument, unimplemented_op};
use std::fmt;
use std::sync::Arc;

/// The cardinality of a dataset without end.
pub(crate) const INFINITE: i64 = -1;
/// The cardinality of a dataset whose size shows only when it is read.
pub(crate) const UNKNOWN: i64 = -2;

/// One element of a dataset: its components.
pub(crate) type Tuple = Vec<Tensor>;

/// A description of a sequence of elements, from which iterators are made.
pub(crate) trait Dataset: Send + Sync {
    /// The types and shapes of the components.
    fn spec(&self) -> &Arc<Spec>;

    /// The number of elements, [`INFINITE`] or [`UNKNOWN`].
    fn cardinality(&self) -> i64 {
        UNKNOWN
    }

    /// What `iterator` does, in a context that knows of this dataset.
    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>>;

    /// The transformation's name, as `AssertNextDataset` spells it; empty for one that does not count.
    fn name(&self) -> &'static str;
}

impl dyn Dataset {
    /// An iterator at the first element. Those of the datasets below are made in a context that knows of this one.
    pub fn iterator(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        match self.name() {
            "" => self.make(ctx),
            name => self.make(&ctx.under(name)),
        }
    }
}

/// A position in a dataset. It may wait, so it runs on threads of this crate unless it says that it does not.
pub(crate) trait DatasetIterator: Send {
    /// The next element; `None` at the end, and again if asked again.
    fn next(&mut self) -> Result<Option<Tuple>>;

    /// Starts to make elements ahead of need, if it does so at all.
    fn begin(&self) -> Result<()> {
        Ok(())
    }

    /// Passes over up to `count` elements; how many there were.
    fn skip(&mut self, count: usize) -> Result<usize> {
        for passed in 0..count {
            if self.next()?.is_none() {
                return Ok(passed);
            }
        }
        Ok(count)
    }

    /// Whether no call of `next` ever waits for anything but the processor.
    fn never_waits(&self) -> bool {
        false
    }

    /// Whether the coming call of `next` does not wait.
    fn is_ready(&self) -> bool {
        self.never_waits()
    }

    /// Writes down the position.
    fn save(&mut self, writer: &mut Writer) -> Result<()>;

    /// Goes to a position that `save` wrote down. The iterator is new.
    fn restore(&mut self, reader: &mut Reader) -> Result<()>;
}

/// Types and shapes of the components of an element.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spec {
    pub types: Vec<DType>,
    pub shapes: Vec<PartialShape>,
}

impl Spec {
    /// From the attributes `output_types` and `output_shapes`.
    pub fn of(c: &Construction<'_>) -> Result<Arc<Spec>> {
        Spec::of_attrs(c, "output_types")
    }

    /// From an attribute with the types, and `output_shapes`.
    pub fn of_attrs(c: &Construction<'_>, types: &str) -> Result<Arc<Spec>> {
        Ok(Arc::new(Spec { types: c.attrs().dtype_list(types)?, shapes: c.attrs().shape_list("output_shapes")? }))
    }

    /// What these tensors look like.
    pub fn of_tensors(tensors: &[Tensor]) -> Arc<Spec> {
        Arc::new(Spec {
            types: tensors.iter().map(Tensor::dtype).collect(),
            shapes: tensors.iter().map(|t| PartialShape::from(t.shape())).collect(),
        })
    }

    /// Checks that elements of the spec `received` may stand where `self` is declared.
    pub fn verify(&self, received: &Spec) -> Result<()> {
        self.verify_types(received.types.iter().copied())?;
        if self.shapes.len() != received.shapes.len() {
            return Err(component_count(self.shapes.len(), "shapes", received.shapes.len()));
        }
        for (i, (expected, received)) in self.shapes.iter().zip(&received.shapes).enumerate() {
            if !compatible(expected, received) {
                return Err(bad_shape(i, expected, received));
            }
        }
        Ok(())
    }

    /// Checks an element against the spec.
    pub fn verify_element(&self, element: &[Tensor]) -> Result<()> {
        self.verify_types(element.iter().map(Tensor::dtype))?;
        if self.shapes.len() != element.len() {
            return Err(component_count(self.shapes.len(), "shapes", element.len()));
        }
        for (i, (expected, tensor)) in self.shapes.iter().zip(element).enumerate() {
            if !expected.is_compatible_with(tensor.shape()) {
                return Err(bad_shape(i, expected, &PartialShape::from(tensor.shape())));
            }
        }
        Ok(())
    }

    fn verify_types(&self, received: impl ExactSizeIterator<Item = DType>) -> Result<()> {
        if self.types.len() != received.len() {
            return Err(component_count(self.types.len(), "types", received.len()));
        }
        for (i, (&expected, received)) in self.types.iter().zip(received).enumerate() {
            if expected != received {
                return Err(invalid_argument!(
                    "Data type mismatch at component {i}: expected {expected} but got {received}."
                ));
            }
        }
        Ok(())
    }
}

fn component_count(expected: usize, what: &str, received: usize) -> graphmill_tensor::Status {
    invalid_argument!("Number of components does not match: expected {expected} {what} but got {received}.")
}

fn bad_shape(i: usize, expected: &PartialShape, received: &PartialShape) -> graphmill_tensor::Status {
    invalid_argument!("Incompatible shapes at component {i}: expected {expected} but got {received}.")
}

/// Whether a tensor may have both shapes.
fn compatible(a: &PartialShape, b: &PartialShape) -> bool {
    match (a.dims(), b.dims()) {
        (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| a == -1 || b == -1 || a == b),
        _ => true,
    }
}

/// A dataset as the element of a variant tensor.
pub(crate) struct DatasetVariant {
    pub dataset: Arc<dyn Dataset>,
    /// How it was made, where that is known.
    pub recipe: Option<Recipe>,
}

impl fmt::Debug for DatasetVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}Dataset", self.dataset.name())
    }
}

impl VariantObject for DatasetVariant {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn serialize(&self) -> Result<Variant> {
        match &self.recipe {
            Some(recipe) => Ok(recipe.serialize()),
            None => Err(unimplemented_op!("A {}Dataset cannot be serialized", self.dataset.name())),
        }
    }
}

/// The tensor that stands for a dataset.
pub(crate) fn dataset_tensor(dataset: Arc<dyn Dataset>, recipe: Option<Recipe>) -> Result<Tensor> {
    Tensor::from_variants(Shape::scalar(), vec![Variant::of(DatasetVariant { dataset, recipe })])
}

/// The dataset that a tensor stands for.
pub(crate) fn tensor_dataset(tensor: &Tensor, device: &Arc<Device>) -> Result<Arc<dyn Dataset>> {
    if tensor.dtype() != DType::Variant || !tensor.shape().is_scalar() {
        return Err(invalid_argument!("Dataset tensor must be a scalar of dtype DT_VARIANT."));
    }
    let Some(variant) = tensor.variants()?.first() else {
        return Err(invalid_argument!("Tensor must be a Dataset object."));
    };
    match variant.get::<DatasetVariant>() {
        Some(found) => Ok(found.dataset.clone()),
        None if variant.object.is_none() && variant.type_name == TYPE_NAME => rebuild(variant, device),
        None => Err(invalid_argument!("Tensor must be a Dataset object.")),
    }
}

/// The dataset in an input.
pub(crate) fn input_dataset(ctx: &Context<'_>, i: usize) -> Result<Arc<dyn Dataset>> {
    tensor_dataset(ctx.input(i)?, ctx.device())
}

/// The one value of an input that is called `name`.
pub(crate) fn scalar<T: graphmill_tensor::Element>(ctx: &Context<'_>, i: usize, name: &str) -> Result<T> {
    let tensor = ctx.input(i)?;
    if !tensor.shape().is_scalar() {
        return Err(invalid_argument!("{name} must be a scalar"));
    }
    tensor.scalar_value()
}

/// The one string of an input that is called `name`.
pub(crate) fn scalar_string(ctx: &Context<'_>, i: usize, name: &str) -> Result<bytes::Bytes> {
    let tensor = ctx.input(i)?;
    match tensor.strings()? {
        [value] if tensor.shape().is_scalar() => Ok(value.clone()),
        _ => Err(invalid_argument!("{name} must be a scalar")),
    }
}

/// The inputs in a range, by clone.
pub(crate) fn inputs(ctx: &Context<'_>, range: std::ops::Range<usize>) -> Result<Vec<Tensor>> {
    range.map(|i| ctx.input(i).cloned()).collect()
}

/// Registers ops that make datasets. `new` reads the attributes; what it returns reads the inputs.
pub(crate) fn dataset_ops<B, D>(
    registry: &mut Registry,
    ops: &[&'static str],
    new: impl Fn(&Construction<'_>) -> Result<B> + Clone + Send + Sync + 'static,
) where
    B: Fn(&Context<'_>) -> Result<D> + Send + Sync + 'static,
    D: Dataset + 'static,
{
    for op in ops {
        let new = new.clone();
        registry.op(op).kernel(move |c| Ok(Maker { make: new(c)?, recipe: Recipe::new(c) }));
    }
}

struct Maker<B> {
    make: B,
    recipe: Recipe,
}

impl<B, D> Kernel for Maker<B>
where
    B: Fn(&Context<'_>) -> Result<D> + Send + Sync,
    D: Dataset + 'static,
{
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let dataset = (self.make)(ctx)?;
        let recipe = self.recipe.with_inputs(ctx)?;
        ctx.set_output(0, dataset_tensor(Arc::new(dataset), Some(recipe))?)
    }
}
