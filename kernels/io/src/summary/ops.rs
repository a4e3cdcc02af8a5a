//! Summaries of scalars, histograms and tensors, and their union.

use super::histogram::histogram;
use super::{REALS, tensor_message, to_f64};
use crate::inputs::{first, set_string, text};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, invalid_argument};
use graphmill_wire::tensorflow::summary::{Value, value};
use graphmill_wire::tensorflow::{Summary, SummaryMetadata};
use prost::Message;
use std::collections::HashSet;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ScalarSummary").types("T", &REALS).kernel(|_| Ok(ScalarSummary));
    registry.op("HistogramSummary").types("T", &REALS).kernel(|_| Ok(HistogramSummary));
    registry.op("MergeSummary").kernel(|_| Ok(MergeSummary));
    registry.op("TensorSummary").types("T", DType::COMMON).kernel(|_| Ok(TensorSummary));
    registry.op("TensorSummaryV2").types("T", DType::COMMON).kernel(|_| Ok(TensorSummaryV2));
}

/// A value under a tag for every element of two tensors of one shape.
struct ScalarSummary;

impl Kernel for ScalarSummary {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (tags, values) = (ctx.input(0)?, ctx.input(1)?);
        if tags.shape() != values.shape() {
            let tag = match tags.strings()? {
                [tag] => format!(" (tag '{}')", text(tag)),
                _ => String::new(),
            };
            return Err(invalid_argument!(
                "tags and values are not the same shape: {} != {}{tag}",
                tags.shape(),
                values.shape()
            ));
        }
        let numbers = to_f64(values)?;
        let summary = tags.strings()?.iter().zip(numbers).map(|(tag, number)| Value {
            tag: text(tag),
            value: Some(value::Value::SimpleValue(number as f32)),
            ..Value::default()
        });
        let summary = Summary { value: summary.collect() };
        set_string(ctx, 0, summary.encode_to_vec())
    }
}

/// The histogram of all elements under a tag.
struct HistogramSummary;

impl Kernel for HistogramSummary {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (tag, values) = (ctx.input(0)?, ctx.input(1)?);
        if !tag.shape().is_scalar() {
            return Err(invalid_argument!("tags must be scalar"));
        }
        let histogram = histogram(&to_f64(values)?, &ctx.node().name)?;
        let value = Value { tag: text(first(tag)?), value: Some(value::Value::Histo(histogram)), ..Value::default() };
        set_string(ctx, 0, Summary { value: vec![value] }.encode_to_vec())
    }
}

/// The values of several summaries in one; a tag stands for one value only.
struct MergeSummary;

impl Kernel for MergeSummary {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let mut merged = Summary::default();
        let mut tags = HashSet::new();
        for i in 0..ctx.num_inputs() {
            for serialized in ctx.input(i)?.strings()? {
                let summary = Summary::decode(serialized.clone())
                    .map_err(|_| invalid_argument!("Could not parse one of the summary inputs"))?;
                for value in summary.value {
                    // Values of summaries of tensors may have none.
                    if !value.tag.is_empty() && !tags.insert(value.tag.clone()) {
                        return Err(invalid_argument!("Duplicate tag {} found in summary inputs", value.tag));
                    }
                    merged.value.push(value);
                }
            }
        }
        set_string(ctx, 0, merged.encode_to_vec())
    }
}

/// A tensor under the node's name.
struct TensorSummary;

impl Kernel for TensorSummary {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let value = Value {
            node_name: ctx.node().name.to_string(),
            value: Some(value::Value::Tensor(tensor_message(ctx.input(0)?))),
            ..Value::default()
        };
        set_string(ctx, 0, Summary { value: vec![value] }.encode_to_vec())
    }
}

/// A tensor under a tag, with what the plugin that shows it needs to know.
struct TensorSummaryV2;

impl Kernel for TensorSummaryV2 {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (tag, tensor, metadata) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if !tag.shape().is_scalar() {
            return Err(invalid_argument!("tag must be scalar"));
        }
        if !metadata.shape().is_scalar() {
            return Err(invalid_argument!("serialized_summary_metadata must be scalar"));
        }
        let value = tensor_value(text(first(tag)?), tensor, first(metadata)?);
        set_string(ctx, 0, Summary { value: vec![value] }.encode_to_vec())
    }
}

/// A tensor under a tag. Metadata that cannot be read is left out.
pub(super) fn tensor_value(tag: String, tensor: &Tensor, metadata: &[u8]) -> Value {
    Value {
        tag,
        metadata: SummaryMetadata::decode(metadata).ok(),
        value: Some(value::Value::Tensor(tensor_message(tensor))),
        ..Value::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::{Bytes, Shape};

    fn run(op: OpRun, inputs: Vec<Tensor>) -> Result<Summary> {
        let mut registry = Registry::new();
        register(&mut registry);
        let outputs = op.run(&registry, inputs)?;
        Ok(Summary::decode(outputs[0].strings().unwrap()[0].clone()).unwrap())
    }

    fn strings(values: &[&'static str]) -> Tensor {
        let values: Vec<Bytes> = values.iter().map(|v| Bytes::from_static(v.as_bytes())).collect();
        Tensor::from_strings(Shape::vector(values.len()), values).unwrap()
    }

    #[test]
    fn scalars_have_tags() {
        let op = || OpRun::new("ScalarSummary").attr_type("T", DType::Int32);
        let summary = run(op(), vec![strings(&["a", "b"]), Tensor::vector(&[1i32, 2]).unwrap()]).unwrap();
        assert_eq!(summary.value[1].tag, "b");
        assert_eq!(summary.value[1].value, Some(value::Value::SimpleValue(2.0)));
        let error = run(op(), vec![strings(&["a"]), Tensor::vector(&[1i32, 2]).unwrap()]).unwrap_err();
        assert_eq!(error.message(), "tags and values are not the same shape: [1] != [2] (tag 'a')");
    }

    #[test]
    fn a_tag_is_there_once() {
        let part = |tag: &str| {
            let value = Value { tag: tag.to_owned(), ..Value::default() };
            Tensor::from_strings(Shape::scalar(), vec![Summary { value: vec![value] }.encode_to_vec().into()]).unwrap()
        };
        let op = || OpRun::new("MergeSummary").attr_int("N", 2);
        assert_eq!(run(op(), vec![part("a"), part("b")]).unwrap().value.len(), 2);
        assert_eq!(run(op(), vec![part(""), part("")]).unwrap().value.len(), 2);
        let error = run(op(), vec![part("a"), part("a")]).unwrap_err();
        assert_eq!(error.message(), "Duplicate tag a found in summary inputs");
        assert!(run(op(), vec![part("a"), strings(&["\u{ff}"])]).is_err());
    }
}
