use graphmill_runtime::Registry;
use graphmill_runtime::testing::OpRun;
use graphmill_tensor::{Result, Shape, Tensor, bf16};

fn run(op: OpRun, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let mut registry = Registry::new();
    super::register(&mut registry);
    op.attr_type("T", inputs[inputs.len() - 1].dtype()).run(&registry, inputs)
}

fn op(name: &str, ksize: &[i64], strides: &[i64], padding: &str) -> OpRun {
    OpRun::new(name).attr_ints("ksize", ksize).attr_ints("strides", strides).attr_str("padding", padding)
}

fn image(dims: &[i64], values: &[f32]) -> Tensor {
    Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
}

fn count(dims: &[i64]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let values: Vec<f32> = (0..shape.num_elements()).map(|v| v as f32).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

fn floats(tensor: &Tensor) -> &[f32] {
    tensor.as_slice().unwrap()
}

#[test]
fn maxima_of_windows_channels_and_either_format() {
    let two = [1, 2, 2, 1];
    let plain = run(op("MaxPool", &two, &two, "VALID"), vec![count(&[1, 4, 4, 1])]).unwrap();
    assert_eq!(floats(&plain[0]), &[5.0, 7.0, 13.0, 15.0]);
    let second = op("MaxPool", &[1, 1, 2, 2], &[1, 1, 2, 2], "VALID").attr_str("data_format", "NCHW");
    assert_eq!(floats(&run(second, vec![count(&[1, 1, 4, 4])]).unwrap()[0]), &[5.0, 7.0, 13.0, 15.0]);
    let same = run(op("MaxPool", &[1, 3, 3, 1], &two, "SAME"), vec![count(&[1, 4, 4, 1])]).unwrap();
    assert_eq!(floats(&same[0]), &[10.0, 11.0, 14.0, 15.0]);
    let explicit =
        op("MaxPool", &[1, 3, 3, 1], &two, "EXPLICIT").attr_ints("explicit_paddings", &[0, 0, 1, 1, 2, 1, 0, 0]);
    assert_eq!(floats(&run(explicit, vec![count(&[1, 4, 4, 1])]).unwrap()[0]), &[4.0, 6.0, 7.0, 12.0, 14.0, 15.0]);
    let depth = run(op("MaxPool", &[1, 1, 1, 2], &[1, 1, 1, 2], "VALID"), vec![count(&[1, 1, 2, 4])]).unwrap();
    assert_eq!(floats(&depth[0]), &[1.0, 3.0, 5.0, 7.0]);
}

#[test]
fn maxima_pass_over_nan() {
    let two = [1, 2, 2, 1];
    let input = image(&[1, 2, 4, 1], &[0.0, f32::NAN, f32::NAN, f32::NAN, 4.0, 1.0, f32::NAN, f32::NAN]);
    let output = run(op("MaxPool", &two, &two, "VALID"), vec![input.clone()]).unwrap();
    assert_eq!(floats(&output[0]), &[4.0, f32::MIN]);
    let output = run(op("MaxPoolWithArgmax", &two, &two, "VALID"), vec![input]).unwrap();
    assert_eq!(floats(&output[0])[0], 4.0);
    assert!(floats(&output[0])[1].is_nan());
    assert_eq!(output[1].as_slice::<i64>().unwrap(), &[4, 2]);
    let low = [bf16::NEG_INFINITY; 4];
    let input = Tensor::from_slice(Shape::new(&[1, 2, 2, 1]).unwrap(), &low).unwrap();
    let output = run(op("MaxPool", &two, &two, "VALID"), vec![input]).unwrap();
    assert_eq!(output[0].as_slice::<bf16>().unwrap(), &[bf16::NEG_INFINITY]);
}

#[test]
fn positions_count_within_the_image_or_the_batch() {
    let two = [1, 2, 2, 1];
    let input = count(&[2, 4, 4, 1]);
    let within = run(op("MaxPoolWithArgmax", &two, &two, "VALID"), vec![input.clone()]).unwrap();
    assert_eq!(within[1].as_slice::<i64>().unwrap(), &[5, 7, 13, 15, 5, 7, 13, 15]);
    let whole = op("MaxPoolWithArgmax", &two, &two, "VALID").attr_bool("include_batch_in_index", true);
    let whole = run(whole, vec![input.clone()]).unwrap();
    assert_eq!(whole[1].as_slice::<i64>().unwrap(), &[5, 7, 13, 15, 21, 23, 29, 31]);
    let mut registry = Registry::new();
    super::register(&mut registry);
    let back = op("MaxPoolGradWithArgmax", &two, &two, "VALID")
        .attr_type("T", input.dtype())
        .attr_type("Targmax", within[1].dtype())
        .run(&registry, vec![input, within[0].clone(), within[1].clone()])
        .unwrap();
    let back = floats(&back[0]);
    assert_eq!((back[5], back[31], back.iter().sum::<f32>()), (5.0, 31.0, 144.0));
}

#[test]
fn gradients_go_to_the_first_of_equals() {
    let two = [1, 2, 2, 1];
    let mut ones = [1.0; 16];
    ones[2] = f32::NAN;
    ones[5] = f32::NAN;
    let (input, output) = (image(&[1, 4, 4, 1], &ones), image(&[1, 2, 2, 1], &[9.0; 4]));
    let gradient = image(&[1, 2, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
    let expected = [1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let inputs = vec![input.clone(), output.clone(), gradient.clone()];
    let result = run(op("MaxPoolGrad", &two, &two, "VALID"), inputs).unwrap();
    assert_eq!(floats(&result[0]), &expected);
    let wide = image(&[1, 3, 2, 1], &[9.0; 6]);
    let error = run(op("MaxPoolGrad", &two, &two, "VALID"), vec![input.clone(), wide, gradient]).unwrap_err();
    assert_eq!(error.message(), "Expected orig_output shape to be [1,2,2,1], but got [1,3,2,1]");
    let result = run(op("MaxPoolGradGrad", &two, &two, "VALID"), vec![input, output, count(&[1, 4, 4, 1])]).unwrap();
    assert_eq!(floats(&result[0]), &[0.0, 2.0, 8.0, 10.0]);
}

#[test]
fn overlapping_windows_add_up() {
    let input = image(&[1, 1, 3, 2], &[0.0, 5.0, 9.0, 4.0, 1.0, 4.0]);
    let (output, gradient) = (image(&[1, 1, 2, 2], &[0.0; 4]), image(&[1, 1, 2, 2], &[1.0, 2.0, 4.0, 8.0]));
    let sizes = |v: &[i32]| Tensor::vector(v).unwrap();
    let inputs = vec![input, output, gradient, sizes(&[1, 1, 2, 1]), sizes(&[1, 1, 1, 1])];
    let mut registry = Registry::new();
    super::register(&mut registry);
    let op = OpRun::new("MaxPoolGradV2").attr_type("T", inputs[0].dtype()).attr_str("padding", "VALID");
    let result = op.run(&registry, inputs).unwrap();
    assert_eq!(floats(&result[0]), &[0.0, 2.0, 5.0, 8.0, 0.0, 0.0]);
}

#[test]
fn averages_leave_padding_out_and_share_gradients_alike() {
    let (two, one) = ([1, 2, 2, 1], [1, 1, 1, 1]);
    let output = run(op("AvgPool", &two, &one, "SAME"), vec![count(&[1, 3, 3, 1])]).unwrap();
    assert_eq!(floats(&output[0]), &[2.0, 3.0, 3.5, 5.0, 6.0, 6.5, 6.5, 7.5, 8.0]);
    let second = op("AvgPool", &[1, 1, 2, 2], &one, "VALID").attr_str("data_format", "NCHW");
    assert_eq!(floats(&run(second, vec![count(&[1, 1, 3, 3])]).unwrap()[0]), &[2.0, 3.0, 5.0, 6.0]);
    let sizes = Tensor::vector(&[1i32, 3, 3, 1]).unwrap();
    let ones = image(&[1, 3, 3, 1], &[1.0; 9]);
    let result = run(op("AvgPoolGrad", &two, &one, "SAME"), vec![sizes, ones]).unwrap();
    assert_eq!(floats(&result[0]), &[0.25, 0.5, 0.75, 0.5, 1.0, 1.5, 0.75, 1.5, 2.25]);
}

#[test]
fn bad_windows_are_refused_with_tensorflows_words() {
    let error = |ksize: &[i64], strides: &[i64], dims: &[i64]| {
        run(op("MaxPool", ksize, strides, "VALID"), vec![count(dims)]).unwrap_err().message().to_owned()
    };
    let two = [1, 2, 2, 1];
    assert_eq!(error(&two, &two, &[4, 4, 1]), "Input must be 4 or 5-dimensional");
    assert_eq!(error(&[2, 2, 2, 1], &two, &[1, 4, 4, 1]), "Pooling is not yet supported on the batch dimension.");
    assert!(error(&[1, 0, 1, 1], &two, &[1, 4, 4, 1]).starts_with("Sliding window ksize must be positive."));
    assert!(
        error(&[1, 6, 6, 1], &[1, 1, 1, 1], &[1, 4, 4, 1]).starts_with("Computed output size would be negative: -1")
    );
    assert!(error(&[1, 1, 1, 2], &[1, 1, 1, 1], &[1, 1, 1, 4]).contains("equal the depth stride"));
    assert!(error(&[1, 1, 1, 2], &[1, 1, 1, 2], &[1, 1, 1, 3]).contains("evenly divide"));
    let big = op("MaxPool", &two, &two, "EXPLICIT").attr_ints("explicit_paddings", &[0, 0, 2, 1, 1, 1, 0, 0]);
    let error = run(big, vec![count(&[1, 4, 4, 1])]).unwrap_err();
    assert_eq!(error.message(), "Top padding 2 needs to be smaller than the window size 2");
    assert_eq!(run(op("MaxPool", &two, &two, "VALID"), vec![count(&[0, 4, 4, 3])]).unwrap()[0].num_elements(), 0);
}
