//! The optimisers against numbers of TensorFlow, in both forms.
// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used)]

use graphmill_runtime::testing::{OpRun, test_device};
use graphmill_runtime::{Device, Registry, ResourceVariable, Value, Variable};
use graphmill_tensor::{DType, Result, Shape, Tensor};
use std::sync::Arc;

const TABLE: &str = include_str!("optimisers.tsv");

fn registry() -> Registry {
    let mut registry = Registry::new();
    graphmill_kernels_state::register(&mut registry);
    registry
}

fn numbers(text: &str) -> Vec<f32> {
    text.split(' ').map(|n| n.parse().unwrap()).collect()
}

/// A row of the table. Variables and gradients of sparse ops have rows of two elements.
struct Case {
    op: &'static str,
    attrs: Vec<(&'static str, bool)>,
    variables: Vec<Tensor>,
    inputs: Vec<Tensor>,
    expected: Vec<Vec<f32>>,
}

impl Case {
    fn parse(line: &'static str) -> Case {
        let [op, attrs, variables, inputs, expected] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let sparse = op.contains("Sparse");
        let shaped = |text: &str| {
            let values = numbers(text);
            let shape = if sparse { vec![values.len() / 2, 2] } else { vec![values.len()] };
            Tensor::from_slice(Shape::from_dims(&shape).unwrap(), &values).unwrap()
        };
        let mut after_gradient = false;
        let mut inputs: Vec<Tensor> = inputs
            .split(';')
            .map(|text| match numbers(text)[..] {
                [value] => Tensor::scalar(value).unwrap(),
                _ if sparse && after_gradient => {
                    Tensor::vector(&numbers(text).iter().map(|&v| v as i64).collect::<Vec<_>>()).unwrap()
                }
                _ => {
                    after_gradient = true;
                    shaped(text)
                }
            })
            .collect();
        if op.ends_with("AdagradDA") {
            let step = inputs.last_mut().unwrap();
            *step = Tensor::scalar(step.scalar_value::<f32>().unwrap() as i64).unwrap();
        }
        let attrs = attrs.split(';').filter_map(|pair| pair.split_once('=')).map(|(n, v)| (n, v == "true")).collect();
        let variables = variables.split(';').map(shaped).collect();
        Case { op, attrs, variables, inputs, expected: expected.split(';').map(numbers).collect() }
    }

    fn op(&self, name: &str, dtype: DType) -> OpRun {
        let mut op = OpRun::new(name).attr_type("T", dtype);
        if name.contains("Sparse") {
            op = op.attr_type("Tindices", DType::Int64);
        }
        for &(attr, value) in &self.attrs {
            op = op.attr_bool(attr, value);
        }
        op
    }

    fn variables(&self) -> Vec<Arc<Variable>> {
        let variable = |tensor: &Tensor| {
            let variable = Variable::new("v", tensor.dtype());
            variable.write(tensor.clone());
            Arc::new(variable)
        };
        self.variables.iter().map(variable).collect()
    }

