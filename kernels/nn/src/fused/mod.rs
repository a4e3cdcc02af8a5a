//! Ops that an optimiser of graphs puts in the place of several: a convolution or product with what follows it, a batch
//! normalisation with its activation, a chain of functions of one element. Each runs the kernels of the ops that it stands for.

mod bytes;
mod chain;
mod curve;
mod norm;
mod stage;

use graphmill_graph::Attrs;
use graphmill_runtime::{Construction, Context, Kernel, Part, Registry, Value};
use graphmill_tensor::{DType, Result, SlotType, Tensor, internal, invalid_argument};
use graphmill_wire::tensorflow::attr_value;
use smallvec::SmallVec;
use stage::Stage;

type Values = SmallVec<[Value; 8]>;

/// What the stages are added to.
#[derive(Clone, Copy)]
struct Base {
    /// The op, and its name in the texts of errors.
    op: &'static str,
    label: &'static str,
    /// The attributes that it shares with the fused op.
    attrs: &'static [&'static str],
}

const MAT_MUL: Base = Base { op: "MatMul", label: "MatMul", attrs: &["T", "transpose_a", "transpose_b"] };
const CONV_2D: Base = Base {
    op: "Conv2D",
    label: "Conv2D",
    attrs: &["T", "strides", "padding", "explicit_paddings", "data_format", "dilations"],
};
const DEPTHWISE: Base = Base {
    op: "DepthwiseConv2dNative",
    label: "DepthwiseConv2dNative",
    attrs: &["T", "strides", "padding", "data_format", "dilations"],
};
const CONV_3D: Base =
    Base { op: "Conv3D", label: "Conv3D", attrs: &["T", "strides", "padding", "data_format", "dilations"] };

/// The attributes of `c` that a part shares with it.
fn shared(c: &Construction<'_>, names: &[&str]) -> Attrs {
    let mut attrs = Attrs::new();
    for name in names {
        if let Some(value) = c.attrs().get(name).and_then(|attr| attr.value.clone()) {
            attrs.set(name, value);
        }
    }
    attrs
}

/// The one attribute that most parts have.
fn of_type(dtype: DType) -> Attrs {
    let mut attrs = Attrs::new();
    attrs.set("T", attr_value::Value::Type(dtype.number()));
    attrs
}

/// `_FusedMatMul`, `_FusedConv2D`, `_FusedDepthwiseConv2dNative`, `_FusedConv3D`: the op, then what `fused_ops` names, which takes
/// its operands from `args`.
struct Fused {
    padding: Option<Padding>,
    base: Part,
    /// Whether a product of nothing with nothing is left as zeros, as TensorFlow does it with matrices.
    bare_if_empty: bool,
    stages: Vec<Stage>,
}

/// The zeros put around the first input.
struct Padding {
    pad: Part,
    amounts: Tensor,
}

impl Padding {
    /// What `padding_list` asks for, pairs of numbers before and after each dimension.
    fn new(c: &Construction<'_>, dtype: DType) -> Result<Option<Padding>> {
        let list = if c.attrs().has("padding_list") { c.attrs().int_list("padding_list")? } else { &[] };
        if list.is_empty() {
            return Ok(None);
        }
        let amounts: Vec<i32> = list
            .iter()
            .map(|&n| i32::try_from(n).map_err(|_| invalid_argument!("padding_list holds {n}")))
            .collect::<Result<_>>()?;
        let shape = graphmill_tensor::Shape::from_dims(&[amounts.len() / 2, 2])?;
        if shape.num_elements() != amounts.len() {
            return Err(invalid_argument!("padding_list must hold pairs, has {} numbers", amounts.len()));
        }
        let pad = c.part("Pad", of_type(dtype))?;
        Ok(Some(Padding { pad, amounts: Tensor::from_slice(shape, &amounts)? }))
    }
}

impl Fused {
    fn new(c: &Construction<'_>, base: Base) -> Result<Fused> {
        let dtype = c.dtype("T")?;
        let padding = Padding::new(c, dtype)?;
        let stages = stage::of_attrs(c, base.label, padding.is_some())?;
        check_arguments(c, base.label, &stages)?;
        if c.attrs().has("filter_format") && c.attrs().str("filter_format")? != "HWIO" {
            return Err(invalid_argument!("Fused Conv2D takes filters of the format HWIO alone"));
        }
        let part = c.part(base.op, shared(c, base.attrs))?;
        Ok(Fused { padding, base: part, bare_if_empty: base.op == MAT_MUL.op, stages })
    }
}

