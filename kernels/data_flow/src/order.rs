//! Orders in which elements leave a queue, beside first in, first out.

use graphmill_runtime::philox::{Philox, Words};
use graphmill_runtime::{QueueOrder, Tuple};
use graphmill_tensor::{Result, invalid_argument};
use std::collections::BTreeMap;

/// Any element, by the words of a Philox stream, so that a seeded queue gives TensorFlow's order.
pub(crate) struct Shuffled {
    elements: Vec<Tuple>,
    words: Words,
}

impl Shuffled {
    /// With these seeds; if both are 0, in an order that differs each time.
    pub fn new(seed: u64, seed2: u64) -> Shuffled {
        let (seed, seed2) = if (seed, seed2) == (0, 0) { (rand::random(), rand::random()) } else { (seed, seed2) };
        Shuffled { elements: Vec::new(), words: Words::new(Philox::from_seeds(seed, seed2)) }
    }
}

impl QueueOrder for Shuffled {
    fn push(&mut self, element: Tuple) -> Result<()> {
        self.elements.push(element);
        Ok(())
    }

    fn restore(&mut self, element: Tuple) {
        self.elements.push(element);
    }

    fn pop(&mut self) -> Option<Tuple> {
        if self.elements.is_empty() {
            return None;
        }
        let at = self.words.next() as usize % self.elements.len();
        Some(self.elements.swap_remove(at))
    }

    fn len(&self) -> usize {
        self.elements.len()
    }
}

/// The element with the smallest first component, an int64 scalar; of equal ones the first that came.
#[derive(Default)]
pub(crate) struct Sorted {
    elements: BTreeMap<(i64, u64), Tuple>,
    pushed: u64,
}

impl Sorted {
    fn insert(&mut self, element: Tuple) -> Result<()> {
        let priority = match element.first() {
            Some(first) if first.shape().is_scalar() => first.scalar_value::<i64>()?,
            first => {
                let shape = first.map(|first| first.shape().to_string()).unwrap_or_default();
                return Err(invalid_argument!(
                    "Expected the priority element to be a scalar, but received shape: {shape}"
                ));
            }
        };
        self.pushed += 1;
        self.elements.insert((priority, self.pushed), element);
        Ok(())
    }
}

impl QueueOrder for Sorted {
    fn push(&mut self, element: Tuple) -> Result<()> {
        self.insert(element)
    }

    fn restore(&mut self, element: Tuple) {
        // It was an element before, so it has a priority.
        let _ = self.insert(element);
    }

    fn pop(&mut self) -> Option<Tuple> {
        self.elements.pop_first().map(|(_, element)| element)
    }

    fn len(&self) -> usize {
        self.elements.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Tensor;

    fn drain(order: &mut impl QueueOrder) -> Vec<i64> {
        std::iter::from_fn(|| order.pop()).map(|element| element[1].scalar_value().unwrap()).collect()
    }

    fn fill(order: &mut impl QueueOrder, elements: &[(i64, i64)]) {
        for &(priority, value) in elements {
            order.push(vec![Tensor::scalar(priority).unwrap(), Tensor::scalar(value).unwrap()]).unwrap();
        }
    }

    #[test]
    fn priorities_come_first_and_equals_keep_their_order() {
        let mut order = Sorted::default();
        fill(&mut order, &[(3, 0), (1, 1), (2, 2), (1, 3), (-5, 4)]);
        assert_eq!(drain(&mut order), [4, 1, 3, 2, 0]);
        assert!(order.push(vec![Tensor::vector(&[1i64]).unwrap()]).is_err());
    }

    #[test]
    fn a_seeded_shuffle_is_repeatable() {
        let run = |seed| {
            let mut order = Shuffled::new(seed, 7);
            fill(&mut order, &[(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]);
            drain(&mut order)
        };
        assert_eq!(run(5), run(5));
        let mut sorted = run(5);
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
    }
}
