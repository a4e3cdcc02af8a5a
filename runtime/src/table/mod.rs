//! Lookup tables: maps from keys to values that outlive a step.
//!
//! There are three kinds: tables that are filled once, mutable ones, and dense ones, whose buckets the user sees. All take
//! their keys apart into [`key::Key`] and keep values in a tensor, so that one body serves every pair of types.

mod dense;
mod hash;
mod key;

pub use dense::DenseSpec;

use crate::{Context, Resource};
use dense::Dense;
use graphmill_tensor::{
    Code, DType, Result, Shape, Tensor, aborted, failed_precondition, invalid_argument, unimplemented_op,
};
use hash::{HashRows, Pick};
use key::{Key, keys_of, keys_to_tensor};
use parking_lot::RwLock;
use std::sync::Arc;

/// A table as a handle names it.
pub struct Table {
    key_dtype: DType,
    value_dtype: DType,
    key_shape: Shape,
    value_shape: Shape,
    body: RwLock<Body>,
}

/// What a table is made of.
enum Body {
    /// Filled once.
    Fixed { initialized: bool, rows: HashRows },
    /// Changed at will.
    Mutable(HashRows),
    /// Changed at will, with visible buckets.
    Dense(Dense),
}

impl Resource for Table {
    const TYPE_NAME: &'static str = "N10tensorflow6lookup15LookupInterfaceE";
}

impl Table {
    /// The container within a step that holds tables without a name.
    pub const ANONYMOUS: &'static str = "_anonymous_tables";

    fn new(dtypes: (DType, DType), key_shape: Shape, value_shape: Shape, body: Body) -> Table {
        Table { key_dtype: dtypes.0, value_dtype: dtypes.1, key_shape, value_shape, body: RwLock::new(body) }
    }

