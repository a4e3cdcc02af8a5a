//! The map within tables that are not dense.

use super::key::Key;
use graphmill_tensor::{DType, Mover, Result, Shape, Tensor};
use std::collections::HashMap;

/// Keys, each with a row of a tensor that holds the values.
pub(super) struct HashRows {
    rows: HashMap<Key, usize>,
    values: Tensor,
    row_size: usize,
    free: Vec<usize>,
    used: usize,
}

impl HashRows {
    /// Without keys; values will have `row_size` elements each.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(dtype: DType, row_size: usize) -> Result<HashRows> {
        let values = Tensor::alloc(dtype, Shape::vector(0))?;
        Ok(HashRows { rows: HashMap::new(), values, row_size, free: Vec::new(), used: 0 })
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.free.clear();
        self.used = 0;
    }

    /// The value of a key, as a row of [`HashRows::values`].
    pub fn row(&self, key: &Key) -> Option<usize> {
        self.rows.get(key).copied()
    }

    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// Sets the value of a key to row `from` of `source`.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn insert(&mut self, key: Key, source: &Tensor, from: usize) -> Result<()> {
        let row = match self.rows.get(&key) {
            Some(&row) => row,
            None => {
                let row = self.free.pop().unwrap_or(self.used);
                self.reserve(row + 1)?;
                self.used = self.used.max(row + 1);
                self.rows.insert(key, row);
                row
            }
        };
        let size = self.row_size;
        self.values.copy_elements(row * size, source, from * size..(from + 1) * size)
    }

    fn reserve(&mut self, rows: usize) -> Result<()> {
        let needed = rows * self.row_size;
        let present = self.values.num_elements();
        if needed <= present && self.values.is_unique() {
            return Ok(());
        }
        let mut grown = Tensor::zeros(self.values.dtype(), Shape::vector(needed.max(present * 2).max(16)))?;
        grown.copy_elements(0, &self.values, 0..present)?;
        self.values = grown;
        Ok(())
    }

    pub fn remove(&mut self, key: &Key) {
        if let Some(row) = self.rows.remove(key) {
            self.free.push(row);
        }
    }

    /// All keys, in the order of their rows, and their values.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn export(&self) -> Result<(Vec<&Key>, Tensor)> {
        let mut entries: Vec<(usize, &Key)> = self.rows.iter().map(|(key, &row)| (row, key)).collect();
        entries.sort_unstable_by_key(|&(row, _)| row);
        let rows: Vec<usize> = entries.iter().map(|&(row, _)| row).collect();
        let mut values = Tensor::alloc(self.values.dtype(), Shape::vector(rows.len() * self.row_size))?;
        let pick = Pick { rows: rows.into_iter().map(Some).collect(), size: self.row_size };
        values.move_from(&[&self.values, &self.values], pick)?;
        Ok((entries.into_iter().map(|(_, key)| key).collect(), values))
    }
}

/// Rows of the first source; where there is none, the row of the second source, which has one or as many as the target.
pub(super) struct Pick {
    pub rows: Vec<Option<usize>>,
    pub size: usize,
}

impl Mover for Pick {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let [values, defaults] = sources else { return };
        if self.size == 0 {
            return;
        }
        let many = defaults.len() == target.len();
        for (i, (row, target)) in self.rows.iter().zip(target.chunks_exact_mut(self.size)).enumerate() {
            let (source, at) = match row {
                Some(row) => (values, *row),
                None => (defaults, if many { i } else { 0 }),
            };
            if let Some(source) = source.get(at * self.size..(at + 1) * self.size) {
                target.clone_from_slice(source);
            }
        }
    }
}
