//! Gradients brought together: from all replicas of a task, and rows of the same number into one.

use super::roles::Learner;
use super::writer::{Spot, Writer, ty};
use graphmill_graph::{ArgType, op_def};
use graphmill_tensor::{DType, Result, invalid_argument};
use graphmill_wire::tensorflow::NodeDef;
use graphmill_wire::tensorflow::attr_value::Value;

/// A gradient in the graph that is written.
#[derive(Clone, Debug)]
pub(super) enum Gathered {
    Dense(String),
    Rows(Rows),
}

/// Some rows of a gradient.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub indices: String,
    pub values: String,
    pub index_type: DType,
}

impl Gathered {
    /// The tensors, in the order of the learner's sources.
    pub fn tensors(&self) -> Vec<&str> {
        match self {
            Gathered::Dense(name) => vec![name],
            Gathered::Rows(rows) => vec![&rows.indices, &rows.values],
        }
    }
}

impl Writer<'_> {
    /// The sum of a gradient over the replicas of this task, with each row once if it has rows.
    pub fn local_sum(&mut self, learner: &Learner<'_>) -> Result<Gathered> {
        let spot = Spot::of(learner, &self.job.processor());
        let replicas = self.job.replicas.len();
        let dtype = learner.variable.dtype;
        let copies = |writer: &Self, source| (0..replicas).map(|i| writer.tensor(source, i)).collect::<Vec<_>>();
        match learner.sources[..] {
            [indices, values] => {
                let index_type = self.type_of(learner, indices.node, indices.slot.unwrap_or(0))?;
                let (indices, values) = (copies(self, indices), copies(self, values));
                let rows = Rows { indices: indices[0].clone(), values: values[0].clone(), index_type };
                if replicas == 1 {
                    return Ok(Gathered::Rows(rows));
                }
                fn names(list: &[String]) -> Vec<&str> {
                    list.iter().map(String::as_str).collect()
                }
                let all = Rows {
                    indices: self.concat(&spot, "all_indices", index_type, &names(&indices))?,
                    values: self.concat(&spot, "all_values", dtype, &names(&values))?,
                    index_type,
                };
                Ok(Gathered::Rows(self.distinct(&spot, "local", &all, dtype)?))
            }
            [dense] if replicas == 1 => Ok(Gathered::Dense(self.tensor(dense, 0))),
            [dense] => Ok(Gathered::Dense(self.sum(&spot, "sum", dtype, &copies(self, dense))?)),
            _ => Err(invalid_argument!("The gradient of \"{}\" is damaged", learner.variable.name)),
        }
    }

    /// The mean of a gradient over the replicas of this task.
    pub fn local_mean(&mut self, learner: &Learner<'_>) -> Result<Gathered> {
        let spot = Spot::of(learner, &self.job.processor());
        let sum = self.local_sum(learner)?;
        self.share(&spot, "mean", learner, sum, self.job.replicas.len())
    }

    /// A gradient divided by a number.
    pub fn share(
        &mut self,
        spot: &Spot,
        name: &str,
        learner: &Learner<'_>,
        gradient: Gathered,
        by: usize,
    ) -> Result<Gathered> {
        let dtype = learner.variable.dtype;
        match gradient {
            any if by == 1 => Ok(any),
            Gathered::Dense(sum) => Ok(Gathered::Dense(self.divide(spot, name, dtype, &sum, by)?)),
            Gathered::Rows(rows) => {
                let values = self.divide(spot, name, dtype, &rows.values, by)?;
                Ok(Gathered::Rows(Rows { values, ..rows }))
            }
        }
    }

    /// Rows in the order of their numbers, those of the same number summed.
    pub fn distinct(&mut self, spot: &Spot, name: &str, rows: &Rows, dtype: DType) -> Result<Rows> {
        let index = ty(rows.index_type);
        let scope = Spot { scope: spot.name(name), device: spot.device.clone() };
        let count = self.size(&scope, "count", rows.index_type, &rows.indices)?;
        let negative = self.add(&scope, "negative", "Neg", &[&rows.indices], &[("T", index.clone())])?;
        let sorted = self.add(
            &scope,
            "sorted",
            "TopKV2",
            &[&negative, &count],
            &[("T", index.clone()), ("sorted", Value::B(true))],
        )?;
        let ordered = self.add(&scope, "ordered", "Neg", &[&sorted], &[("T", index.clone())])?;
        let values = self.gather(&scope, "values", dtype, &rows.values, &format!("{sorted}:1"))?;
        let unique =
            self.add(&scope, "indices", "Unique", &[&ordered], &[("T", index), ("out_idx", ty(DType::Int32))])?;
        let segments = self.size(&scope, "segments", rows.index_type, &unique)?;
        let summed = self.add(
            &scope,
            "summed",
            "UnsortedSegmentSum",
            &[&values, &format!("{unique}:1"), &segments],
            &[("T", ty(dtype)), ("Tindices", ty(DType::Int32)), ("Tnumsegments", ty(DType::Int32))],
        )?;
        Ok(Rows { indices: unique, values: summed, index_type: rows.index_type })
    }

    /// The type of the numbers of a sparse gradient's rows.
    pub fn index_type(&self, learner: &Learner<'_>) -> Result<Option<DType>> {
        match learner.sources[..] {
            [indices, _] => Ok(Some(self.type_of(learner, indices.node, indices.slot.unwrap_or(0))?)),
            _ => Ok(None),
        }
    }

    /// The element type of a tensor of the old graph.
    fn type_of(&self, learner: &Learner<'_>, node: usize, slot: u32) -> Result<DType> {
        let node = &self.roles.item.graph().node[node];
        output_type(node, slot).ok_or_else(|| {
            invalid_argument!(
                "The gradient of \"{}\" comes from \"{}\", a {} whose output {slot} has no known type",
                learner.variable.name,
                node.name,
                node.op
            )
        })
    }
}

/// The element type of a node's output, from its schema and attributes.
pub(super) fn output_type(node: &NodeDef, slot: u32) -> Option<DType> {
    let schema = op_def(&node.op)?;
    let value = |name: &str| {
        let given = node.attr.get(name).and_then(|attr| attr.value.as_ref());
        given.or_else(|| {
            let attr = schema.attrs.iter().find(|attr| *attr.name == *name)?;
            attr.default.as_ref()?.value.as_ref()
        })
    };
    let mut left = usize::try_from(slot).ok()?;
    for arg in &schema.outputs {
        let count = match (&arg.number_attr, &arg.ty) {
            (Some(number), _) => match value(number)? {
                Value::I(count) => usize::try_from(*count).ok()?,
                _ => return None,
            },
            (None, ArgType::TypeListAttr(list)) => match value(list)? {
                Value::List(list) => list.r#type.len(),
                _ => return None,
            },
            (None, _) => 1,
        };
        if left >= count {
            left -= count;
            continue;
        }
        return match &arg.ty {
            ArgType::Fixed(dtype) => Some(*dtype),
            ArgType::TypeAttr(attr) => match value(attr)? {
                Value::Type(number) => DType::from_number(*number),
                _ => None,
            },
            ArgType::TypeListAttr(attr) => match value(attr)? {
                Value::List(list) => DType::from_number(*list.r#type.get(left)?),
                _ => None,
            },
        };
    }
    None
}
