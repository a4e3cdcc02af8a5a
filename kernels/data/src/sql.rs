//! `SqlDataset`: the rows that a query of an SQLite database gives.

mod column;
mod connection;

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, scalar_string};
use crate::state::{Reader, Writer};
use connection::Connection;
use graphmill_runtime::{Construction, Context, Registry};
use graphmill_tensor::{Bytes, DType, Result, invalid_argument};
use std::sync::Arc;

/// The types that a column may be read as.
const TYPES: [DType; 9] = [
    DType::String,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::Bool,
    DType::Double,
];

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["SqlDataset", "ExperimentalSqlDataset"], |c: &Construction<'_>| {
        let spec = Spec::of(c)?;
        if !spec.types.iter().all(|dtype| TYPES.contains(dtype)) {
            return Err(invalid_argument!(
                "Each element of `output_types_` must be one of: DT_STRING, DT_INT8, DT_INT16, DT_INT32, DT_INT64, DT_UINT8, \
                 DT_UINT16, DT_BOOL, DT_DOUBLE "
            ));
        }
        if !spec.shapes.iter().all(|shape| shape.rank() == Some(0)) {
            return Err(invalid_argument!("Each element of `output_shapes_` must be a scalar."));
        }
        Ok(move |ctx: &Context<'_>| {
            let driver = scalar_string(ctx, 0, "driver_name")?;
            let (source, query) = (scalar_string(ctx, 1, "data_source_name")?, scalar_string(ctx, 2, "query")?);
            if driver != "sqlite" {
                return Err(invalid_argument!(
                    "The database type, {}, is not supported by SqlDataset. The set of supported databases is: {{'sqlite'}}.",
                    String::from_utf8_lossy(&driver)
                ));
            }
            Ok(Sql { spec: spec.clone(), source, query })
        })
    });
}

/// The rows of a query.
struct Sql {
    spec: Arc<Spec>,
    source: Bytes,
    query: Bytes,
}

impl Dataset for Sql {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn name(&self) -> &'static str {
        "Sql"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(SqlIterator {
            ctx: ctx.clone(),
            spec: self.spec.clone(),
            source: self.source.clone(),
            query: self.query.clone(),
            connection: None,
            calls: 0,
            ended: false,
        }))
    }
}

struct SqlIterator {
    ctx: IteratorContext,
    spec: Arc<Spec>,
    source: Bytes,
    query: Bytes,
    /// Made when the first row is asked for.
    connection: Option<Connection>,
    /// How many rows were asked for.
    calls: usize,
    ended: bool,
}

impl DatasetIterator for SqlIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        if self.ended {
            return Ok(None);
        }
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open(&self.source, &self.query, &self.spec.types)?),
        };
        self.calls += 1;
        let row = connection.next(&self.ctx);
        match &row {
            Ok(row) => self.ended = row.is_none(),
            // The query is tried anew when a row is asked for again.
            Err(_) => self.connection = None,
        }
        row
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("Sql");
        writer.size(self.calls);
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("Sql")?;
        // A query cannot be entered in the middle.
        for _ in 0..reader.size()? {
            self.ctx.check()?;
            if self.next()?.is_none() {
                break;
            }
        }
        Ok(())
    }
}
