//! `graphmill ops`: which ops there are.

use anyhow::Result;
use graphmill_graph::{AttrDef, AttrKind, OpDef, op_def, op_defs};
use graphmill_kernels::registry;
use graphmill_runtime::{Registration, Registry};
use graphmill_tensor::DType;
use graphmill_wire::tensorflow::attr_value::Value;
use serde_json::json;
use std::io::Write;

/// Lists the ops that this binary runs, with their element types.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  graphmill ops
  graphmill ops --json | jq -r '.ops[] | select(.op == \"MatMul\")'
  graphmill ops --markdown > docs/ops.md")]
pub struct Args {
    /// Print a JSON object
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print a page of Markdown
    #[arg(long)]
    markdown: bool,
}

/// Runs the command.
///
/// # Errors
/// If the output cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let table = Table::of(&registry());
    let text = match (args.json, args.markdown) {
        (true, _) => table.json()?,
        (_, true) => table.markdown(),
        _ => table.text(),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// All ops with kernels.
struct Table {
    rows: Vec<Row>,
    /// The number of ops of which the schema is known.
    known: usize,
}

/// One op.
struct Row {
    op: &'static str,
    /// The types that each type attribute may have.
    types: Vec<(String, Vec<&'static str>)>,
}

impl Row {
    fn types_text(&self) -> String {
        let one = |(attr, types): &(String, Vec<&str>)| format!("{attr}: {}", types.join(", "));
        self.types.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

impl Table {
    fn of(registry: &Registry) -> Table {
        let rows = registry.ops().map(|(op, kernels)| Row { op, types: types(op_def(op), kernels) }).collect();
        // Ops with an underscore are made by runtimes; clients do not use them.
        Table { rows, known: op_defs().filter(|def| !def.name.starts_with('_')).count() }
    }

    fn implemented(&self) -> usize {
        self.rows.iter().filter(|row| !row.op.starts_with('_') && op_def(row.op).is_some()).count()
    }

    fn text(&self) -> String {
        let width = self.rows.iter().map(|row| row.op.len()).max().unwrap_or(0);
        let mut text = String::new();
        for row in &self.rows {
            text.push_str(format!("{:width$}  {}", row.op, row.types_text()).trim_end());
            text.push('\n');
        }
        text.push_str(&format!("{} of TensorFlow's {} ops\n", self.implemented(), self.known));
        text
    }

    fn json(&self) -> Result<String> {
        let ops: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                let types: serde_json::Map<String, serde_json::Value> =
                    row.types.iter().map(|(attr, types)| (attr.clone(), json!(types))).collect();
                json!({ "op": row.op, "types": types, "state": "implemented" })
            })
            .collect();
        let all = json!({ "implemented": self.implemented(), "known": self.known, "ops": ops });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }

    fn markdown(&self) -> String {
        let mut text = format!(
            "# Ops\n\n\
             graphmill runs {} of the {} ops that TensorFlow's clients can put into a graph. An op that is not listed ends a run \
             with `UNIMPLEMENTED` and the op's name. This page is the output of `graphmill ops --markdown`.\n\n\
             | op | element types | state |\n| --- | --- | --- |\n",
            self.implemented(),
            self.known
        );
        for row in &self.rows {
            let types = row.types_text();
            let types = if types.is_empty() { "-" } else { &types };
            text.push_str(&format!("| `{}` | {types} | implemented |\n", row.op));
        }
        text
    }
}

/// For each type attribute of the op, the types for which there are kernels.
fn types(def: Option<&std::sync::Arc<OpDef>>, kernels: &[Registration]) -> Vec<(String, Vec<&'static str>)> {
    let mut attrs: Vec<String> = Vec::new();
    if let Some(def) = def {
        attrs.extend(def.attrs.iter().filter(|attr| attr.ty.kind == AttrKind::Type).map(|attr| attr.name.to_string()));
    }
    for (attr, _) in kernels.iter().flat_map(Registration::constraints) {
        if !attrs.iter().any(|known| known == attr) {
            attrs.push((*attr).to_owned());
        }
    }
    let of_attr = |attr: String| {
        let schema = def.and_then(|def| def.attr(&attr));
        let every = || schema.map_or_else(|| DType::ALL.to_vec(), permitted);
        let mut taken = Vec::new();
        for kernel in kernels {
            let own: Vec<_> = kernel.constraints().iter().filter(|(name, _)| *name == attr).collect();
            match own.as_slice() {
                [] => taken.extend(every()),
                own => own.iter().for_each(|(_, types)| taken.extend(types)),
            }
        }
        let all = DType::ALL.iter().filter(|dtype| taken.contains(dtype));
        let names: Vec<&str> =
            if all.clone().count() == DType::ALL.len() { vec!["all"] } else { all.map(|dtype| dtype.name()).collect() };
        (attr, names)
    };
    attrs.into_iter().map(of_attr).collect()
}

/// The types that the schema permits.
fn permitted(attr: &AttrDef) -> Vec<DType> {
    match attr.allowed.as_ref().and_then(|allowed| allowed.value.as_ref()) {
        Some(Value::List(list)) => list.r#type.iter().filter_map(|&number| DType::from_number(number)).collect(),
        _ => DType::ALL.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_ops_is_up_to_date() {
        let page = Table::of(&registry()).markdown();
        assert!(page == include_str!("../../docs/ops.md"), "run: graphmill ops --markdown > docs/ops.md");
    }

    #[test]
    fn every_kernel_is_for_a_known_op() {
        let unknown: Vec<_> = registry().ops().map(|(op, _)| op).filter(|op| op_def(op).is_none()).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn constraints_of_several_kernels_add_up() {
        let mut registry = Registry::new();
        struct Nothing;
        impl graphmill_runtime::Kernel for Nothing {
            fn compute(&self, _: &mut graphmill_runtime::Context<'_>) -> graphmill_tensor::Result<()> {
                Ok(())
            }
        }
        registry.op("Cast").types("SrcT", &[DType::Int32]).types("DstT", &[DType::Float]).kernel(|_| Ok(Nothing));
        registry.op("Cast").types("SrcT", &[DType::Float]).kernel(|_| Ok(Nothing));
        let table = Table::of(&registry);
        assert_eq!(table.rows[0].types_text(), "SrcT: float, int32; DstT: all");
        assert_eq!(table.implemented(), 1);
        assert!(table.markdown().contains("| `Cast` | SrcT: float, int32; DstT: all | implemented |\n"));
        assert!(table.text().ends_with(&format!("1 of TensorFlow's {} ops\n", table.known)));
        let json: serde_json::Value = serde_json::from_str(&table.json().unwrap()).unwrap();
        assert_eq!(json["ops"][0]["types"]["SrcT"], json!(["float", "int32"]));
    }
}
