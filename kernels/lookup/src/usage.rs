//! The ops that use a table: find, insert, remove, size, import, export.

use crate::make::ANONYMOUS;
use crate::table::Table;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, invalid_argument};
use std::sync::Arc;

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

/// The table that input 0 names, and a check of the node's types behind it.
///
/// # Errors
/// If there is no such table; `INVALID_ARGUMENT` if the types are not its own.
pub(crate) fn table(
    ctx: &Context<'_>,
    inputs: impl FnOnce(&Table) -> Vec<DType>,
    outputs: impl FnOnce(&Table) -> Vec<DType>,
) -> Result<Arc<Table>> {
    let anonymous = ctx.input(0).ok().filter(|tensor| tensor.dtype() == DType::Resource);
    let anonymous = anonymous.and_then(|tensor| tensor.handles().ok()?.first()).filter(|h| h.container == ANONYMOUS);
    let table = match anonymous {
        Some(handle) => {
            ctx.device().check_handle::<Table>(handle)?;
            ctx.step().resources().lookup::<Table>(ANONYMOUS, &handle.name)?
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

fn pair(table: &Table) -> Vec<DType> {
    vec![table.key_dtype, table.value_dtype]
}

fn none(_: &Table) -> Vec<DType> {
    Vec::new()
}

struct Find;

impl Kernel for Find {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let table = table(ctx, pair, |table| vec![table.value_dtype])?;
        let found = table.find(ctx.input(1)?, ctx.input(2)?)?;
        ctx.set_output(0, found)
    }
}

struct Insert;

impl Kernel for Insert {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        table(ctx, pair, none)?.insert(ctx.input(1)?, ctx.input(2)?)
    }
}

struct Remove;

impl Kernel for Remove {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        table(ctx, |table| vec![table.key_dtype], none)?.remove(ctx.input(1)?)
    }
}

struct Size;

impl Kernel for Size {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let size = table(ctx, none, |_| vec![DType::Int64])?.len();
        ctx.set_scalar(0, size as i64)
    }
}

struct Export;

impl Kernel for Export {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (keys, values) = table(ctx, none, pair)?.export()?;
        ctx.set_output(0, keys)?;
        ctx.set_output(1, values)
    }
}

struct Import;

impl Kernel for Import {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        table(ctx, pair, none)?.import(ctx.input(1)?, ctx.input(2)?)
    }
}
