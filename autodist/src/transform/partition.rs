//! Splits variables.
//!
//! Every name of the user's graph stays: the variable's own becomes its value, put together from the parts; reads give that value, and an
//! assignment hands each part its slice. So whatever is computed from whole values, in the model, in an optimiser that is
//! written out in several operations, in savers, goes on as before. Optimisers' own operations and changes of rows are done part
//! by part, with the optimiser's slots split like the variable, and lookups of rows fetch them from the parts that hold them.

use super::nodes::{Emitter, WithAttr, constant, move_to_part, node, shape};
use super::rows::{self, Place};
use crate::compiler::{CompiledStrategy, PartitionPlan};
use crate::item::{GraphItem, UpdateKind, update_kind};
use graphmill_graph::EndpointName;
use graphmill_tensor::{DType, Result, invalid_argument, unimplemented_op};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{GraphDef, NodeDef, SaveSliceInfoDef, VariableDef};
use std::collections::HashMap;

/// A variable that is split.
struct Cut<'a> {
    name: &'a str,
    device: &'a str,
    is_resource: bool,
    dtype: DType,
    plan: &'a PartitionPlan,
    initializer: &'a str,
}

struct Pass<'a> {
    item: &'a GraphItem,
    /// By node.
    cuts: HashMap<usize, Cut<'a>>,
    out: Emitter,
}

/// The item with the variables split that the strategy splits, and their slots. Without any it is the same.
///
/// # Errors
/// `UNIMPLEMENTED` for uses of a variable that cannot be split, `ALREADY_EXISTS` if a node has a part's name.
pub fn partition_variables(item: &GraphItem, strategy: &CompiledStrategy) -> Result<GraphItem> {
    let cuts = find_cuts(item, strategy)?;
    if cuts.is_empty() {
        return Ok(item.clone());
    }
    let graph = item.graph();
    let out = Emitter::new(graph.node.iter().map(|node| node.name.as_str()));
    let mut pass = Pass { item, cuts, out };
    for i in 0..graph.node.len() {
        pass.rewrite(i)?;
    }
    let mut variables = Vec::new();
    for variable in item.variables() {
        match pass.cuts.get(&variable.node) {
            Some(cut) => variables.extend(part_defs(&variable.def, cut)),
            None => variables.push(variable.def.clone()),
        }
    }
    let rewritten = GraphDef { node: pass.out.into_nodes(), ..graph.clone() };
    GraphItem::from_parts(rewritten, variables, item.table_initializers().to_vec(), item.savers().to_vec())
}

fn find_cuts<'a>(item: &'a GraphItem, strategy: &'a CompiledStrategy) -> Result<HashMap<usize, Cut<'a>>> {
    let mut cuts = HashMap::new();
    for entry in &strategy.variables {
        let (Some(plan), Some(update)) = (&entry.plan, item.update(&entry.variable)) else { continue };
        let names =
            [EndpointName::parse(&entry.variable).node].into_iter().chain(update.slots.iter().map(String::as_str));
        for name in names {
            let variable = item.variables().iter().find(|variable| variable.op_name() == name);
            let Some(variable) = variable else {
                return Err(invalid_argument!(
                    "The optimiser keeps \"{name}\", which is in no collection of variables"
                ));
            };
            let node = &item.graph().node[variable.node];
            let cut = Cut {
                name: &node.name,
                device: &node.device,
                is_resource: node.op == "VarHandleOp",
                dtype: variable.dtype,
                plan,
                initializer: &variable.def.initializer_name,
            };
            cuts.insert(variable.node, cut);
        }
    }
    Ok(cuts)
}

impl Cut<'_> {
    fn parts(&self) -> usize {
        self.plan.ranges().len()
    }

    fn part(&self, i: usize) -> String {
        format!("{}/part_{i}", self.name)
    }
}

fn part_defs(def: &VariableDef, cut: &Cut<'_>) -> Vec<VariableDef> {
    let signed = |sizes: &[u64]| sizes.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect::<Vec<_>>();
    let make = |(i, range): (usize, &crate::strategy::PartRange)| {
        let part = cut.part(i);
        let mut offset = vec![0; cut.plan.shape().len()];
        offset[cut.plan.axis()] = range.offset;
        VariableDef {
            variable_name: format!("{part}:0"),
            initializer_name: format!("{part}/Assign"),
            snapshot_name: format!("{part}/Read:0"),
            initial_value_name: format!("{part}/Assign/value:0"),
            save_slice_info_def: Some(SaveSliceInfoDef {
                full_name: cut.name.to_owned(),
                full_shape: signed(cut.plan.shape()),
                var_offset: signed(&offset),
                var_shape: signed(&cut.plan.part_shape(i).unwrap_or_default()),
            }),
            ..def.clone()
        }
    };
    cut.plan.ranges().iter().enumerate().map(make).collect()
}

