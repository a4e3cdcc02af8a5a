//! The ops that use a table: find, insert, remove, size, import, export.

use graphmill_runtime::{Context, Kernel, Registry, Table};
use graphmill_tensor::{DType, Result};

pub(crate) fn register(registry: &mut Registry) {
    for op in ["LookupTableFind", "LookupTableFindV2"] {
        registry.op(op).kernel(|_| Ok(Find));
    }
    for op in ["LookupTableInsert", "LookupTableInsertV2"] {
        registry.op(op).kernel(|_| Ok(Insert));
    }
    registry.op("LookupTableRemoveV2").kernel(|_| Ok(Remove));
    for op in ["LookupTableSize", "LookupTableSizeV2"] {
        registry.op(op).kernel(|_| Ok(Size));
    }
    for op in ["LookupTableExport", "LookupTableExportV2"] {
        registry.op(op).kernel(|_| Ok(Export));
    }
    for op in ["LookupTableImport", "LookupTableImportV2"] {
        registry.op(op).kernel(|_| Ok(Import));
    }
}

fn pair(table: &Table) -> Vec<DType> {
    let (key, value) = table.dtypes();
    vec![key, value]
}

fn none(_: &Table) -> Vec<DType> {
    Vec::new()
}

struct Find;

impl Kernel for Find {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let table = Table::of_input(ctx, pair, |table| vec![table.dtypes().1])?;
        let found = table.find(ctx.input(1)?, ctx.input(2)?)?;
        ctx.set_output(0, found)
    }
}

struct Insert;

impl Kernel for Insert {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        Table::of_input(ctx, pair, none)?.insert(ctx.input(1)?, ctx.input(2)?)
    }
}

struct Remove;

impl Kernel for Remove {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        Table::of_input(ctx, |table| vec![table.dtypes().0], none)?.remove(ctx.input(1)?)
    }
}

struct Size;

impl Kernel for Size {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = Table::of_input(ctx, none, |_| vec![DType::Int64])?.len();
        ctx.set_scalar(0, size as i64)
    }
}

struct Export;

impl Kernel for Export {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (keys, values) = Table::of_input(ctx, none, pair)?.export()?;
        ctx.set_output(0, keys)?;
        ctx.set_output(1, values)
    }
}

struct Import;

impl Kernel for Import {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        Table::of_input(ctx, pair, none)?.import(ctx.input(1)?, ctx.input(2)?)
    }
}