/// Checks that there are as many arguments as the stages take, of the types that they take.
fn check_arguments(c: &Construction<'_>, label: &str, stages: &[Stage]) -> Result<()> {
    let attrs = c.attrs();
    let args = usize::try_from(attrs.int("num_args")?).unwrap_or(0);
    let host = if attrs.has("num_host_args") { attrs.int("num_host_args")? } else { 0 };
    let wanted: usize = stages.iter().map(Stage::arguments).sum();
    if args != wanted {
        return Err(match stages.first() {
            Some(Stage::Normalize(_)) => invalid_argument!(
                "Fused {label} with FusedBatchNorm must have four extra arguments: scale, offset, mean, variance."
            ),
            Some(Stage::Bias(_)) if wanted == 1 => invalid_argument!(
                "Fused {label} with BiasAdd must have one extra argument: bias or 4 extra arguments: bias, side_input, \
                 conv_input_scale and side_input_scale"
            ),
            _ => invalid_argument!("Fused {label} must have {wanted} extra arguments, got {args}"),
        });
    }
    let host_args = usize::try_from(host).unwrap_or(0);
    if c.num_inputs() != 2 + args + host_args {
        return Err(invalid_argument!(
            "Fused {label} must have the number of inputs equal to 2 + num_args + num_host_args but in fact the number of \
             inputs is {} and num_args is {args} and num_host_args is {host}",
            c.num_inputs()
        ));
    }
    let dtype = c.dtype("T")?;
    let mut types = c.input_types().iter().skip(2).map(|slot: &SlotType| slot.dtype);
    for stage in stages {
        for given in types.by_ref().take(stage.arguments()) {
            let fits = given == dtype || given == DType::Float && matches!(stage, Stage::Normalize(_));
            if !fits {
                return Err(invalid_argument!("Fused {label} of {dtype} cannot take an argument of {given}"));
            }
        }
    }
    Ok(())
}

/// All inputs by move, so that parts may overwrite them.
fn take_all(ctx: &mut Context<'_>) -> Result<Values> {
    (0..ctx.num_inputs()).map(|i| ctx.take_value(i)).collect()
}

impl Kernel for Fused {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let mut inputs = take_all(ctx)?;
        if let (Some(padding), Some(first)) = (&self.padding, inputs.first_mut()) {
            let mut operands = [std::mem::take(first), Value::Tensor(padding.amounts.clone())];
            *first = Value::Tensor(padding.pad.run_one(ctx, &mut operands)?);
        }
        let (operands, arguments) =
            inputs.split_at_mut_checked(2).ok_or_else(|| internal!("a fused op has two operands"))?;
        let empty = |value: &Value| matches!(value, Value::Tensor(tensor) if tensor.num_elements() == 0);
        let bare = self.bare_if_empty && operands.iter().all(empty);
        let mut result = self.base.run_one(ctx, operands)?;
        if bare {
            return ctx.set_output(0, result);
        }
        let mut arguments = arguments.iter_mut().map(std::mem::take);
        for stage in &self.stages {
            let own: Values = arguments.by_ref().take(stage.arguments()).collect();
            result = stage.run(ctx, result, own)?;
        }
        ctx.set_output(0, result)
    }
}

