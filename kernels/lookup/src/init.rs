//! The ops that fill tables which are filled once: `InitializeTable`, `InitializeTableFromTextFile`.

use crate::text_file::{Column, TextFile};
use graphmill_formats::FileSystem;
use graphmill_runtime::{Construction, Context, Kernel, Registry, Table};
use graphmill_tensor::{DType, Result, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    for op in ["InitializeTable", "InitializeTableV2"] {
        registry.op(op).kernel(|_| Ok(Initialize));
    }
    for op in ["InitializeTableFromTextFile", "InitializeTableFromTextFileV2"] {
        let files = files.clone();
        registry.op(op).kernel(move |c| InitializeFromTextFile::new(c, files.clone()));
    }
}

/// Fills a table with keys and values.
struct Initialize;

impl Kernel for Initialize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let table = Table::to_fill(ctx, |table| vec![table.dtypes().0, table.dtypes().1])?;
        let (keys, values) = (ctx.input(1)?, ctx.input(2)?);
        if !keys.shape().is_vector() {
            return Err(invalid_argument!("Keys must be a vector, but received shape{}", keys.shape()));
        }
        if !values.shape().is_vector() {
            return Err(invalid_argument!("Values must be a vector, but received shape{}", values.shape()));
        }
        if keys.num_elements() != values.num_elements() {
            return Err(invalid_argument!(
                "Keys and values must have the same size {} vs {}",
                keys.num_elements(),
                values.num_elements()
            ));
        }
        table.initialize_with(keys, values)
    }
}

/// Fills a table with columns of a text file.
struct InitializeFromTextFile {
    files: Arc<dyn FileSystem>,
    key: Column,
    value: Column,
    vocab_size: Option<usize>,
    delimiter: u8,
    offset: i64,
}

impl InitializeFromTextFile {
    fn new(c: &Construction<'_>, files: Arc<dyn FileSystem>) -> Result<InitializeFromTextFile> {
        let &[delimiter] = c.attrs().string("delimiter")? else {
            return Err(invalid_argument!("delimiter should be only 1 char"));
        };
        Ok(InitializeFromTextFile {
            files,
            key: Column::new(c.attrs().int("key_index")?),
            value: Column::new(c.attrs().int("value_index")?),
            vocab_size: usize::try_from(c.attrs().int("vocab_size")?).ok(),
            delimiter,
            offset: c.attrs().int("offset")?,
        })
    }

    fn check(&self, table: &Table) -> Result<()> {
        for (column, dtype, what) in [(self.key, table.dtypes().0, "key"), (self.value, table.dtypes().1, "value")] {
            let title = if what == "key" { "Key" } else { "Value" };
            if column == Column::LineNumber && dtype != DType::Int64 {
                return Err(invalid_argument!(
                    "{title} index for line number requires table {what} dtype of int64, got {dtype}"
                ));
            }
            if column == Column::WholeLine && !dtype.is_integer() && dtype != DType::String {
                return Err(if what == "key" {
                    invalid_argument!("Key index for whole line requires string or integer table key, got {dtype}")
                } else {
                    invalid_argument!(
                        "Value index for whole line requires table value dtype of integer or string, got {dtype}"
                    )
                });
            }
        }
        Ok(())
    }
}

impl Kernel for InitializeFromTextFile {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let table = Table::to_fill(ctx, |_| vec![DType::String])?;
        let name = ctx.input(1)?;
        if !name.shape().is_scalar() {
            return Err(invalid_argument!("filename should be a single string, but got {}", name.shape()));
        }
        let name = name.strings()?.first().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
        if name.is_empty() {
            return Err(invalid_argument!("filename cannot be empty."));
        }
        self.check(&table)?;
        let file = TextFile {
            name: &name,
            delimiter: self.delimiter,
            key: self.key,
            value: self.value,
            vocab_size: self.vocab_size,
            offset: self.offset,
        };
        let (keys, values) = file.read(&*self.files, table.dtypes().0, table.dtypes().1)?;
        table.fill(&keys, &values)
    }
}
