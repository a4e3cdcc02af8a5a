use super::*;
use graphmill_runtime::testing::OpRun;
use graphmill_tensor::Shape;

fn registry() -> Registry {
    let mut registry = Registry::new();
    register(&mut registry);
    registry
}

/// Numbers between -1 and 1 without a pattern that the sizes could hide.
fn ramp(dims: &[usize], start: usize) -> Tensor {
    let shape = Shape::from_dims(dims).unwrap();
    let values: Vec<f32> = (0..shape.num_elements()).map(|i| ((i + start) * 37 % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

const BATCH: usize = 2;
const INPUT: usize = 3;
const CELL: usize = 2;
const TIME: usize = 3;

fn sequence_inputs(steps: i64) -> Vec<Tensor> {
    vec![
        Tensor::scalar(steps).unwrap(),
        ramp(&[TIME, BATCH, INPUT], 0),
        ramp(&[BATCH, CELL], 5),
        ramp(&[BATCH, CELL], 11),
        ramp(&[INPUT + CELL, 4 * CELL], 17),
        ramp(&[CELL], 1),
        ramp(&[CELL], 2),
        ramp(&[CELL], 3),
        ramp(&[4 * CELL], 23),
    ]
}

fn sequence(inputs: Vec<Tensor>) -> Vec<Tensor> {
    let op = OpRun::new("BlockLSTM").attr_type("T", DType::Float).attr_bool("use_peephole", true);
    op.attr_float("cell_clip", 0.0).run(&registry(), inputs).unwrap()
}

/// The sum of all outputs of the cells, which has gradients of 1 there.
fn total(inputs: Vec<Tensor>) -> f64 {
    sequence(inputs)[6].as_slice::<f32>().unwrap().iter().map(|&x| f64::from(x)).sum()
}

#[test]
fn a_sequence_is_its_steps() {
    let inputs = sequence_inputs(2);
    let outputs = sequence(inputs.clone());
    let (mut cs, mut h) = (inputs[2].clone(), inputs[3].clone());
    for t in 0..2 {
        let x = inputs[1].as_slice::<f32>().unwrap()[t * BATCH * INPUT..(t + 1) * BATCH * INPUT].to_vec();
        let x = Tensor::from_slice(Shape::from_dims(&[BATCH, INPUT]).unwrap(), &x).unwrap();
        let mut step = vec![x, cs, h];
        step.extend_from_slice(&inputs[4..]);
        let op = OpRun::new("LSTMBlockCell").attr_type("T", DType::Float).attr_bool("use_peephole", true);
        let results = op.attr_float("cell_clip", 0.0).run(&registry(), step).unwrap();
        for (all, one) in outputs.iter().zip(&results) {
            let part = &all.as_slice::<f32>().unwrap()[t * BATCH * CELL..(t + 1) * BATCH * CELL];
            assert_eq!(part, one.as_slice::<f32>().unwrap());
        }
        (cs, h) = (results[1].clone(), results[6].clone());
    }
    assert!(outputs[6].as_slice::<f32>().unwrap()[2 * BATCH * CELL..].iter().all(|&x| x == 0.0));
}

#[test]
fn gradients_are_the_slopes() {
    let inputs = sequence_inputs(3);
    let mut with_outputs = inputs.clone();
    with_outputs.extend(sequence(inputs.clone()));
    let ones =
        Tensor::from_slice(Shape::from_dims(&[TIME, BATCH, CELL]).unwrap(), &[1f32; TIME * BATCH * CELL]).unwrap();
    with_outputs.push(Tensor::zeros(DType::Float, ones.shape().clone()).unwrap());
    with_outputs.push(ones);
    let op = OpRun::new("BlockLSTMGrad").attr_type("T", DType::Float).attr_bool("use_peephole", true);
    let gradients = op.run(&registry(), with_outputs).unwrap();
    for (at, gradient) in gradients.iter().enumerate() {
        let expected = gradient.as_slice::<f32>().unwrap();
        for element in 0..expected.len() {
            let moved = |by: f32| {
                let mut inputs = inputs.clone();
                let mut values = inputs[at + 1].as_slice::<f32>().unwrap().to_vec();
                values[element] += by;
                inputs[at + 1] = Tensor::from_slice(inputs[at + 1].shape().clone(), &values).unwrap();
                total(inputs)
            };
            let slope = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!((slope - f64::from(expected[element])).abs() < 2e-3, "input {at}, element {element}: {slope}");
        }
    }
}

#[test]
fn lengths_are_checked() {
    let run = |steps| OpRun::new("BlockLSTM").attr_type("T", DType::Float).run(&registry(), sequence_inputs(steps));
    assert!(run(0).is_ok());
    assert!(run(4).unwrap_err().message().contains("between 0 and the number of time steps 3, got 4"));
    assert!(run(-1).is_err());
}

#[test]
fn empty_states_are_not_counted_through() {
    let endless = 1i64 << 40;
    let empty = |dims: &[i64]| Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap();
    let mut inputs = vec![Tensor::scalar(endless).unwrap(), empty(&[endless, 0, 1])];
    inputs.extend([empty(&[0, 1]), empty(&[0, 1]), empty(&[2, 4])]);
    inputs.extend([empty(&[1]), empty(&[1]), empty(&[1]), empty(&[4])]);
    assert_eq!(sequence(inputs)[6].num_elements(), 0);
}