pub(crate) fn register(registry: &mut Registry) {
    use DType::*;
    bytes::register(registry);
    chain::register(registry);
    curve::register(registry);
    norm::register(registry);
    let halves = &[BFloat16, Float, Half];
    registry.op("_FusedMatMul").types("T", halves).kernel(|c| Fused::new(c, MAT_MUL));
    registry.op("_FusedConv2D").types("T", &[BFloat16, Double, Float, Half]).kernel(|c| Fused::new(c, CONV_2D));
    registry.op("_FusedDepthwiseConv2dNative").types("T", halves).kernel(|c| Fused::new(c, DEPTHWISE));
    registry.op("_FusedConv3D").types("T", halves).kernel(|c| Fused::new(c, CONV_3D));
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::Shape;
    use graphmill_wire::tensorflow::attr_value::{ListValue, Value as Attr};

    fn registry() -> Registry {
        let mut registry = Registry::new();
        crate::register(&mut registry);
        registry
    }

    fn ramp(dims: &[usize]) -> Tensor {
        let shape = Shape::from_dims(dims).unwrap();
        let values: Vec<f32> = (0..shape.num_elements()).map(|i| (i * 7 % 11) as f32 / 4.0 - 1.0).collect();
        Tensor::from_slice(shape, &values).unwrap()
    }

    fn fused(op: &str, ops: &[&str]) -> OpRun {
        let list = ListValue { s: ops.iter().map(|s| s.as_bytes().to_vec().into()).collect(), ..Default::default() };
        OpRun::new(op).attr_type("T", DType::Float).attr("fused_ops", Attr::List(Box::new(list)))
    }

    fn run(op: &str, attrs: &[(&str, Attr)], inputs: Vec<Tensor>) -> Tensor {
        let run = attrs
            .iter()
            .fold(OpRun::new(op).attr_type("T", DType::Float), |run, (name, value)| run.attr(name, value.clone()));
        run.run(&registry(), inputs).unwrap().swap_remove(0)
    }

    fn ints(values: &[i64]) -> Attr {
        Attr::List(Box::new(ListValue { i: values.to_vec(), ..Default::default() }))
    }

    /// TensorFlow rewrites these three before it runs them, so that its own kernels cannot be asked.
    #[test]
    fn fused_convolutions_are_the_ops_that_they_stand_for() {
        let cases: [(&str, &str, &[usize], &[usize]); 2] = [
            ("_FusedConv3D", "Conv3D", &[1, 3, 4, 2, 2], &[2, 2, 2, 2, 6]),
            ("_FusedDepthwiseConv2dNative", "DepthwiseConv2dNative", &[2, 4, 5, 3], &[2, 2, 3, 2]),
        ];
        for (name, base, input, filter) in cases {
            let strides = ("strides", ints(&vec![1; input.len()]));
            let padding = ("padding", Attr::S(b"SAME".to_vec().into()));
            let attrs = [strides, padding];
            let (x, w, b) = (ramp(input), ramp(filter), ramp(&[6]));
            let sum = run(base, &attrs, vec![x.clone(), w.clone()]);
            let expected = run("Relu6", &[], vec![run("BiasAdd", &[], vec![sum, b.clone()])]);
            let op =
                attrs.iter().fold(fused(name, &["BiasAdd", "Relu6"]), |op, (name, value)| op.attr(name, value.clone()));
            let got = op.attr_int("num_args", 1).run(&registry(), vec![x, w, b]).unwrap();
            assert_eq!(got[0].as_slice::<f32>().unwrap(), expected.as_slice::<f32>().unwrap());
        }
    }

    #[test]
    fn batch_normalisation_takes_an_activation() {
        let x = ramp(&[2, 3, 4, 2]);
        let vectors = [ramp(&[2]), ramp(&[2]), ramp(&[2]), Tensor::vector(&[1f32, 2.0]).unwrap()];
        let inference = [("is_training", Attr::B(false)), ("U", Attr::Type(DType::Float.number()))];
        let mut inputs = vec![x];
        inputs.extend(vectors);
        let plain = run("FusedBatchNormV3", &inference, inputs.clone());
        let relu = |values: Vec<f32>| -> Vec<f32> { values.into_iter().map(|v| v.max(0.0)).collect() };
        let mut attrs = inference.to_vec();
        attrs.push(("activation_mode", Attr::S(b"Relu".to_vec().into())));
        let got = run("_FusedBatchNormEx", &attrs, inputs);
        assert_eq!(got.as_slice::<f32>().unwrap(), relu(plain.as_slice::<f32>().unwrap().to_vec()));
    }

    #[test]
    fn rows_are_normalised_and_hard_swishes_need_no_other_family() {
        let x = Tensor::from_slice(Shape::from_dims(&[2, 2]).unwrap(), &[1f32, 3.0, -4.0, 4.0]).unwrap();
        let vector = |values: &[f32]| Tensor::vector(values).unwrap();
        let inputs = vec![x, vector(&[1.0, 2.0]), vector(&[0.5, 0.0])];
        let epsilon = [("epsilon", Attr::F(0.0))];
        let rows = run("_MklLayerNorm", &epsilon, inputs);
        assert_eq!(rows.as_slice::<f32>().unwrap(), [-0.5, 2.0, -0.5, 2.0]);
        let strides = ints(&[1, 1, 1, 1]);
        let swish = fused("_FusedConv2D", &["BiasAdd", "_FusedHardSwish"])
            .attr("strides", strides)
            .attr_str("padding", "SAME")
            .attr_int("num_args", 1)
            .attr_types("TArgs", &[DType::Float]);
        let image = Tensor::from_slice(Shape::from_dims(&[1, 1, 4, 1]).unwrap(), &[-4f32, -1.0, 1.0, 4.0]).unwrap();
        let one = Tensor::from_slice(Shape::from_dims(&[1, 1, 1, 1]).unwrap(), &[1f32]).unwrap();
        let outputs = swish.run(&registry(), vec![image, one, vector(&[0.0])]).unwrap();
        let got = outputs[0].as_slice::<f32>().unwrap();
        assert!(got.iter().zip([0.0, -1.0 / 3.0, 2.0 / 3.0, 4.0]).all(|(a, b)| (a - b).abs() < 1e-6), "{got:?}");
    }

    #[test]
    fn what_cannot_be_fused_is_refused() {
        let strides = ints(&[1, 1, 1, 1]);
        let conv = |ops: &[&str], count: i64| {
            fused("_FusedConv2D", ops)
                .attr("strides", strides.clone())
                .attr_str("padding", "SAME")
                .attr_int("num_args", count)
                .attr_types("TArgs", &[DType::Float])
                .run(&registry(), vec![ramp(&[1, 2, 2, 1]), ramp(&[1, 1, 1, 1]), ramp(&[1])])
        };
        assert!(conv(&["BiasAdd"], 1).is_ok());
        let error = |ops: &[&str], count| conv(ops, count).unwrap_err().message().to_owned();
        assert_eq!(error(&[], 1), "Fused Conv2D must have at least one fused op.");
        assert_eq!(error(&["Relu"], 1), "Fusion is not implemented: [Relu]");
        assert!(error(&["FusedBatchNorm"], 1).contains("four extra arguments"));
        assert!(error(&["BiasAdd"], 0).contains("one extra argument: bias"));
    }
}
