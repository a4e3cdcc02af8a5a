//! The order in which elements leave a queue.

use graphmill_tensor::{Result, Tensor};
use std::collections::VecDeque;

/// One element of a queue: a tensor for each component.
pub type Tuple = Vec<Tensor>;

/// The elements within a queue, in the order in which they leave it.
pub trait QueueOrder: Send {
    /// Takes an element in.
    ///
    /// # Errors
    /// If the element is not one for this order.
    fn push(&mut self, element: Tuple) -> Result<()>;
    /// Puts back an element that was popped last.
    fn restore(&mut self, element: Tuple);
    /// The next element.
    fn pop(&mut self) -> Option<Tuple>;
    /// The number of elements.
    fn len(&self) -> usize;
    /// Whether there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// First in, first out.
impl QueueOrder for VecDeque<Tuple> {
    fn push(&mut self, element: Tuple) -> Result<()> {
        self.push_back(element);
        Ok(())
    }

    fn restore(&mut self, element: Tuple) {
        self.push_front(element);
    }

    fn pop(&mut self) -> Option<Tuple> {
        self.pop_front()
    }

    fn len(&self) -> usize {
        VecDeque::len(self)
    }
}
