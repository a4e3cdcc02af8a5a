//! The gradients of ops: reading the recipes, and making nodes of them.

use crate::op_def;
use graphmill_tensor::{DType, Result, Status, Tensor, internal, invalid_argument, not_found};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, NodeDef};
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

static TEXT: &str = include_str!("recipes.txt");
static RECIPES: LazyLock<HashMap<String, Recipe>> = LazyLock::new(|| read(TEXT).unwrap_or_default());

/// What every gradient of a binary op begins and ends with.
const BINARY: [&str; 7] = [
    "sx = Shape(x)",
    "sy = Shape(y)",
    "rx, ry = BroadcastGradientArgs(sx, sy) T=int32",
    "sum_gx = Sum(gx, rx)",
    "dx = Reshape(sum_gx, sx)",
    "sum_gy = Sum(gy, ry)",
    "dy = Reshape(sum_gy, sy)",
];

/// The same for a product of batches of matrices.
const BATCHED: [&str; 12] = [
    "sx = Shape(x)",
    "sy = Shape(y)",
    "start = [0] : int32",
    "end = [-2] : int32",
    "step = [1] : int32",
    "batch_sx = StridedSlice(sx, start, end, step) T=int32 Index=int32",
    "batch_sy = StridedSlice(sy, start, end, step) T=int32 Index=int32",
    "rx, ry = BroadcastGradientArgs(batch_sx, batch_sy) T=int32",
    "sum_gx = Sum(gx, rx)",
    "dx = Reshape(sum_gx, sx)",
    "sum_gy = Sum(gy, ry)",
    "dy = Reshape(sum_gy, sy)",
];

/// How the gradient of an op is computed.
#[derive(Debug)]
enum Recipe {
    /// No gradient flows through the op.
    Nothing,
    Nodes {
        args: Vec<Slots>,
        results: Vec<Slots>,
        lines: Vec<Line>,
    },
}

/// A name, and the attribute that says how many slots it stands for.
#[derive(Clone, Debug)]
struct Slots {
    name: String,
    count: Option<String>,
}

#[derive(Debug)]
enum Line {
    Constant { name: String, values: Vec<f64>, is_vector: bool, dtype: String },
    Node { outputs: Vec<Slots>, op: String, inputs: Vec<String>, attrs: Vec<(String, String)>, each: bool },
}

fn slots(text: &str) -> Slots {
    match text.trim().strip_suffix(']').and_then(|text| text.split_once('[')) {
        Some((name, count)) => Slots { name: name.to_owned(), count: Some(count.to_owned()) },
        None => Slots { name: text.trim().to_owned(), count: None },
    }
}

fn list<T>(text: &str, item: impl Fn(&str) -> T) -> Vec<T> {
    text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(item).collect()
}

/// The text between the first `(` and the `)` behind it, and what surrounds that.
fn bracketed(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('(')?;
    let (inside, behind) = rest.split_once(')')?;
    Some((before.trim(), inside, behind.trim()))
}

fn line(text: &str) -> Option<Line> {
    let (each, text) = match text.strip_prefix("each ") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (outputs, right) = text.split_once('=')?;
    if let Some((value, dtype)) = right.split_once(" : ") {
        let is_vector = value.contains('[');
        let values = list(value.trim().trim_matches(['[', ']']), |text| text.parse().ok());
        let (name, dtype) = (outputs.trim().to_owned(), dtype.trim().to_owned());
        return Some(Line::Constant { name, values: values.into_iter().collect::<Option<_>>()?, is_vector, dtype });
    }
    let (op, inputs, attrs) = bracketed(right)?;
    let attr = |text: &str| match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (text.trim_start_matches('$').to_owned(), text.to_owned()),
    };
    Some(Line::Node {
        outputs: list(outputs, slots),
        op: op.to_owned(),
        inputs: list(inputs, str::to_owned),
        attrs: attrs.split_whitespace().map(attr).collect(),
        each,
    })
}

