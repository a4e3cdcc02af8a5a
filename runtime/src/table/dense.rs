//! The buckets of dense tables. Which bucket a key is in can be seen by `LookupTableExport`, so probing goes as in TensorFlow.

use super::hash::Pick;
use super::key::{Key, keys_of, keys_to_tensor};
use graphmill_tensor::{DType, Result, Shape, Status, Tensor, internal, invalid_argument};

pub(super) struct Dense {
    empty: Key,
    deleted: Key,
    max_load_factor: f32,
    key_dtype: DType,
    key_size: usize,
    value_size: usize,
    entries: usize,
    buckets: Vec<Key>,
    values: Tensor,
}

/// What makes a dense table.
pub struct DenseSpec<'a> {
    /// The key that marks buckets never used.
    pub empty: &'a Tensor,
    /// The key that marks buckets whose key was removed.
    pub deleted: &'a Tensor,
    /// The type of values.
    pub value_dtype: DType,
    /// The shape of each value.
    pub value_shape: Shape,
    /// How many buckets there are at first.
    pub buckets: i64,
    /// How full the buckets may get before there will be more.
    pub max_load_factor: f32,
}

enum Found {
    At(usize),
    Free(usize),
}

impl Dense {
    /// An empty table.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for bad numbers of buckets, or if the two special keys differ in shape or are equal.
    pub fn new(spec: &DenseSpec<'_>) -> Result<Dense> {
        let key_size = spec.empty.num_elements();
        if spec.empty.shape() != spec.deleted.shape() {
            return Err(invalid_argument!(
                "Empty and deleted keys must have same shape, got shapes: {} and {}",
                spec.empty.shape(),
                spec.deleted.shape()
            ));
        }
        let single = |tensor: &Tensor| {
            keys_of(tensor, key_size)?.into_iter().next().ok_or_else(|| invalid_argument!("A key must not be empty"))
        };
        let (empty, deleted) = (single(spec.empty)?, single(spec.deleted)?);
        if empty == deleted {
            return Err(invalid_argument!("Empty and deleted keys cannot be equal"));
        }
        let mut table = Dense {
            empty,
            deleted,
            max_load_factor: spec.max_load_factor,
            key_dtype: spec.empty.dtype(),
            key_size,
            value_size: spec.value_shape.num_elements(),
            entries: 0,
            buckets: Vec::new(),
            values: Tensor::alloc(spec.value_dtype, Shape::vector(0))?,
        };
        table.allocate(spec.buckets)?;
        Ok(table)
    }

    fn allocate(&mut self, buckets: i64) -> Result<()> {
        if buckets < 4 || buckets & (buckets - 1) != 0 {
            return Err(invalid_argument!("Number of buckets must be at least 4 and a power of 2, got: {buckets}"));
        }
        let shape = Shape::new(&[buckets, self.value_size as i64])?;
        self.values = Tensor::zeros(self.values.dtype(), shape)?;
        // Checks the size of the keys as a tensor's before the memory is taken.
        Tensor::alloc(self.key_dtype, Shape::new(&[buckets, self.key_size as i64])?)?;
        self.buckets = vec![self.empty.clone(); buckets as usize];
        self.entries = 0;
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.entries
    }

