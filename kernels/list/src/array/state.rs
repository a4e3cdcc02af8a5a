//! What a tensor array holds.

use crate::pieces::check_length;
use graphmill_graph::PartialShape;
use graphmill_runtime::{Resource, sum_of};
use graphmill_tensor::{DType, Result, Shape, Status, Tensor, invalid_argument};
use parking_lot::Mutex;

/// Where a step keeps its arrays and their gradients.
pub(super) const CONTAINER: &str = "_tensor_arrays";

/// An array of tensors that a step writes and reads.
pub(super) struct TensorArray {
    /// The name that errors use.
    pub name: String,
    pub dtype: DType,
    /// Whether the first shape that is written is the shape of all elements.
    pub identical_shapes: bool,
    /// Whether this is the array of gradients of another one: an index that is written again adds up, one that was not is zero.
    pub is_gradient: bool,
    pub clear_after_read: bool,
    state: Mutex<State>,
}

impl Resource for TensorArray {
    const TYPE_NAME: &'static str = "N10tensorflow11TensorArrayE";
}

/// What changes.
pub(super) struct State {
    pub element_shape: PartialShape,
    pub dynamic_size: bool,
    /// The number of elements that unpacking or splitting gave.
    pub marked_size: Option<usize>,
    gradients_disallowed: bool,
    items: Vec<Item>,
    closed: bool,
}

/// One index.
#[derive(Clone)]
struct Item {
    /// The value; absent where it is zero, has been read, or has not been written.
    tensor: Option<Tensor>,
    shape: Shape,
    written: bool,
    read: bool,
    cleared: bool,
}

impl Default for Item {
    fn default() -> Item {
        Item { tensor: None, shape: Shape::scalar(), written: false, read: false, cleared: false }
    }
}

/// What is fixed about an array when it is made.
pub(super) struct Options {
    pub name: String,
    pub dtype: DType,
    pub element_shape: PartialShape,
    pub identical_shapes: bool,
    pub dynamic_size: bool,
    pub clear_after_read: bool,
}

impl TensorArray {
    /// An array of `size` elements.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` for an absurd size.
    pub fn new(options: Options, size: usize) -> Result<TensorArray> {
        Ok(TensorArray {
            name: options.name,
            dtype: options.dtype,
            identical_shapes: options.identical_shapes,
            is_gradient: false,
            clear_after_read: options.clear_after_read,
            state: Mutex::new(State {
                element_shape: options.element_shape,
                dynamic_size: options.dynamic_size,
                marked_size: None,
                gradients_disallowed: false,
                items: vec![Item::default(); check_length(size)?],
                closed: false,
            }),
        })
    }

    /// The array of the gradients of this one, which may not grow any more: of its size, and its elements of the shapes written
    /// here, behind the dimensions `front`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if this array is closed or an index of it has been written twice.
    pub fn gradient(&self, name: String, front: &Shape) -> Result<TensorArray> {
        self.with(|state| {
            state.dynamic_size = false;
            if state.gradients_disallowed {
                return Err(invalid_argument!(
                    "Unable to create a gradients TensorArray for {}.  Perhaps you used the multiple_writes_aggregate flag on a \
                     previous write?  Gradient calculation is impossible when multiple writes are performed to the same index.",
                    self.name
                ));
            }
            let shaped = |item: &Item| {
                if !item.written {
                    return Ok(Item::default());
                }
                let dims: Vec<usize> = front.dims().iter().chain(item.shape.dims()).copied().collect();
                Ok(Item { shape: Shape::from_dims(&dims)?, written: true, ..Item::default() })
            };
            Ok(TensorArray {
                name,
                dtype: self.dtype,
                identical_shapes: self.identical_shapes,
                is_gradient: true,
                clear_after_read: true,
                state: Mutex::new(State {
                    element_shape: super::appended(front, &state.element_shape)?,
                    dynamic_size: false,
                    marked_size: state.marked_size,
                    gradients_disallowed: false,
                    items: state.items.iter().map(shaped).collect::<Result<_>>()?,
                    closed: false,
                }),
            })
        })
    }