    /// A table of scalars that is filled once. `dtypes` are those of keys and values.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn fixed(dtypes: (DType, DType)) -> Result<Table> {
        let rows = HashRows::new(dtypes.1, 1)?;
        Ok(Table::new(dtypes, Shape::scalar(), Shape::scalar(), Body::Fixed { initialized: false, rows }))
    }

    /// A table that changes at will, from scalars to values of one shape.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn mutable(dtypes: (DType, DType), value_shape: Shape) -> Result<Table> {
        let rows = HashRows::new(dtypes.1, value_shape.num_elements())?;
        Ok(Table::new(dtypes, Shape::scalar(), value_shape, Body::Mutable(rows)))
    }

    /// A dense table.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for bad numbers of buckets, or if the two special keys differ in shape or are equal.
    pub fn dense(spec: &DenseSpec<'_>) -> Result<Table> {
        let dtypes = (spec.empty.dtype(), spec.value_dtype);
        let (key_shape, value_shape) = (spec.empty.shape().clone(), spec.value_shape.clone());
        Ok(Table::new(dtypes, key_shape, value_shape, Body::Dense(Dense::new(spec)?)))
    }

    /// The table that input 0 names, and a check of the node's types behind it.
    ///
    /// # Errors
    /// If there is no such table; `INVALID_ARGUMENT` if the types are not its own.
    pub fn of_input(
        ctx: &Context<'_>,
        inputs: impl FnOnce(&Table) -> Vec<DType>,
        outputs: impl FnOnce(&Table) -> Vec<DType>,
    ) -> Result<Arc<Table>> {
        let anonymous = ctx.input(0).ok().filter(|tensor| tensor.dtype() == DType::Resource);
        let anonymous = anonymous.and_then(|tensor| tensor.handles().ok()?.first());
        let table = match anonymous.filter(|handle| handle.container == Table::ANONYMOUS) {
            Some(handle) => {
                ctx.device().check_handle::<Table>(handle)?;
                ctx.step().resources().lookup::<Table>(Table::ANONYMOUS, &handle.name)?
            }
            None => ctx.input_resource::<Table>(0)?,
        };
        let node = ctx.node();
        let have: Vec<DType> = node.input_types.iter().skip(1).map(|slot| slot.dtype).collect();
        let have_outputs: Vec<DType> = node.output_types.iter().map(|slot| slot.dtype).collect();
        let (want, want_outputs) = (inputs(&table), outputs(&table));
        if have == want && have_outputs == want_outputs {
            return Ok(table);
        }
        let handle = node.input_types.first().map(ToString::to_string).unwrap_or_default();
        let list = |types: &[DType]| types.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(",");
        Err(invalid_argument!(
            "Signature mismatch, have: {handle},{}->{} expected: {handle},{}->{}",
            list(&have),
            list(&have_outputs),
            list(&want),
            list(&want_outputs)
        ))
    }

    /// As [`Table::of_input`], of a table that is filled once and a node without outputs.
    ///
    /// # Errors
    /// As [`Table::of_input`]; `INVALID_ARGUMENT` if the table is of another kind.
    pub fn to_fill(ctx: &Context<'_>, inputs: impl FnOnce(&Table) -> Vec<DType>) -> Result<Arc<Table>> {
        let table = Table::of_input(ctx, inputs, |_| Vec::new())?;
        let initializable = matches!(&*table.body.read(), Body::Fixed { .. });
        if initializable {
            return Ok(table);
        }
        Err(invalid_argument!("The table is not initializable"))
    }

    /// The types of keys and values.
    pub fn dtypes(&self) -> (DType, DType) {
        (self.key_dtype, self.value_dtype)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        match &*self.body.read() {
            Body::Fixed { initialized: false, .. } => 0,
            Body::Fixed { rows, .. } | Body::Mutable(rows) => rows.len(),
            Body::Dense(dense) => dense.len(),
        }
    }

    /// The shape of the values of keys of this shape.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the keys do not end in the table's key shape.
    fn values_shape(&self, keys: &Shape, key: &Shape, value: &Shape) -> Result<Shape> {
        if !keys.dims().ends_with(self.key_shape.dims()) {
            return Err(invalid_argument!(
                "Input key shape {keys} must end with the table's key shape {}",
                self.key_shape
            ));
        }
        let outer = &keys.dims()[..keys.rank().saturating_sub(key.rank())];
        let dims: Vec<usize> = outer.iter().chain(value.dims()).copied().collect();
        Shape::from_dims(&dims)
    }

    fn check_types(&self, keys: &Tensor, values: Option<&Tensor>) -> Result<()> {
        if keys.dtype() != self.key_dtype {
            return Err(invalid_argument!("Key must be type {} but got {}", self.key_dtype, keys.dtype()));
        }
        match values {
            Some(values) if values.dtype() != self.value_dtype => {
                Err(invalid_argument!("Value must be type {} but got {}", self.value_dtype, values.dtype()))
            }
            _ => Ok(()),
        }
    }

    fn check_values(&self, keys: &Tensor, values: &Tensor, expected: &Shape) -> Result<()> {
        self.check_types(keys, Some(values))?;
        if values.shape() != expected {
            return Err(invalid_argument!("Expected shape {expected} for value, got {}", values.shape()));
        }
        Ok(())
    }

    fn keys(&self, tensor: &Tensor) -> Result<Vec<Key>> {
        keys_of(tensor, self.key_shape.num_elements())
    }

    /// The keys for a dense table, of which there is a vector or one.
    fn dense_keys(&self, tensor: &Tensor) -> Result<Vec<Key>> {
        let count = tensor.shape().dim(0);
        if count.checked_mul(self.key_shape.num_elements()) != Some(tensor.num_elements()) {
            let dims: Vec<usize> = std::iter::once(count).chain(self.key_shape.dims().iter().copied()).collect();
            return Err(invalid_argument!("Expected key shape {} got {}", Shape::from_dims(&dims)?, tensor.shape()));
        }
        self.keys(tensor)
    }

    /// The values of some keys; `default` where there is none.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for bad types or shapes, `FAILED_PRECONDITION` if the table has not been filled.
    pub fn find(&self, keys: &Tensor, default: &Tensor) -> Result<Tensor> {
        self.check_types(keys, Some(default))?;
        let shape = self.values_shape(keys.shape(), &self.key_shape, &self.value_shape)?;
        if *default.shape() != self.value_shape && *default.shape() != shape {
            return Err(invalid_argument!(
                "Expected shape {} or {shape} for default value, got {}",
                self.value_shape,
                default.shape()
            ));
        }
        let size = self.value_shape.num_elements();
        let body = self.body.read();
        let rows = match &*body {
            Body::Fixed { initialized: false, .. } => return Err(failed_precondition!("Table not initialized.")),
            Body::Fixed { rows, .. } | Body::Mutable(rows) => rows,
            Body::Dense(dense) => {
                let keys = self.dense_keys(keys)?;
                let mut out = Tensor::alloc(self.value_dtype, shape)?;
                dense.find(&keys, &mut out, default)?;
                return Ok(out);
            }
        };
        let picked = self.keys(keys)?.iter().map(|key| rows.row(key)).collect();
        let mut out = Tensor::alloc(self.value_dtype, shape)?;
        out.move_from(&[rows.values(), default], Pick { rows: picked, size })?;
        Ok(out)
    }

    /// Sets the values of some keys.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for bad types or shapes, `UNIMPLEMENTED` for a table that is filled once.
    pub fn insert(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        self.check_types(keys, Some(values))?;
        let expected = self.values_shape(keys.shape(), &self.key_shape, &self.value_shape)?;
        self.check_values(keys, values, &expected)?;
        match &mut *self.body.write() {
            Body::Fixed { .. } => {
                Err(unimplemented_op!("Insert not supported by InitializableLookupTable implementations"))
            }
            Body::Mutable(rows) => {
                for (row, key) in self.keys(keys)?.into_iter().enumerate() {
                    rows.insert(key, values, row)?;
                }
                Ok(())
            }
            Body::Dense(dense) => dense.insert(self.dense_keys(keys)?, values),
        }
    }

    /// Removes some keys; those that are not there are fine.
    ///
    /// # Errors
    /// As [`Table::insert`].
    pub fn remove(&self, keys: &Tensor) -> Result<()> {
        self.check_types(keys, None)?;
        self.values_shape(keys.shape(), &self.key_shape, &self.value_shape)?;
        match &mut *self.body.write() {
            Body::Fixed { .. } => {
                Err(unimplemented_op!("Remove not supported by InitializableLookupTable implementations"))
            }
            Body::Mutable(rows) => {
                self.keys(keys)?.iter().for_each(|key| rows.remove(key));
                Ok(())
            }
            Body::Dense(dense) => dense.remove(&self.dense_keys(keys)?),
        }
    }

    /// Replaces all that the table holds; a table that is filled once is filled.
    ///
    /// # Errors
    /// As [`Table::insert`] and [`Table::initialize`].
    pub fn import(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        self.check_types(keys, Some(values))?;
        let vectorized = |shape: &Shape| if shape.is_scalar() { Shape::vector(1) } else { shape.clone() };
        let is_dense = matches!(&*self.body.read(), Body::Dense(_));
        if is_dense {
            let (key, value) = (vectorized(&self.key_shape), vectorized(&self.value_shape));
            let expected = self.values_shape(keys.shape(), &key, &value)?;
            self.check_values(keys, values, &expected)?;
            let fits = keys.shape().is_matrix() && keys.shape().dim(1) == key.num_elements();
            if !fits {
                return Err(invalid_argument!("Expected a matrix of buckets of keys, got shape {}", keys.shape()));
            }
        } else {
            let expected = self.values_shape(keys.shape(), &self.key_shape, &self.value_shape)?;
            self.check_values(keys, values, &expected)?;
        }
        match &mut *self.body.write() {
            Body::Fixed { .. } => {}
            Body::Mutable(rows) => {
                rows.clear();
                for (row, key) in self.keys(keys)?.into_iter().enumerate() {
                    rows.insert(key, values, row)?;
                }
                return Ok(());
            }
            Body::Dense(dense) => return dense.import(keys, values),
        }
        self.initialize_with(keys, values)
    }

    /// Fills a table that is filled once, with what must not be nothing.
    ///
    /// # Errors
    /// As [`Table::initialize`]; also `INVALID_ARGUMENT` if there are no keys.
    pub fn initialize_with(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        if keys.num_elements() == 0 {
            return Err(invalid_argument!("keys and values cannot be empty tensors."));
        }
        self.initialize(keys, values)
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills a table that is filled once, from where its name says; if it has been filled, with whatever, that is fine.
    ///
    /// # Errors
    /// As [`Table::initialize`].
    pub fn fill(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        match self.initialize(keys, values) {
            Err(error) if error.code() == Code::FailedPrecondition && self.is_initialized() => Ok(()),
            outcome => outcome,
        }
    }

    fn is_initialized(&self) -> bool {
        !matches!(&*self.body.read(), Body::Fixed { initialized: false, .. })
    }

    /// Fills a table that is filled once. To do so again with as many keys is fine.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if it was filled with another number of keys, or if a key comes with two values.
    pub fn initialize(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        let mut body = self.body.write();
        let Body::Fixed { initialized, rows } = &mut *body else {
            return Err(invalid_argument!("The table is not initializable"));
        };
        let keys = self.keys(keys)?;
        if *initialized {
            if keys.len() == rows.len() {
                return Ok(());
            }
            return Err(failed_precondition!("Table was already initialized with different data."));
        }
        for (row, key) in keys.into_iter().enumerate() {
            if let Some(held) = rows.row(&key) {
                let held = rows.values().rows(held, 1)?;
                let offered = values.reshaped(Shape::vector(values.num_elements()))?.rows(row, 1)?;
                if !same(&held, &offered) {
                    let (key, held, offered) = (key_text(&key), element_text(&held), element_text(&offered));
                    return Err(failed_precondition!(
                        "HashTable has different value for same key. Key {key} has {held} and trying to add value {offered}"
                    ));
                }
                continue;
            }
            rows.insert(key, values, row)?;
        }
        *initialized = true;
        Ok(())
    }

    /// All keys and values.
    ///
    /// # Errors
    /// `ABORTED` if the table has not been filled.
    pub fn export(&self) -> Result<(Tensor, Tensor)> {
        let body = self.body.read();
        let rows = match &*body {
            Body::Fixed { initialized: false, .. } => return Err(aborted!("HashTable is not initialized.")),
            Body::Fixed { rows, .. } | Body::Mutable(rows) => rows,
            Body::Dense(dense) => return dense.export(),
        };
        let (keys, values) = rows.export()?;
        let dims: Vec<usize> = std::iter::once(keys.len()).chain(self.value_shape.dims().iter().copied()).collect();
        let count = keys.len();
        let keys = keys_to_tensor(keys.into_iter(), self.key_dtype, Shape::vector(count))?;
        Ok((keys, values.into_shape(Shape::from_dims(&dims)?)?))
    }
}

