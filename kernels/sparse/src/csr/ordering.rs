//! `SparseMatrixOrderingAMD`: an order of elimination that keeps the factor of a symmetric matrix sparse.
//!
//! The minimum degree algorithm on a quotient graph (George and Liu, "The evolution of the minimum degree ordering algorithm",
//! 1989) with exact degrees. TensorFlow's kernel approximates degrees and breaks ties otherwise, so that its order may be another.

use super::Csr;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Result, Shape, Tensor, invalid_argument};
use std::collections::BTreeSet;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SparseMatrixOrderingAMD").kernel(|_| Ok(Ordering));
}

struct Ordering;

impl Kernel for Ordering {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let matrix = Csr::of_input(ctx, 0)?;
        let (batch, rows, columns) = matrix.sizes();
        if rows != columns {
            return Err(invalid_argument!("sparse matrix must be square; got: {rows} != {columns}"));
        }
        let all = matrix.row_pointers.as_slice::<i32>()?;
        let mut entries = matrix.columns.as_slice::<i32>()?.iter();
        let mut order = Vec::with_capacity(batch * rows);
        for starts in all.chunks_exact(rows + 1) {
            let mut graph = Graph::new(rows);
            for (row, ends) in starts.windows(2).enumerate() {
                for &column in entries.by_ref().take((ends[1] - ends[0]) as usize) {
                    // The other half of the matrix is what symmetry says.
                    if (column as usize) < row {
                        graph.connect(row, column as usize);
                    }
                }
            }
            order.extend(graph.order());
        }
        let shape = if matrix.rank() == 2 { Shape::vector(rows) } else { Shape::from_dims(&[batch, rows])? };
        ctx.set_output(0, Tensor::from_slice(shape, &order)?)
    }
}

/// What is left to eliminate. Eliminated nodes are elements: each stands for a clique of its members.
struct Graph {
    /// For each node its neighbours, but for those that it meets in an element.
    neighbours: Vec<BTreeSet<usize>>,
    /// For each node the elements that it is a member of.
    elements: Vec<BTreeSet<usize>>,
    members: Vec<BTreeSet<usize>>,
}

impl Graph {
    fn new(size: usize) -> Graph {
        let empty = || vec![BTreeSet::new(); size];
        Graph { neighbours: empty(), elements: empty(), members: empty() }
    }

    fn connect(&mut self, a: usize, b: usize) {
        self.neighbours[a].insert(b);
        self.neighbours[b].insert(a);
    }

    /// All that a node is connected with.
    fn reach(&self, node: usize) -> BTreeSet<usize> {
        let mut reach = self.neighbours[node].clone();
        for &element in &self.elements[node] {
            reach.extend(&self.members[element]);
        }
        reach.remove(&node);
        reach
    }

    /// The nodes in the order of their elimination.
    fn order(mut self) -> Vec<i32> {
        let size = self.neighbours.len();
        let mut degrees: Vec<usize> = self.neighbours.iter().map(BTreeSet::len).collect();
        let mut left: BTreeSet<(usize, usize)> = degrees.iter().copied().zip(0..size).collect();
        let mut order = Vec::with_capacity(size);
        while let Some((_, pivot)) = left.pop_first() {
            order.push(pivot as i32);
            let reach = self.reach(pivot);
            let absorbed = std::mem::take(&mut self.elements[pivot]);
            for &node in &reach {
                self.neighbours[node].retain(|other| *other != pivot && !reach.contains(other));
                self.elements[node].retain(|element| !absorbed.contains(element));
                self.elements[node].insert(pivot);
            }
            for &element in &absorbed {
                self.members[element].clear();
            }
            self.neighbours[pivot].clear();
            self.members[pivot].clone_from(&reach);
            for &node in &reach {
                left.remove(&(degrees[node], node));
                degrees[node] = self.reach(node).len();
                left.insert((degrees[node], node));
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_of_a_star_goes_last_but_one() {
        let mut graph = Graph::new(5);
        (1..5).for_each(|leaf| graph.connect(0, leaf));
        assert_eq!(graph.order(), [1, 2, 3, 0, 4]);
    }
}