    fn check(&self, name: &str, variables: &[Arc<Variable>]) {
        for (i, (variable, expected)) in variables.iter().zip(&self.expected).enumerate() {
            let value = variable.read().unwrap();
            for (&got, &expected) in value.as_slice::<f32>().unwrap().iter().zip(expected) {
                let close = (got - expected).abs() <= 2e-6 * expected.abs().max(0.1);
                assert!(
                    close,
                    "{name} {:?}: variable {i} is {:?}, not {expected}",
                    self.attrs,
                    value.as_slice::<f32>()
                );
            }
        }
    }
}

fn handles(device: &Device, variables: &[Arc<Variable>]) -> Vec<Value> {
    let mut handles = Vec::new();
    for (i, variable) in variables.iter().enumerate() {
        let name = format!("v{i}");
        device.resources().create("localhost", &name, ResourceVariable(variable.clone())).unwrap();
        let handle = device.resource_handle::<ResourceVariable>("localhost", &name, Vec::new());
        handles.push(Value::Tensor(Tensor::from_handles(Shape::scalar(), vec![handle]).unwrap()));
    }
    handles
}

#[test]
fn two_runs_end_where_tensorflow_ends() {
    let registry = registry();
    let cases: Vec<Case> = TABLE.lines().skip(1).map(Case::parse).collect();
    assert!(cases.len() > 50);
    for case in &cases {
        let device = test_device();
        let variables = case.variables();
        let mut inputs = handles(&device, &variables);
        inputs.extend(case.inputs.iter().cloned().map(Value::Tensor));
        for _ in 0..2 {
            case.op(case.op, DType::Float).run_on(&registry, &device, inputs.clone()).unwrap();
        }
        case.check(case.op, &variables);

        let name = case.op.strip_prefix("Resource").unwrap();
        if registry.kernels_of(name).is_empty() {
            continue;
        }
        let variables = case.variables();
        let mut inputs: Vec<Value> = variables.iter().cloned().map(Value::Ref).collect();
        inputs.extend(case.inputs.iter().cloned().map(Value::Tensor));
        for _ in 0..2 {
            let outputs = case.op(name, DType::Float).run_on(&registry, &device, inputs.clone()).unwrap();
            assert!(matches!(&outputs[0], Value::Ref(out) if Arc::ptr_eq(out, &variables[0])));
        }
        case.check(name, &variables);
    }
}

#[test]
fn large_variables_are_moved_whole_and_values_that_were_read_stay() {
    let registry = registry();
    let n = 100_003;
    let make = || {
        let variable = Variable::new("v", DType::Float);
        variable.write(Tensor::vector(&vec![1f32; n]).unwrap());
        Arc::new(variable)
    };
    let (var, accum) = (make(), make());
    let before = var.read().unwrap();
    let gradient: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let inputs = vec![
        Value::Ref(var.clone()),
        Value::Ref(accum.clone()),
        Tensor::scalar(0.5f32).unwrap().into(),
        Tensor::vector(&gradient).unwrap().into(),
        Tensor::scalar(2f32).unwrap().into(),
    ];
    OpRun::new("ApplyMomentum").attr_type("T", DType::Float).run_values(&registry, inputs).unwrap();
    assert!(before.as_slice::<f32>().unwrap().iter().all(|&v| v == 1.0));
    let (var, accum) = (var.read().unwrap(), accum.read().unwrap());
    for (i, (&var, &accum)) in var.as_slice::<f32>().unwrap().iter().zip(accum.as_slice::<f32>().unwrap()).enumerate() {
        assert_eq!(accum, 2.0 + i as f32);
        assert_eq!(var, 1.0 - accum * 0.5);
    }
}

fn momentum(shapes: [&[usize]; 5]) -> (Result<()>, Vec<Tensor>) {
    let ones = |dims: &[usize]| {
        let shape = Shape::from_dims(dims).unwrap();
        Tensor::from_slice(shape.clone(), &vec![1f32; shape.num_elements()]).unwrap()
    };
    let variables: Vec<Arc<Variable>> = shapes[..2]
        .iter()
        .map(|dims| {
            let variable = Variable::new("v", DType::Float);
            variable.write(ones(dims));
            Arc::new(variable)
        })
        .collect();
    let mut inputs: Vec<Value> = variables.iter().cloned().map(Value::Ref).collect();
    inputs.extend(shapes[2..].iter().map(|dims| Value::Tensor(ones(dims))));
    let op = OpRun::new("ApplyMomentum").attr_type("T", DType::Float);
    let result = op.run_values(&registry(), inputs).map(|_| ());
    (result, variables.iter().map(|v| v.read().unwrap()).collect())
}

#[test]
fn shapes_that_do_not_fit_change_nothing() {
    momentum([&[4, 16], &[4, 16], &[], &[4, 16], &[]]).0.unwrap();
    for (shapes, text) in [
        ([&[4, 16][..], &[4, 16], &[], &[4], &[]], "var and grad do not have the same shape[4,16] [4]"),
        ([&[4, 16], &[4, 16], &[], &[], &[]], "var and grad do not have the same shape[4,16] []"),
        ([&[4, 16], &[16, 4], &[], &[4, 16], &[]], "var and accum do not have the same shape[4,16] [16,4]"),
        ([&[4, 16], &[4, 16], &[1], &[4, 16], &[]], "lr is not a scalar: [1]"),
        ([&[4, 16], &[4, 16], &[], &[4, 16], &[2]], "momentum is not a scalar: [2]"),
    ] {
        let (result, values) = momentum(shapes);
        assert_eq!(result.unwrap_err().message(), text);
        assert!(values.iter().all(|v| v.as_slice::<f32>().unwrap().iter().all(|&x| x == 1.0)));
    }
}

#[test]
fn some_errors_have_a_space_before_the_colon_as_in_tensorflow() {
    let number = |dims: &[usize]| {
        let shape = Shape::from_dims(dims).unwrap();
        Value::Tensor(Tensor::from_slice(shape, &[1f32]).unwrap())
    };
    let variables = || {
        (0..3).map(|_| {
            let variable = Variable::new("v", DType::Float);
            variable.write(Tensor::scalar(1f32).unwrap());
            Value::Ref(Arc::new(variable))
        })
    };
    // lr stands third among the scalars of Adam, and first among those of RMSProp.
    for (op, scalars, lr) in [("ApplyAdam", 6, 2), ("ApplyRMSProp", 4, 0)] {
        let mut inputs: Vec<Value> = variables().collect();
        inputs.extend((0..scalars).map(|i| number(if i == lr { &[1] } else { &[] })));
        inputs.push(number(&[]));
        let error = OpRun::new(op).attr_type("T", DType::Float).run_values(&registry(), inputs).unwrap_err();
        assert_eq!(error.message(), "lr is not a scalar : [1]", "{op}");
    }
}

#[test]
fn a_variable_without_a_value_and_one_that_stands_twice_are_errors() {
    let registry = registry();
    let device = test_device();
    let scalar = || Value::Tensor(Tensor::scalar(1f32).unwrap());
    let empty = Arc::new(Variable::new("empty", DType::Float));
    let op = OpRun::new("ApplyMomentum").attr_type("T", DType::Float);
    let full = Arc::new(Variable::new("full", DType::Float));
    full.write(Tensor::scalar(1f32).unwrap());
    let run = |var: &Arc<Variable>, accum: &Arc<Variable>| {
        let inputs = vec![Value::Ref(var.clone()), Value::Ref(accum.clone()), scalar(), scalar(), scalar()];
        op.run_on(&registry, &device, inputs).unwrap_err()
    };
    assert_eq!(run(&full, &empty).message(), "Attempting to use uninitialized value empty");
    assert_eq!(run(&full, &full).message(), "inputs 0 and 1 are the same variable full");

    let handle = device.resource_handle::<ResourceVariable>("localhost", "gone", Vec::new());
    let handle = Value::Tensor(Tensor::from_handles(Shape::scalar(), vec![handle]).unwrap());
    let descent = OpRun::new("ResourceApplyGradientDescent").attr_type("T", DType::Float);
    let error = descent.run_on(&registry, &device, vec![handle, scalar(), scalar()]).unwrap_err();
    assert!(error.message().starts_with("Invalid variable reference."), "{error}");
}

#[test]
fn rows_outside_the_variable_change_nothing() {
    let registry = registry();
    let matrix = || Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &[1f32; 4]).unwrap();
    let run = |indices: &[i32], gradient: Tensor| {
        let variables: Vec<Arc<Variable>> = (0..2)
            .map(|_| {
                let variable = Variable::new("v", DType::Float);
                variable.write(matrix());
                Arc::new(variable)
            })
            .collect();
        let mut inputs: Vec<Value> = variables.iter().cloned().map(Value::Ref).collect();
        inputs.push(Tensor::scalar(1f32).unwrap().into());
        inputs.push(gradient.into());
        inputs.push(Tensor::vector(indices).unwrap().into());
        let op = OpRun::new("SparseApplyAdagrad").attr_type("T", DType::Float).attr_type("Tindices", DType::Int32);
        let error = op.run_values(&registry, inputs).unwrap_err();
        assert_eq!(variables[0].read().unwrap().as_slice::<f32>().unwrap(), [1.0; 4]);
        error.message().to_owned()
    };
    assert_eq!(run(&[0, 2], matrix()), "Index 2 at offset 1 in indices is out of range");
    assert_eq!(run(&[-1, 0], matrix()), "Index -1 at offset 0 in indices is out of range");
    assert_eq!(run(&[0], matrix()), "grad must be the same size as indices in the first dimension.");
    let narrow = Tensor::from_slice(Shape::new(&[1, 1]).unwrap(), &[1f32]).unwrap();
    assert_eq!(run(&[0], narrow), "var and grad must match in dimension 1");
}