fn same(a: &Tensor, b: &Tensor) -> bool {
    match a.dtype() {
        // As numbers, so that 0.0 and -0.0 are one value.
        DType::Float => a.as_slice::<f32>().ok() == b.as_slice::<f32>().ok(),
        DType::Double => a.as_slice::<f64>().ok() == b.as_slice::<f64>().ok(),
        DType::String => a.strings().ok() == b.strings().ok(),
        _ => a.as_bytes() == b.as_bytes(),
    }
}

fn key_text(key: &Key) -> String {
    match key {
        Key::Int(value) => value.to_string(),
        Key::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Key::Many(_) => String::new(),
    }
}

fn element_text(tensor: &Tensor) -> String {
    fn first<T: ToString>(values: Result<&[T]>) -> String {
        values.ok().and_then(<[T]>::first).map(T::to_string).unwrap_or_default()
    }
    match tensor.dtype() {
        DType::Int32 => first(tensor.as_slice::<i32>()),
        DType::Int64 => first(tensor.as_slice::<i64>()),
        DType::Float => first(tensor.as_slice::<f32>()),
        DType::Double => first(tensor.as_slice::<f64>()),
        DType::Bool => first(tensor.as_slice::<bool>().map(|b| if b == [true] { &[1][..] } else { &[0] })),
        _ => tensor
            .strings()
            .ok()
            .and_then(<[_]>::first)
            .map(|s| String::from_utf8_lossy(s).into_owned())
            .unwrap_or_default(),
    }
}
