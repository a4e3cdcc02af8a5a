use graphmill_runtime::Registry;
use graphmill_runtime::testing::OpRun;
use graphmill_tensor::{DType, QInt32, QUInt8, Result, Shape, Tensor};

fn run(op: OpRun, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    op.run(&registry, inputs)
}

fn number(value: f32) -> Tensor {
    Tensor::scalar(value).unwrap()
}

fn bytes(dims: &[usize], values: &[u8]) -> Tensor {
    let values: Vec<QUInt8> = values.iter().map(|v| QUInt8(*v)).collect();
    Tensor::from_slice(Shape::from_dims(dims).unwrap(), &values).unwrap()
}

fn wide(values: &[i32]) -> Tensor {
    let values: Vec<QInt32> = values.iter().map(|v| QInt32(*v)).collect();
    Tensor::from_slice(Shape::vector(values.len()), &values).unwrap()
}

/// Values of TensorFlow 2.21, whose levels of 32 bits go through single precision when resized.
#[test]
fn levels_of_32_bits_are_resized_as_tensorflow_does() {
    let levels = [-148_214_059, 7, 1_234_567_890, -2_000_000_000].map(QInt32);
    let image = Tensor::from_slice(Shape::from_dims(&[1, 2, 2, 1]).unwrap(), &levels).unwrap();
    let size = Tensor::vector(&[3, 3]).unwrap();
    let op = OpRun::new("QuantizedResizeBilinear").attr_type("T", DType::QInt32);
    let outputs = run(op, vec![image, size, number(-1.0), number(1.0)]).unwrap();
    let got: Vec<i32> = outputs[0].as_slice::<QInt32>().unwrap().iter().map(|x| x.0).collect();
    let expected = [
        -148_214_063,
        -49_404_679,
        7,
        773_640_630,
        -631_008_744,
        -1_333_333_370,
        1_234_567_936,
        -921_810_751,
        -1_999_999_999,
    ];
    assert_eq!(got, expected);
}

#[test]
fn the_range_in_use_is_filled() {
    let op = OpRun::new("QuantizeDownAndShrinkRange")
        .attr_type("Tinput", DType::QInt32)
        .attr_type("out_type", DType::QUInt8);
    let outputs = run(op, vec![wide(&[0, 1 << 28, 1 << 29]), number(-8.0), number(8.0)]).unwrap();
    let levels: Vec<u8> = outputs[0].as_slice::<QUInt8>().unwrap().iter().map(|x| x.0).collect();
    assert_eq!(levels, [0, 128, 255]);
    let range = |i: usize| outputs[i].as_slice::<f32>().unwrap()[0];
    assert_eq!(range(1), 0.0);
    assert!((range(2) - 2.0).abs() < 1e-5, "{}", range(2));
}

#[test]
fn sums_and_rectifiers_know_where_zero_is() {
    // Of -1 to 1, the levels 0, 127.5 and 255 are the ends and the middle.
    let add = OpRun::new("QuantizedAdd").attr_type("T1", DType::QUInt8).attr_type("T2", DType::QUInt8);
    let range = || [number(-1.0), number(1.0)];
    let mut inputs = vec![bytes(&[2], &[0, 255]), bytes(&[2], &[255, 255])];
    inputs.extend(range());
    inputs.extend(range());
    let outputs = run(add.attr_type("Toutput", DType::QInt32), inputs).unwrap();
    let sums = outputs[0].as_slice::<QInt32>().unwrap();
    let high = f64::from(outputs[2].as_slice::<f32>().unwrap()[0]);
    let real = |level: i32| f64::from(level) / 2f64.powi(31) * high;
    assert!(real(sums[0].0).abs() < 1e-2 && (real(sums[1].0) - 2.0).abs() < 1e-2, "{sums:?}");
    let relu = OpRun::new("QuantizedRelu").attr_type("Tinput", DType::QUInt8).attr_type("out_type", DType::QUInt8);
    let mut inputs = vec![bytes(&[3], &[0, 100, 200])];
    inputs.extend(range());
    let outputs = run(relu, inputs).unwrap();
    let levels: Vec<u8> = outputs[0].as_slice::<QUInt8>().unwrap().iter().map(|x| x.0).collect();
    assert_eq!(levels, [128, 128, 200]);
}

#[test]
fn convolutions_pad_with_zero() {
    let op = OpRun::new("QuantizedConv2D")
        .attr_type("Tinput", DType::QUInt8)
        .attr_type("Tfilter", DType::QUInt8)
        .attr_ints("strides", &[1, 1, 1, 1])
        .attr_str("padding", "SAME");
    // Ranges of 0 to 255: levels are the numbers themselves.
    let mut inputs = vec![bytes(&[1, 2, 2, 1], &[1, 2, 3, 4]), bytes(&[2, 2, 1, 1], &[1, 10, 100, 0])];
    inputs.extend([number(0.0), number(255.0), number(0.0), number(255.0)]);
    let outputs = run(op, inputs.clone()).unwrap();
    let levels: Vec<i32> = outputs[0].as_slice::<QInt32>().unwrap().iter().map(|x| x.0).collect();
    assert_eq!(levels, [321, 402, 43, 4]);
    inputs[2] = Tensor::vector(&[0f32, 0.0]).unwrap();
    let op = OpRun::new("QuantizedConv2D")
        .attr_type("Tinput", DType::QUInt8)
        .attr_type("Tfilter", DType::QUInt8)
        .attr_ints("strides", &[1, 2, 1, 1])
        .attr_str("padding", "SAME");
    assert!(run(op, inputs).unwrap_err().message().contains("equal length strides"));
}