impl Pass<'_> {
    fn rewrite(&mut self, i: usize) -> Result<()> {
        let node = &self.item.graph().node[i];
        if self.cuts.contains_key(&i) {
            return self.split_variable(i);
        }
        let index = self.item.index();
        let target = index.data_input(i, 0).map(|source| source.node).filter(|handle| self.cuts.contains_key(handle));
        let reads_handle =
            index.data_inputs(i).any(|source| self.cuts.get(&source.node).is_some_and(|cut| cut.is_resource));
        let Some(handle) = target else {
            if reads_handle {
                return Err(self.unsupported(node));
            }
            self.out.keep(node.clone());
            return Ok(());
        };
        match (node.op.as_str(), update_kind(&node.op)) {
            ("ReadVariableOp", _) => self.split_read(node, handle),
            ("VarIsInitializedOp" | "IsVariableInitialized", _) => self.split_initialized(node, handle),
            ("VariableShape", _) => self.fix_shape(node, handle),
            ("ResourceGather", _) => self.split_lookup(node, handle),
            (_, Some(UpdateKind::Assign)) => self.split_update(node, handle, &[(1, Piece::Slice)]),
            (_, Some(UpdateKind::ApplyDense { gradient })) => {
                self.split_update(node, handle, &[(gradient, Piece::Slice)])
            }
            (_, Some(UpdateKind::ApplySparse { values, indices })) => self.split_rows(node, handle, indices, values),
            (op, Some(UpdateKind::Scatter)) if !op.contains("Nd") => self.split_rows(node, handle, 1, 2),
            // A reference that is read is a value, which the name still has.
            (_, None) if !reads_handle => {
                self.out.keep(node.clone());
                Ok(())
            }
            _ => Err(self.unsupported(node)),
        }
    }

    fn unsupported(&self, node: &NodeDef) -> graphmill_tensor::Status {
        let split = self
            .cuts
            .values()
            .map(|cut| cut.name)
            .find(|name| node.input.iter().any(|input| EndpointName::parse(input).node == *name));
        unimplemented_op!(
            "Variable \"{}\" cannot be split: \"{}\" uses it in a {}; leave it whole",
            split.unwrap_or_default(),
            node.name,
            node.op
        )
    }

    /// The parts, and their values together under the variable's name.
    fn split_variable(&mut self, i: usize) -> Result<()> {
        let cut = &self.cuts[&i];
        let whole = &self.item.graph().node[i];
        let read_op = if cut.is_resource { "ReadVariableOp" } else { "Identity" };
        let mut values = Vec::new();
        for part in 0..cut.parts() {
            let name = cut.part(part);
            let mut handle = whole.clone();
            handle.name.clone_from(&name);
            // A name that the user shares must be as unique as his own.
            let shared = match whole.attr.get("shared_name").and_then(|attr| attr.value.as_ref()) {
                Some(Value::S(shared)) if !shared.is_empty() => {
                    format!("{}/part_{part}", String::from_utf8_lossy(shared))
                }
                _ if cut.is_resource => name.clone(),
                _ => String::new(),
            };
            let dims = cut.plan.part_shape(part).unwrap_or_default();
            let mut handle = handle
                .with("shape", Value::Shape(shape(&dims)))
                .with("shared_name", Value::S(shared.into_bytes().into()));
            move_to_part(&mut handle, &part_names(&self.cuts, part));
            self.out.add(handle)?;
            let type_attr = if cut.is_resource { "dtype" } else { "T" };
            let read = node(read_op, format!("{name}/Read"), cut.device, vec![name]).with_type(type_attr, cut.dtype);
            values.push(self.out.add(read)?);
        }
        let scope = format!("{}/ConcatPartitions", cut.name);
        let concat = concat(&mut self.out, &scope, cut, values)?;
        let value = node("Identity", whole.name.clone(), cut.device, vec![concat]).with_type("T", cut.dtype);
        self.out.keep(value);
        Ok(())
    }

    /// A read of each part at the time of the read, and the values together under its name.
    fn split_read(&mut self, read: &NodeDef, handle: usize) -> Result<()> {
        let cut = &self.cuts[&handle];
        let mut values = Vec::new();
        for part in 0..cut.parts() {
            let mut clone = read.clone();
            clone.name = format!("{}/part_{part}", read.name);
            clone.input[0] = cut.part(part);
            move_to_part(&mut clone, &part_names(&self.cuts, part));
            values.push(self.out.add(clone)?);
        }
        let concat = concat(&mut self.out, &read.name, cut, values)?;
        self.out.keep(node("Identity", read.name.clone(), &read.device, vec![concat]).with_type("T", cut.dtype));
        Ok(())
    }

    /// The variable is initialised if all parts are.
    fn split_initialized(&mut self, query: &NodeDef, handle: usize) -> Result<()> {
        let cut = &self.cuts[&handle];
        let mut answers = Vec::new();
        for part in 0..cut.parts() {
            let mut clone = query.clone();
            clone.name = format!("{}/part_{part}", query.name);
            clone.input[0] = cut.part(part);
            move_to_part(&mut clone, &part_names(&self.cuts, part));
            answers.push(self.out.add(clone)?);
        }
        let count = answers.len() as i64;
        let pack = node("Pack", format!("{}/all", query.name), &query.device, answers)
            .with_type("T", DType::Bool)
            .with("N", Value::I(count));
        let pack = self.out.add(pack)?;
        let axis = self.out.scalar(format!("{}/axis", query.name), &query.device, DType::Int32, 0)?;
        let all = node("All", query.name.clone(), &query.device, vec![pack, axis]).with_type("Tidx", DType::Int32);
        self.out.keep(all);
        Ok(())
    }

    /// The shape of the whole never changes.
    fn fix_shape(&mut self, query: &NodeDef, handle: usize) -> Result<()> {
        let dims: Vec<i64> =
            self.cuts[&handle].plan.shape().iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect();
        let dtype = type_of(query, "out_type").unwrap_or(DType::Int32);
        self.out.keep(constant(query.name.clone(), &query.device, dtype, &dims, false));
        Ok(())
    }

    /// Rows from the parts that hold them; from the whole value if the rows themselves are cut.
    fn split_lookup(&mut self, lookup: &NodeDef, handle: usize) -> Result<()> {
        let cut = &self.cuts[&handle];
        let batched = matches!(
            lookup.attr.get("batch_dims").and_then(|attr| attr.value.as_ref()),
            Some(Value::I(dims)) if *dims != 0
        );
        let (Some(index_type), [_, ids, control @ ..]) = (type_of(lookup, "Tindices"), &lookup.input[..]) else {
            return Err(self.unsupported(lookup));
        };
        if batched {
            return Err(self.unsupported(lookup));
        }
        let place = Place { scope: lookup.name.clone(), device: &lookup.device };
        let handles: Vec<String> = (0..cut.parts()).map(|part| cut.part(part)).collect();
        if cut.plan.axis() == 0 {
            let types = (cut.dtype, index_type);
            let (rows, shape) = rows::look_up(&mut self.out, &place, cut.plan, &handles, ids, types, control)?;
            let reshape = node("Reshape", lookup.name.clone(), &lookup.device, vec![rows, shape]);
            self.out.keep(reshape.with_type("T", cut.dtype).with_type("Tshape", DType::Int32));
            return Ok(());
        }
        let mut values = Vec::new();
        for (part, handle) in handles.into_iter().enumerate() {
            let mut inputs = vec![handle];
            inputs.extend_from_slice(control);
            let read = node("ReadVariableOp", format!("{}/part_{part}", lookup.name), &lookup.device, inputs);
            values.push(self.out.add(read.with_type("dtype", cut.dtype))?);
        }
        let whole = concat(&mut self.out, &lookup.name, cut, values)?;
        let axis = self.out.scalar(format!("{}/rows_axis", lookup.name), &lookup.device, DType::Int32, 0)?;
        let gather = node("GatherV2", lookup.name.clone(), &lookup.device, vec![whole, ids.clone(), axis]);
        let gather = gather.with_type("Tparams", cut.dtype).with_type("Tindices", index_type);
        self.out.keep(gather.with_type("Taxis", DType::Int32));
        Ok(())
    }

    /// A change of rows: each part gets its own rows, or if the rows themselves are cut, its stretch of all.
    fn split_rows(&mut self, update: &NodeDef, handle: usize, indices: usize, values: usize) -> Result<()> {
        let cut = &self.cuts[&handle];
        if cut.plan.axis() != 0 {
            return self.split_update(update, handle, &[(values, Piece::Slice)]);
        }
        let (Some(index_type), Some(indices_name), Some(values_name)) =
            (type_of(update, "Tindices"), update.input.get(indices), update.input.get(values))
        else {
            return Err(self.unsupported(update));
        };
        let place = Place { scope: format!("{}/rows", update.name), device: &update.device };
        let routed = rows::route(&mut self.out, &place, cut.plan, indices_name, index_type)?;
        let part_values =
            rows::partition(&mut self.out, &place, "values", cut.plan, values_name, &routed.part, cut.dtype)?;
        self.split_update(
            update,
            handle,
            &[(indices, Piece::Given(&routed.local)), (values, Piece::Given(&part_values))],
        )
    }

    /// The update once for each part: variable and slots are the part's, and the inputs in `pieces` are cut; all else is shared.
    fn split_update(&mut self, update: &NodeDef, handle: usize, pieces: &[(usize, Piece<'_>)]) -> Result<()> {
        let cut = &self.cuts[&handle];
        let is_initializer = update.name == cut.initializer;
        let mut done = Vec::new();
        for part in 0..cut.parts() {
            let name = if is_initializer {
                format!("{}/Assign", cut.part(part))
            } else {
                format!("{}/part_{part}", update.name)
            };
            let names = part_names(&self.cuts, part);
            let mut clone = update.clone();
            for input in &mut clone.input {
                let source = EndpointName::parse(input);
                if source.slot == Some(0)
                    && let Some((_, of_part)) = names.iter().find(|(variable, _)| variable == source.node)
                {
                    input.clone_from(of_part);
                }
            }
            for (at, piece) in pieces {
                let Some(input) = clone.input.get_mut(*at) else { return Err(self.unsupported(update)) };
                *input = match piece {
                    Piece::Given(parts) => parts[part].clone(),
                    Piece::Slice => slice(&mut self.out, &format!("{name}/value"), &update.device, cut, part, input)?,
                };
            }
            // The parts have shapes of their own.
            clone.attr.remove("validate_shape");
            move_to_part(&mut clone, &names);
            clone.name = name;
            done.push(self.out.add(clone)?);
        }
        let finished = if cut.is_resource {
            let inputs = done.iter().map(|name| format!("^{name}")).collect();
            node("NoOp", update.name.clone(), &update.device, inputs)
        } else {
            let scope = format!("{}/updated", update.name);
            let value = concat(&mut self.out, &scope, cut, done)?;
            node("Identity", update.name.clone(), &update.device, vec![value]).with_type("T", cut.dtype)
        };
        self.out.keep(finished);
        Ok(())
    }
}

/// How an input of an update is cut.
enum Piece<'a> {
    /// Its stretch of the split axis.
    Slice,
    /// A tensor for each part.
    Given(&'a [String]),
}

/// The names of all split variables with that of their part.
fn part_names(cuts: &HashMap<usize, Cut<'_>>, part: usize) -> Vec<(String, String)> {
    let with_part = cuts.values().filter(|cut| part < cut.parts());
    with_part.map(|cut| (cut.name.to_owned(), cut.part(part))).collect()
}

fn concat(out: &mut Emitter, scope: &str, cut: &Cut<'_>, mut values: Vec<String>) -> Result<String> {
    let count = values.len() as i64;
    let axis = cut.plan.axis() as i64;
    values.push(out.scalar(format!("{scope}/concat/axis"), cut.device, DType::Int32, axis)?);
    out.add(
        node("ConcatV2", format!("{scope}/concat"), cut.device, values)
            .with_type("T", cut.dtype)
            .with_type("Tidx", DType::Int32)
            .with("N", Value::I(count)),
    )
}

/// The part's stretch of a tensor; other axes whole, whatever their size.
fn slice(out: &mut Emitter, name: &str, device: &str, cut: &Cut<'_>, part: usize, input: &str) -> Result<String> {
    let range = cut.plan.ranges()[part];
    let on_axis = |value: u64, others: i64| -> Vec<i64> {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        (0..cut.plan.shape().len()).map(|axis| if axis == cut.plan.axis() { value } else { others }).collect()
    };
    let begin = out.vector(format!("{name}/begin"), device, DType::Int64, &on_axis(range.offset, 0))?;
    let size = out.vector(format!("{name}/size"), device, DType::Int64, &on_axis(range.size, -1))?;
    out.add(
        node("Slice", name.to_owned(), device, vec![input.to_owned(), begin, size])
            .with_type("T", cut.dtype)
            .with_type("Index", DType::Int64),
    )
}

fn type_of(node: &NodeDef, attr: &str) -> Option<DType> {
    match node.attr.get(attr)?.value.as_ref()? {
        Value::Type(number) => DType::from_number(*number),
        _ => None,
    }
}