fn read(text: &str) -> Option<HashMap<String, Recipe>> {
    let mut recipes = HashMap::new();
    let plain = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    for block in plain.split("\n\n").map(|block| block.trim_matches('\n')).filter(|block| !block.is_empty()) {
        let mut lines = block.lines();
        let head = lines.next()?;
        let (suffix, head) = match head.strip_prefix("complex ") {
            Some(head) => (" complex", head),
            None => ("", head),
        };
        let body: Vec<&str> = lines.map(str::trim).collect();
        let names = |text: &str| text.split_whitespace().map(|op| format!("{op}{suffix}")).collect::<Vec<_>>();
        if head.starts_with("none ") {
            for line in block.lines() {
                for op in names(line.trim_start_matches("none ")) {
                    recipes.insert(op, Recipe::Nothing);
                }
            }
            continue;
        }
        let (ops, args, results, body) = if let Some(ops) = head.strip_prefix("unary ") {
            (names(ops), "x, dy", "dx", body)
        } else if let Some(ops) = head.strip_prefix("binary ") {
            let around = BINARY[..2].iter().chain(&body).chain(&BINARY[2..]);
            (names(ops), "x, y, dz", "dx, dy", around.copied().collect())
        } else if let Some(ops) = head.strip_prefix("batched ") {
            (names(ops), "x, y, dz", "dx, dy", body.iter().chain(&BATCHED).copied().collect())
        } else {
            let (op, args, rest) = bracketed(head)?;
            (names(op), args, bracketed(rest)?.1, body)
        };
        for op in ops {
            let lines = body.iter().map(|text| line(text)).collect::<Option<Vec<_>>>()?;
            recipes.insert(op, Recipe::Nodes { args: list(args, slots), results: list(results, slots), lines });
        }
    }
    Some(recipes)
}

/// The key of an op's recipe: some ops have one for each setting.
fn key(op: &str, attrs: &BTreeMap<String, AttrValue>) -> String {
    let flag = |name: &str| matches!(attrs.get(name).and_then(|a| a.value.as_ref()), Some(Value::B(true)));
    let transposed = match op {
        "MatMul" => Some((flag("transpose_a"), flag("transpose_b"))),
        "BatchMatMul" | "BatchMatMulV2" => Some((flag("adj_x"), flag("adj_y"))),
        _ => None,
    };
    if let Some((a, b)) = transposed {
        let letter = |flag| if flag { 't' } else { 'n' };
        return format!("{op}.{}{}", letter(a), letter(b));
    }
    let is_complex = match attrs.get("T").and_then(|a| a.value.as_ref()) {
        Some(Value::Type(number)) => DType::from_number(*number).is_some_and(DType::is_complex),
        _ => false,
    };
    let complex = format!("{op} complex");
    if is_complex && RECIPES.contains_key(&complex) { complex } else { op.to_owned() }
}

/// Whether it is known that no gradient flows through an op.
pub(super) fn is_without_gradient(op: &str) -> bool {
    matches!(RECIPES.get(op), Some(Recipe::Nothing))
}

/// The nodes that compute the gradient of a node of op `op`, and where the gradients of its inputs are. `inputs` are the node's
/// inputs and the gradients of its outputs.
///
/// # Errors
/// `NOT_FOUND` if the op's gradient is not known, `INVALID_ARGUMENT` if the inputs do not fit the op.
pub(super) fn nodes(
    op: &str,
    attrs: &BTreeMap<String, AttrValue>,
    inputs: &[String],
    prefix: &str,
) -> Result<(Vec<NodeDef>, Vec<String>)> {
    let Some(Recipe::Nodes { args, results, lines }) = RECIPES.get(&key(op, attrs)) else {
        return Err(not_found!("No gradient defined for op: {op}"));
    };
    let mut kitchen = Kitchen { op, attrs, prefix, values: HashMap::new(), nodes: Vec::new() };
    let mut rest = inputs;
    for arg in args {
        let count = kitchen.count(arg)?;
        let (own, behind) = rest.split_at_checked(count).ok_or_else(|| misfit(op))?;
        kitchen.values.insert(arg.name.clone(), own.to_vec());
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(misfit(op));
    }
    for line in lines {
        kitchen.line(line)?;
    }
    let results = results.iter().map(|result| kitchen.all(&result.name)).collect::<Result<Vec<_>>>()?;
    Ok((kitchen.nodes, results.into_iter().flatten().collect()))
}