    /// Works on the state.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the array is closed, and what `body` returns.
    pub fn with<T>(&self, body: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(invalid_argument!("TensorArray {} has already been closed.", self.name));
        }
        body(&mut state)
    }

    /// Drops what the array holds and refuses further use.
    pub fn close(&self) {
        let items = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.items)
        };
        drop(items);
    }

    fn cannot(&self, action: &str, index: i32, why: &str) -> Status {
        invalid_argument!("TensorArray {}: Could not {action} TensorArray index {index} because {why}", self.name)
    }

    /// Writes a value; adds it to an earlier one if this is an array of gradients.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an index that does not exist, has been read or written, and values that do not fit.
    pub fn write(&self, state: &mut State, index: i32, value: Tensor) -> Result<()> {
        let size = state.items.len();
        let at = usize::try_from(index).ok().filter(|&at| state.dynamic_size || at < size);
        let at = at.ok_or_else(|| {
            invalid_argument!(
                "TensorArray {}: Tried to write to index {index} but array is not resizeable and size is: {size}",
                self.name
            )
        })?;
        if value.dtype() != self.dtype {
            let why = format!("the value dtype is {} but TensorArray dtype is {}.", value.dtype(), self.dtype);
            return Err(self.cannot("write to", index, &why));
        }
        if at >= size {
            state.items.resize(check_length(at + 1)?, Item::default());
        }
        if !state.element_shape.is_compatible_with(value.shape()) {
            let why = format!(
                "the value shape is {} which is incompatible with the TensorArray's inferred element shape: {} (consider setting \
                 infer_shape=False).",
                value.shape(),
                state.element_shape
            );
            return Err(self.cannot("write to", index, &why));
        }
        if self.identical_shapes && !state.element_shape.is_fully_defined() {
            state.element_shape = PartialShape::from(value.shape());
        }
        let item = &mut state.items[at];
        if item.read {
            return Err(self.cannot("write to", index, "it has already been read."));
        }
        if !item.written {
            *item = Item { shape: value.shape().clone(), tensor: Some(value), written: true, ..Item::default() };
            return Ok(());
        }
        if !self.is_gradient {
            return Err(self.cannot("write to", index, "it has already been written to."));
        }
        if *value.shape() != item.shape {
            let why = format!("the existing shape is {} but the new input shape is {}.", item.shape, value.shape());
            return Err(self.cannot("aggregate to", index, &why));
        }
        match item.tensor.take().filter(|tensor| tensor.num_elements() > 0) {
            None => item.tensor = Some(value),
            Some(before) => {
                item.tensor = Some(sum_of(&before, &value)?);
                state.gradients_disallowed = true;
            }
        }
        Ok(())
    }

    /// Reads a value.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an index that does not exist, was not written, or has been read if reading clears.
    pub fn read(&self, state: &mut State, index: i32) -> Result<Tensor> {
        let size = state.items.len();
        let at = usize::try_from(index).ok().filter(|&at| self.is_gradient || at < size);
        let at = at.ok_or_else(|| invalid_argument!("Tried to read from index {index} but array size is: {size}"))?;
        let written = state.items.get(at).is_some_and(|item| item.written);
        if !written {
            self.zero(state, index, at)?;
        }
        let item = &mut state.items[at];
        if item.cleared {
            return Err(invalid_argument!(
                "TensorArray {}: Could not read index {index} twice because it was cleared after a previous read (perhaps try \
                 setting clear_after_read = false?).",
                self.name
            ));
        }
        item.read = true;
        if self.clear_after_read {
            item.cleared = true;
        }
        match if self.clear_after_read { item.tensor.take() } else { item.tensor.clone() } {
            Some(tensor) => Ok(tensor),
            None if item.shape.num_elements() > 0 && !self.dtype.is_fixed_size() => {
                Err(invalid_argument!("tensor_array::TensorSetZero type not supported: {}", self.dtype))
            }
            None => Tensor::zeros(self.dtype, item.shape.clone()),
        }
    }

    /// Makes an index that was not written zero.
    fn zero(&self, state: &mut State, index: i32, at: usize) -> Result<()> {
        let own = state.items.get(at).filter(|item| self.is_gradient && item.shape.rank() > 0);
        let shape = own.map(|item| item.shape.clone()).or_else(|| state.element_shape.to_shape());
        let shape = shape.ok_or_else(|| {
            invalid_argument!(
                "TensorArray {}: Could not read from TensorArray index {index}.  Furthermore, the element shape is not fully \
                 defined: {}.  It is possible you are working with a resizeable TensorArray and stop_gradients is not allowing \
                 the gradients to be written.  If you set the full element_shape property on the forward TensorArray, the proper \
                 all-zeros tensor will be returned instead of incurring this error.",
                self.name,
                state.element_shape
            )
        })?;
        let zero = Item { shape, written: true, ..Item::default() };
        if at >= state.items.len() {
            state.items.resize(check_length(at + 1)?, zero);
        } else {
            state.items[at] = zero;
        }
        Ok(())
    }
}

impl State {
    /// The number of elements.
    pub fn size(&self) -> usize {
        self.items.len()
    }
}