    /// The values of some keys; the default where there is none.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for the two special keys.
    pub fn find(&self, keys: &[Key], out: &mut Tensor, default: &Tensor) -> Result<()> {
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            self.check(key)?;
            rows.push(match self.locate(key, false, "lookup")? {
                Found::At(bucket) => Some(bucket),
                Found::Free(_) => None,
            });
        }
        out.move_from(&[&self.values, default], Pick { rows, size: self.value_size })
    }

    fn check(&self, key: &Key) -> Result<()> {
        if *key == self.empty {
            return Err(invalid_argument!("Using the empty_key as a table key is not allowed"));
        }
        if *key == self.deleted {
            return Err(invalid_argument!("Using the deleted_key as a table key is not allowed"));
        }
        Ok(())
    }

    /// Quadratic probing. An insertion takes the first bucket that is empty or deleted.
    fn locate(&self, key: &Key, inserts: bool, action: &str) -> Result<Found> {
        let mask = (self.buckets.len() as u64).wrapping_sub(1);
        let mut at = key.hash() & mask;
        for probe in 1..=self.buckets.len() as u64 {
            match self.buckets.get(at as usize) {
                Some(held) if held == key => return Ok(Found::At(at as usize)),
                Some(held) if *held == self.empty || (inserts && *held == self.deleted) => {
                    return Ok(Found::Free(at as usize));
                }
                _ => at = (at + probe) & mask,
            }
        }
        Err(failure(action))
    }

    /// Sets the values of some keys.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for the two special keys.
    pub fn insert(&mut self, keys: Vec<Key>, values: &Tensor) -> Result<()> {
        let pending = self.entries + keys.len();
        let fits = |buckets: usize, factor: f32| pending as f32 <= buckets as f32 * factor;
        if !fits(self.buckets.len(), self.max_load_factor) {
            let mut buckets = self.buckets.len();
            while !fits(buckets, self.max_load_factor) {
                buckets = buckets.checked_mul(2).ok_or_else(|| failure("insert"))?;
            }
            self.grow(buckets)?;
        }
        for (row, key) in keys.into_iter().enumerate() {
            self.check(&key)?;
            self.put(key, values, row)?;
        }
        Ok(())
    }

    fn put(&mut self, key: Key, values: &Tensor, row: usize) -> Result<()> {
        let bucket = match self.locate(&key, true, "insert")? {
            Found::At(bucket) => bucket,
            Found::Free(bucket) => {
                self.entries += 1;
                self.buckets[bucket] = key;
                bucket
            }
        };
        if !self.values.is_unique() {
            self.values = self.values.deep_copy()?;
        }
        let size = self.value_size;
        self.values.copy_elements(bucket * size, values, row * size..(row + 1) * size)
    }

    fn grow(&mut self, buckets: usize) -> Result<()> {
        let held = std::mem::take(&mut self.buckets);
        let values = self.values.clone();
        self.allocate(buckets as i64)?;
        for (row, key) in held.into_iter().enumerate() {
            if key != self.empty && key != self.deleted {
                self.put(key, &values, row)?;
            }
        }
        Ok(())
    }

    /// Marks the buckets of some keys as deleted.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for the two special keys.
    pub fn remove(&mut self, keys: &[Key]) -> Result<()> {
        for key in keys {
            self.check(key)?;
            if let Found::At(bucket) = self.locate(key, false, "remove")? {
                self.entries -= 1;
                self.buckets[bucket] = self.deleted.clone();
            }
        }
        Ok(())
    }

    /// All buckets.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn export(&self) -> Result<(Tensor, Tensor)> {
        let shape = Shape::from_dims(&[self.buckets.len(), self.key_size])?;
        let keys = keys_to_tensor(self.buckets.iter(), self.key_dtype, shape)?;
        let values = self.values.reshaped(Shape::from_dims(&[self.buckets.len(), self.value_size])?)?;
        Ok((keys, values))
    }

    /// Takes over exported buckets.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the number of buckets is not one that a table can have.
    pub fn import(&mut self, keys: &Tensor, values: &Tensor) -> Result<()> {
        let buckets = keys.shape().dim(0);
        if !buckets.is_power_of_two() {
            return Err(invalid_argument!("Number of buckets must be at least 4 and a power of 2, got: {buckets}"));
        }
        self.buckets = keys_of(keys, self.key_size)?;
        self.values = values.clone();
        self.entries = self.buckets.iter().filter(|&key| *key != self.empty && *key != self.deleted).count();
        Ok(())
    }
}

fn failure(action: &str) -> Status {
    internal!("Internal error in MutableDenseHashTable {action}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_grow_and_deleted_ones_are_used_again() {
        let spec = DenseSpec {
            empty: &Tensor::scalar(0i64).unwrap(),
            deleted: &Tensor::scalar(-1i64).unwrap(),
            value_dtype: DType::Int64,
            value_shape: Shape::scalar(),
            buckets: 4,
            max_load_factor: 0.8,
        };
        let mut table = Dense::new(&spec).unwrap();
        let keys = |values: &[i64]| values.iter().map(|&v| Key::Int(v)).collect::<Vec<_>>();
        table.insert(keys(&[11, 12, 13, 14]), &Tensor::vector(&[0i64, 1, 2, 3]).unwrap()).unwrap();
        table.remove(&keys(&[12, 15])).unwrap();
        assert_eq!((table.len(), table.buckets.len()), (3, 8));
        let mut out = Tensor::alloc(DType::Int64, Shape::vector(3)).unwrap();
        table.find(&keys(&[11, 12, 14]), &mut out, &Tensor::scalar(-1i64).unwrap()).unwrap();
        assert_eq!(out.as_slice::<i64>().unwrap(), &[0, -1, 3]);
        assert!(table.insert(keys(&[0]), &Tensor::vector(&[0i64]).unwrap()).is_err());
        let (exported, _) = table.export().unwrap();
        assert_eq!(exported.as_slice::<i64>().unwrap().iter().filter(|&&k| k == -1).count(), 1);
    }
}