fn misfit(op: &str) -> Status {
    invalid_argument!("SymbolicGradient of {op} has a wrong number of inputs")
}

struct Kitchen<'a> {
    op: &'a str,
    attrs: &'a BTreeMap<String, AttrValue>,
    prefix: &'a str,
    /// What names stand for.
    values: HashMap<String, Vec<String>>,
    nodes: Vec<NodeDef>,
}

impl Kitchen<'_> {
    /// An attribute of the op, perhaps by default.
    fn attr(&self, name: &str) -> Result<Value> {
        let own = self.attrs.get(name);
        let schema = op_def(self.op).and_then(|op| op.attr(name)).and_then(|attr| attr.default.as_ref());
        let value = own.or(schema).and_then(|attr| attr.value.clone());
        value.ok_or_else(|| invalid_argument!("SymbolicGradient of {} needs attr '{name}'", self.op))
    }

    fn count(&self, slots: &Slots) -> Result<usize> {
        match &slots.count {
            None => Ok(1),
            Some(attr) => match self.attr(attr)? {
                Value::I(n) => usize::try_from(n).map_err(|_| misfit(self.op)),
                _ => Err(misfit(self.op)),
            },
        }
    }

    fn all(&self, name: &str) -> Result<Vec<String>> {
        self.values.get(name).cloned().ok_or_else(|| internal!("the recipe for {} lacks {name}", self.op))
    }

    fn dtype(&self, text: &str) -> Result<DType> {
        if text == "T" {
            return match self.attr("T")? {
                Value::Type(number) => DType::from_number(number).ok_or_else(|| misfit(self.op)),
                _ => Err(misfit(self.op)),
            };
        }
        let named = DType::ALL.iter().copied().find(|dtype| dtype.name() == text);
        named.ok_or_else(|| internal!("the recipe for {} has type {text}", self.op))
    }

    fn value(&self, text: &str) -> Result<Value> {
        if let Some(name) = text.strip_prefix('$') {
            return self.attr(name);
        }
        Ok(match text {
            "true" => Value::B(true),
            "false" => Value::B(false),
            _ => match text.parse() {
                Ok(number) => Value::I(number),
                Err(_) => Value::Type(self.dtype(text)?.number()),
            },
        })
    }

    fn add(&mut self, name: &str, op: &str, input: Vec<String>, attrs: Vec<(String, Value)>) -> String {
        let name = format!("{}{name}", self.prefix);
        let attr = attrs.into_iter().map(|(key, value)| (key, AttrValue { value: Some(value) })).collect();
        self.nodes.push(NodeDef { name: name.clone(), op: op.to_owned(), input, attr, ..Default::default() });
        name
    }

    fn line(&mut self, line: &Line) -> Result<()> {
        match line {
            Line::Constant { name, values, is_vector, dtype } => {
                let dtype = self.dtype(dtype)?;
                let tensor = match is_vector {
                    true => Tensor::vector(values)?,
                    false => Tensor::scalar(values.first().copied().unwrap_or_default())?,
                };
                let double = || Value::Type(DType::Double.number());
                let attrs = vec![
                    ("dtype".to_owned(), double()),
                    ("value".to_owned(), Value::Tensor(Box::new(tensor.to_proto()))),
                ];
                let constant = self.add(&format!("{name}/const"), "Const", Vec::new(), attrs);
                let attrs = vec![("SrcT".to_owned(), double()), ("DstT".to_owned(), Value::Type(dtype.number()))];
                let cast = self.add(name, "Cast", vec![constant], attrs);
                self.values.insert(name.clone(), vec![format!("{cast}:0")]);
                Ok(())
            }
            Line::Node { outputs, op, inputs, attrs, each } => {
                let attrs = self.node_attrs(op, attrs)?;
                let first = outputs.first().ok_or_else(|| misfit(self.op))?;
                let count = self.count(first)?;
                if *each {
                    let mut made = Vec::with_capacity(count);
                    for i in 0..count {
                        let inputs = self.inputs(inputs, Some(i))?;
                        let node = self.add(&format!("{}_{i}", first.name), op, inputs, attrs.clone());
                        made.push(format!("{node}:0"));
                    }
                    self.values.insert(first.name.clone(), made);
                    return Ok(());
                }
                let inputs = self.inputs(inputs, None)?;
                let node = self.add(&first.name, op, inputs, attrs);
                let mut slot = 0;
                for output in outputs {
                    let count = self.count(output)?;
                    let slots = (slot..slot + count).map(|slot| format!("{node}:{slot}")).collect();
                    self.values.insert(output.name.clone(), slots);
                    slot += count;
                }
                Ok(())
            }
        }
    }

    fn inputs(&self, inputs: &[String], each: Option<usize>) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for input in inputs {
            if let Some(name) = input.strip_suffix('@') {
                let one = each.and_then(|i| self.values.get(name)?.get(i)).cloned();
                found.push(one.ok_or_else(|| internal!("the recipe for {} lacks {input}", self.op))?);
            } else {
                found.extend(self.all(input.trim_end_matches('*'))?);
            }
        }
        Ok(found)
    }

    /// The attributes of a node: those that are given, and for others that are required those of the op, or its `T`.
    fn node_attrs(&self, op: &str, given: &[(String, String)]) -> Result<Vec<(String, Value)>> {
        let mut attrs = Vec::new();
        for (name, text) in given {
            attrs.push((name.clone(), self.value(text)?));
        }
        let schema = op_def(op).ok_or_else(|| internal!("the recipe for {} has op {op}", self.op))?;
        for attr in schema.attrs.iter().filter(|attr| attr.default.is_none()) {
            if !given.iter().any(|(name, _)| **name == *attr.name) {
                let value = self.attr(&attr.name).or_else(|_| self.attr("T"))?;
                attrs.push((attr.name.to_string(), value));
            }
        }
        Ok(attrs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_makes_sound_nodes() {
        let recipes = read(TEXT).unwrap();
        assert!(recipes.len() > 100, "{}", recipes.len());
        for (name, recipe) in &recipes {
            let op = name.split([' ', '.']).next().unwrap();
            let schema = op_def(op).unwrap_or_else(|| panic!("{op}"));
            let Recipe::Nodes { args, results, .. } = recipe else { continue };
            let count: usize = schema.inputs.len() + schema.outputs.len();
            assert_eq!((args.len(), results.len()), (count, schema.inputs.len()), "{name}");
            let mut attrs: BTreeMap<String, AttrValue> = BTreeMap::new();
            for attr in &schema.attrs {
                let value = match (attr.ty.kind, attr.ty.is_list) {
                    (crate::AttrKind::Type, false) => Value::Type(if name.contains("complex") { 8 } else { 1 }),
                    (crate::AttrKind::Int, false) => Value::I(2),
                    (crate::AttrKind::String, false) => Value::S("SAME".into()),
                    _ => Value::List(Box::default()),
                };
                attrs.insert(attr.name.to_string(), AttrValue { value: Some(value) });
            }
            let inputs: Vec<String> = args
                .iter()
                .flat_map(|arg| (0..if arg.count.is_some() { 2 } else { 1 }).map(|i| format!("{}{i}:0", arg.name)))
                .collect();
            let flags = name.split('.').nth(1).unwrap_or("nn");
            for (flag, letter) in [("transpose_a", 0), ("transpose_b", 1), ("adj_x", 0), ("adj_y", 1)] {
                let set = flags.as_bytes()[letter] == b't';
                attrs.insert(flag.to_owned(), AttrValue { value: Some(Value::B(set)) });
            }
            let (nodes, found) = nodes(op, &attrs, &inputs, "p/").unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(found.len() >= results.len() && !nodes.is_empty(), "{name}");
            assert!(nodes.iter().all(|node| op_def(&node.op).is_some()), "{name}");
        }
    }
}
