//! The ops that make tables.

use graphmill_runtime::{Construction, Context, DenseSpec, Kernel, OwnedResource, Registry, Table, unique_number};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    for (kind, ops, pairs) in [
        (Kind::Fixed, ["HashTable", "HashTableV2", "AnonymousHashTable"], &FIXED[..]),
        (Kind::Scalars, ["MutableHashTable", "MutableHashTableV2", "AnonymousMutableHashTable"], &SCALARS),
        (
            Kind::Tensors,
            ["MutableHashTableOfTensors", "MutableHashTableOfTensorsV2", "AnonymousMutableHashTableOfTensors"],
            &TENSORS,
        ),
        (Kind::Dense, ["MutableDenseHashTable", "MutableDenseHashTableV2", "AnonymousMutableDenseHashTable"], &DENSE),
    ] {
        for op in ops {
            let anonymous = op.starts_with("Anonymous");
            for (key, values) in pairs {
                let entry = registry.op(op).types("key_dtype", &[*key]).types("value_dtype", values);
                if anonymous {
                    entry.kernel(move |c| MakeAnonymous::new(c, kind));
                } else {
                    entry.kernel(move |c| MakeTable::new(c, kind));
                }
            }
        }
    }
}

use DType::{Bool, Double, Float, Int32, Int64, Resource, String as Text, Variant};

type Pairs = [(DType, &'static [DType]); 3];

const FIXED: Pairs = [
    (Int32, &[Double, Float, Int32, Text]),
    (Int64, &[Double, Float, Int32, Int64, Text]),
    (Text, &[Bool, Double, Float, Int32, Int64, Text]),
];
const SCALARS: Pairs = [
    (Int32, &[Double, Float, Int32]),
    (Int64, &[Double, Float, Int32, Int64, Text, Variant]),
    (Text, &[Bool, Double, Float, Int32, Int64]),
];
const TENSORS: Pairs = [
    (Int32, &[Double, Float, Int32]),
    (Int64, &[Double, Float, Int32, Int64, Text]),
    (Text, &[Bool, Double, Float, Int32, Int64]),
];
const DENSE: Pairs = [
    (Int32, &[Double, Float, Int32]),
    (Int64, &[Bool, Double, Float, Int32, Int64, Variant]),
    (Text, &[Bool, Double, Float, Int32, Int64, Resource]),
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Fixed,
    Scalars,
    Tensors,
    Dense,
}

/// What the attributes say about a table.
struct Design {
    kind: Kind,
    key_dtype: DType,
    value_dtype: DType,
    value_shape: Option<Shape>,
    buckets: i64,
    max_load_factor: f32,
}

impl Design {
    fn new(c: &Construction<'_>, kind: Kind) -> Result<Design> {
        let dense = kind == Kind::Dense;
        let shaped = dense || kind == Kind::Tensors;
        Ok(Design {
            kind,
            key_dtype: c.dtype("key_dtype")?,
            value_dtype: c.dtype("value_dtype")?,
            value_shape: if shaped { c.attrs().shape("value_shape")?.to_shape() } else { Some(Shape::scalar()) },
            buckets: if dense { c.attrs().int("initial_num_buckets")? } else { 0 },
            max_load_factor: if dense { c.attrs().float("max_load_factor")? } else { 0.0 },
        })
    }

    /// `special` are the empty and the deleted key of a dense table.
    fn create(&self, special: &[Tensor]) -> Result<Table> {
        let shape = self.value_shape.clone().ok_or_else(|| invalid_argument!("Shape is not fully defined"))?;
        let dtypes = (self.key_dtype, self.value_dtype);
        if self.kind == Kind::Dense {
            return self.create_dense(special, shape);
        }
        if self.kind == Kind::Tensors && !shape.is_vector() {
            return Err(invalid_argument!("Default value must be a vector, got shape {shape}"));
        }
        if self.kind == Kind::Fixed { Table::fixed(dtypes) } else { Table::mutable(dtypes, shape) }
    }

    fn create_dense(&self, special: &[Tensor], shape: Shape) -> Result<Table> {
        let factor = self.max_load_factor;
        if !(factor > 0.0 && factor < 1.0) {
            return Err(invalid_argument!("max_load_factor must be between 0 and 1, got: {factor}"));
        }
        if shape.rank() > 1 {
            return Err(invalid_argument!("Empty value must be a scalar or a vector, got shape {shape}"));
        }
        let [empty, deleted] = special else {
            return Err(invalid_argument!("A dense table needs an empty and a deleted key"));
        };
        if empty.shape().rank() > 1 {
            return Err(invalid_argument!("Empty key must be a scalar or a vector, got shape {}", empty.shape()));
        }
        Table::dense(&DenseSpec {
            empty,
            deleted,
            value_dtype: self.value_dtype,
            value_shape: shape,
            buckets: self.buckets,
            max_load_factor: factor,
        })
    }
}

fn special_keys(ctx: &Context<'_>) -> Result<Vec<Tensor>> {
    (0..ctx.num_inputs()).map(|i| ctx.input(i).cloned()).collect()
}

/// Makes the table of a name, and gives out its handle.
struct MakeTable {
    design: Design,
    table: OwnedResource<Table>,
}

impl MakeTable {
    fn new(c: &Construction<'_>, kind: Kind) -> Result<MakeTable> {
        let table = OwnedResource::new(c, c.attrs().bool("use_node_name_sharing")?)?;
        Ok(MakeTable { design: Design::new(c, kind)?, table })
    }

    fn verify(&self, table: &Table) -> Result<()> {
        let (key, value) = (self.design.key_dtype, self.design.value_dtype);
        let present = table.dtypes();
        if present == (key, value) {
            return Ok(());
        }
        Err(invalid_argument!(
            "Conflicting key/value dtypes {key}->{value} with {}-{} for table {}",
            present.0,
            present.1,
            self.table.name()
        ))
    }
}

impl Kernel for MakeTable {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let special = special_keys(ctx)?;
        self.table.give_out(ctx, || self.design.create(&special), |table| self.verify(table))
    }
}

/// Makes a table without a name, which lives as long as the step.
struct MakeAnonymous(Design);

impl MakeAnonymous {
    fn new(c: &Construction<'_>, kind: Kind) -> Result<MakeAnonymous> {
        Design::new(c, kind).map(MakeAnonymous)
    }
}

impl Kernel for MakeAnonymous {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let table = self.0.create(&special_keys(ctx)?)?;
        let name = format!("_{}_{}", unique_number(), ctx.node().name);
        ctx.step().resources().create(Table::ANONYMOUS, &name, table)?;
        let handle = ctx.device().resource_handle::<Table>(Table::ANONYMOUS, &name, Vec::new());
        ctx.set_output(0, Tensor::from_handles(Shape::scalar(), vec![handle])?)
    }
}
