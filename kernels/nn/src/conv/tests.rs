use graphmill_runtime::Registry;
use graphmill_runtime::testing::OpRun;
use graphmill_tensor::{DType, Result, Shape, Tensor, bf16, f16};

/// A convolution, and what it should give, computed one product at a time in `f64`.
#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    input: (usize, usize),
    in_depth: usize,
    filter: (usize, usize),
    groups: usize,
    out_depth: usize,
    stride: (usize, usize),
    dilation: (usize, usize),
    padding: &'static str,
}

const PLAIN: Case = Case {
    batch: 2,
    input: (9, 8),
    in_depth: 4,
    filter: (3, 3),
    groups: 1,
    out_depth: 6,
    stride: (1, 1),
    dilation: (1, 1),
    padding: "SAME",
};

const CASES: &[Case] = &[
    PLAIN,
    Case { stride: (2, 1), ..PLAIN },
    Case { stride: (2, 3), padding: "VALID", ..PLAIN },
    Case { dilation: (2, 1), ..PLAIN },
    Case { dilation: (1, 3), stride: (2, 2), padding: "VALID", ..PLAIN },
    Case { groups: 2, ..PLAIN },
    Case { groups: 2, filter: (1, 1), ..PLAIN },
    Case { filter: (1, 1), in_depth: 1, out_depth: 1, ..PLAIN },
    Case { filter: (5, 4), padding: "EXPLICIT", ..PLAIN },
    Case { filter: (2, 1), padding: "EXPLICIT", stride: (3, 2), ..PLAIN },
    Case { input: (4, 5), filter: (2, 2), dilation: (1 << 30, 1 << 29), ..PLAIN },
    Case { filter: (1, 1), stride: (2, 2), in_depth: 20, out_depth: 36, ..PLAIN },
    Case { filter: (4, 3), stride: (3, 2), dilation: (2, 3), ..PLAIN },
    Case { filter: (3, 3), stride: (2, 2), in_depth: 256, out_depth: 40, ..PLAIN },
    Case { batch: 3, input: (28, 28), in_depth: 1, filter: (5, 5), out_depth: 32, ..PLAIN },
    Case { batch: 3, input: (14, 14), in_depth: 32, filter: (5, 5), out_depth: 64, ..PLAIN },
    Case { input: (7, 7), in_depth: 48, out_depth: 40, ..PLAIN },
    Case { input: (12, 33), in_depth: 3, out_depth: 16, filter: (7, 7), stride: (2, 2), ..PLAIN },
    Case { input: (5, 17), in_depth: 17, out_depth: 33, ..PLAIN },
    Case { input: (3, 3), filter: (3, 3), padding: "VALID", in_depth: 20, out_depth: 10, ..PLAIN },
];

const EXPLICIT: [i64; 8] = [0, 0, 2, 1, 0, 3, 0, 0];

impl Case {
    fn padded(&self, size: usize, window: usize, stride: usize, dilation: usize, row: bool) -> (usize, usize) {
        let effective = (window - 1) * dilation + 1;
        match self.padding {
            "VALID" => ((size - effective) / stride + 1, 0),
            "SAME" => {
                let output = size.div_ceil(stride);
                (output, ((output - 1) * stride + effective).saturating_sub(size) / 2)
            }
            _ => {
                let at = if row { 2 } else { 4 };
                let (before, after) = (EXPLICIT[at] as usize, EXPLICIT[at + 1] as usize);
                ((size + before + after - effective) / stride + 1, before)
            }
        }
    }

    fn rows(&self) -> (usize, usize) {
        self.padded(self.input.0, self.filter.0, self.stride.0, self.dilation.0, true)
    }

    fn cols(&self) -> (usize, usize) {
        self.padded(self.input.1, self.filter.1, self.stride.1, self.dilation.1, false)
    }

    fn input_dims(&self) -> [usize; 4] {
        [self.batch, self.input.0, self.input.1, self.in_depth]
    }

    fn filter_dims(&self) -> [usize; 4] {
        [self.filter.0, self.filter.1, self.in_depth / self.groups, self.out_depth]
    }

    fn output_dims(&self) -> [usize; 4] {
        [self.batch, self.rows().0, self.cols().0, self.out_depth]
    }

    /// Calls `f` with the flat positions in input, filter and output of every product.
    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        let ((out_rows, top), (out_cols, left)) = (self.rows(), self.cols());
        let (patch, per_group) = (self.in_depth / self.groups, self.out_depth / self.groups);
        let pixels =
            (0..self.batch).flat_map(|n| (0..out_rows * out_cols).map(move |p| (n, p / out_cols, p % out_cols)));
        for (n, y, x) in pixels {
            for tap in 0..self.filter.0 * self.filter.1 {
                let (i, j) = (tap / self.filter.1, tap % self.filter.1);
                let from_y = (y * self.stride.0 + i * self.dilation.0).checked_sub(top).filter(|&v| v < self.input.0);
                let from_x = (x * self.stride.1 + j * self.dilation.1).checked_sub(left).filter(|&v| v < self.input.1);
                let (Some(from_y), Some(from_x)) = (from_y, from_x) else { continue };
                for c in 0..patch {
                    for o in 0..self.out_depth {
                        let channel = o / per_group * patch + c;
                        let from = ((n * self.input.0 + from_y) * self.input.1 + from_x) * self.in_depth + channel;
                        let to = ((n * out_rows + y) * out_cols + x) * self.out_depth + o;
                        f(from, (tap * patch + c) * self.out_depth + o, to);
                    }
                }
            }
        }
    }

    fn op(&self, name: &str, format: &str) -> OpRun {
        let (s, d) = (self.stride, self.dilation);
        let spread = |a: usize, b: usize| match format {
            "NHWC" => [1, a as i64, b as i64, 1],
            _ => [1, 1, a as i64, b as i64],
        };
        let op = OpRun::new(name)
            .attr_ints("strides", &spread(s.0, s.1))
            .attr_ints("dilations", &spread(d.0, d.1))
            .attr_str("padding", self.padding)
            .attr_str("data_format", format);
        let [_, _, top, bottom, left, right, ..] = EXPLICIT;
        match (self.padding, format) {
            ("EXPLICIT", "NHWC") => op.attr_ints("explicit_paddings", &EXPLICIT),
            ("EXPLICIT", _) => op.attr_ints("explicit_paddings", &[0, 0, 0, 0, top, bottom, left, right]),
            _ => op,
        }
    }
}

/// Small whole numbers that repeat with different periods, so that sums are exact in every type.
fn values(dims: [usize; 4], period: usize) -> Vec<f64> {
    (0..dims.iter().product()).map(|v: usize| ((v * 7 % period) as f64) - (period / 2) as f64).collect()
}

fn tensor(dims: [usize; 4], values: &[f64], dtype: DType) -> Tensor {
    let shape = Shape::from_dims(&dims).unwrap();
    match dtype {
        DType::Float => Tensor::from_slice(shape, &values.iter().map(|&v| v as f32).collect::<Vec<_>>()),
        DType::Double => Tensor::from_slice(shape, values),
        DType::Int32 => Tensor::from_slice(shape, &values.iter().map(|&v| v as i32).collect::<Vec<_>>()),
        DType::Half => Tensor::from_slice(shape, &values.iter().map(|&v| f16::from_f64(v)).collect::<Vec<_>>()),
        _ => Tensor::from_slice(shape, &values.iter().map(|&v| bf16::from_f64(v)).collect::<Vec<_>>()),
    }
    .unwrap()
}

/// The values, and each rounded to the type as the result must be.
fn same(result: &Tensor, expected: &[f64]) -> bool {
    let rounded = tensor([1, 1, 1, expected.len()], expected, result.dtype());
    result.as_bytes() == rounded.as_bytes()
}

fn to_nchw(dims: [usize; 4], values: &[f64]) -> ([usize; 4], Vec<f64>) {
    let [n, h, w, c] = dims;
    let at = |i: usize| ((i / (c * h * w)) * h * w + i % (h * w)) * c + i / (h * w) % c;
    ([n, c, h, w], (0..values.len()).map(|i| values[at(i)]).collect())
}

fn run(op: OpRun, dtype: DType, inputs: Vec<Tensor>) -> Result<Tensor> {
    let mut registry = Registry::new();
    super::register(&mut registry);
    op.attr_type("T", dtype).run(&registry, inputs).map(|mut outputs| outputs.remove(0))
}

fn sizes(dims: [usize; 4]) -> Tensor {
    Tensor::vector(&dims.map(|d| d as i32)).unwrap()
}

fn check(case: &Case, dtype: DType, format: &str) {
    let (input, filter) = (values(case.input_dims(), 5), values(case.filter_dims(), 3));
    let gradient = values(case.output_dims(), 7);
    let mut output = vec![0.0; gradient.len()];
    let (mut d_input, mut d_filter) = (vec![0.0; input.len()], vec![0.0; filter.len()]);
    case.each(|i, f, o| {
        output[o] += input[i] * filter[f];
        d_input[i] += filter[f] * gradient[o];
        d_filter[f] += input[i] * gradient[o];
    });
    let image = |dims: [usize; 4], values: &[f64]| match format {
        "NHWC" => (dims, values.to_vec()),
        _ => to_nchw(dims, values),
    };
    let (input_dims, input) = image(case.input_dims(), &input);
    let (gradient_dims, gradient) = image(case.output_dims(), &gradient);
    let input = tensor(input_dims, &input, dtype);
    let filter = tensor(case.filter_dims(), &filter, dtype);
    let gradient = tensor(gradient_dims, &gradient, dtype);
    let result = run(case.op("Conv2D", format), dtype, vec![input.clone(), filter.clone()]).unwrap();
    assert!(same(&result, &image(case.output_dims(), &output).1), "forward {dtype} {case:?}");
    let inputs = vec![sizes(input_dims), filter, gradient.clone()];
    let result = run(case.op("Conv2DBackpropInput", format), dtype, inputs).unwrap();
    assert!(same(&result, &image(case.input_dims(), &d_input).1), "input {dtype} {case:?}");
    if dtype != DType::Int32 {
        let inputs = vec![input, sizes(case.filter_dims()), gradient];
        let result = run(case.op("Conv2DBackpropFilter", format), dtype, inputs).unwrap();
        assert!(same(&result, &d_filter), "filter {dtype} {case:?}");
    }
}

#[test]
fn every_shape_agrees_with_the_definition() {
    for case in CASES {
        check(case, DType::Float, "NHWC");
        check(case, DType::BFloat16, "NHWC");
        if case.groups == 1 && case.dilation == (1, 1) {
            for dtype in [DType::Double, DType::Half, DType::Int32] {
                check(case, dtype, "NHWC");
            }
        }
    }
}

#[test]
fn channels_may_come_second_in_some_types() {
    for case in &CASES[..9] {
        check(case, DType::Float, "NCHW");
    }
    check(&PLAIN, DType::BFloat16, "NCHW");
    let error = |name: &str, inputs: Vec<Tensor>| {
        run(PLAIN.op(name, "NCHW"), DType::Double, inputs).unwrap_err().message().to_owned()
    };
    let image = tensor([1, 1, 1, 1], &[1.0], DType::Double);
    let text =
        "The Conv2D op currently only supports the NHWC tensor format on the CPU. The op was given the format: NCHW";
    assert_eq!(error("Conv2D", vec![image.clone(), image.clone()]), text);
    let inputs = vec![sizes([1; 4]), image.clone(), image];
    assert_eq!(error("Conv2DBackpropInput", inputs), "Conv2DCustomBackpropInputOp only supports NHWC.");
}

#[test]
fn nothing_in_gives_zeros_out() {
    let empty = |dims: [usize; 4]| tensor(dims, &vec![1.0; dims.iter().product()], DType::Float);
    let forward = |input, filter| run(PLAIN.op("Conv2D", "NHWC"), DType::Float, vec![empty(input), empty(filter)]);
    assert_eq!(forward([0, 3, 3, 3], [1, 1, 3, 2]).unwrap().shape().dims(), [0, 3, 3, 2]);
    assert_eq!(forward([1, 3, 3, 3], [1, 1, 3, 0]).unwrap().shape().dims(), [1, 3, 3, 0]);
    let message = forward([1, 3, 3, 3], [0, 1, 3, 2]).unwrap_err().message().to_owned();
    assert_eq!(message, "filter must not have zero elements (i.e. all dimensions must be non-zero)");
    let inputs = vec![sizes([1, 3, 3, 2]), empty([1, 1, 2, 0]), empty([1, 3, 3, 0])];
    let gradient = run(PLAIN.op("Conv2DBackpropInput", "NHWC"), DType::Float, inputs).unwrap();
    assert!(same(&gradient, &[0.0; 18]));
    let inputs = vec![empty([0, 3, 3, 2]), sizes([1, 1, 2, 3]), empty([0, 3, 3, 3])];
    let gradient = run(PLAIN.op("Conv2DBackpropFilter", "NHWC"), DType::Float, inputs).unwrap();
    assert!(same(&gradient, &[0.0; 6]));
}

#[test]
fn shapes_and_attributes_are_refused_with_tensorflows_words() {
    let ones = |dims: &[usize]| {
        let shape = Shape::from_dims(dims).unwrap();
        Tensor::from_slice(shape.clone(), &vec![1f32; shape.num_elements()]).unwrap()
    };
    let valid = Case { padding: "VALID", ..PLAIN };
    let forward = |op: OpRun, input: &[usize], filter: &[usize]| {
        run(op, DType::Float, vec![ones(input), ones(filter)]).unwrap_err().message().to_owned()
    };
    let op = || valid.op("Conv2D", "NHWC");
    assert_eq!(forward(op(), &[1, 3, 3, 3], &[1, 3, 2]), "filter must be 4-dimensional: [1,3,2]");
    let text = "input depth must be evenly divisible by filter depth: 3 vs 2";
    assert_eq!(forward(op(), &[1, 3, 3, 3], &[1, 1, 2, 2]), text);
    let text = "output depth must be evenly divisible by number of groups: 3 vs 2";
    assert_eq!(forward(op(), &[1, 3, 3, 4], &[1, 1, 2, 3]), text);
    let text = "Computed output size would be negative: -1 [input_size: 3, effective_filter_size: 5, stride: 1]";
    assert_eq!(forward(op(), &[1, 3, 3, 3], &[5, 1, 3, 2]), text);
    let text = "Current implementation does not yet support strides in the batch and depth dimensions.";
    assert_eq!(forward(op().attr_ints("strides", &[2, 1, 1, 1]), &[1, 3, 3, 3], &[1, 1, 3, 2]), text);
    let backward = |size: &[i32], filter: &[usize], gradient: &[usize]| {
        let inputs = vec![Tensor::vector(size).unwrap(), ones(filter), ones(gradient)];
        let op = valid.op("Conv2DBackpropInput", "NHWC");
        run(op, DType::Float, inputs).unwrap_err().message().to_owned()
    };
    let (filter, gradient) = ([1, 1, 2, 3], [1, 3, 3, 3]);
    let text = "Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: 3";
    assert_eq!(backward(&[1, 3, 3], &filter, &gradient), text);
    assert_eq!(backward(&[1, 3, -3, 2], &filter, &gradient), "Dimension -3 must be >= 0");
    assert!(backward(&[2, 3, 3, 2], &filter, &gradient).contains("Input batch: 2, outbackprop batch: 1"));
    let text = "Conv2DCustomBackpropInput: Size of out_backprop doesn't match computed: actual = 2, computed = 3 \
                spatial_dim: 1 input: 3 filter: 1 output: 2 stride: 1 dilation: 1";
    assert_eq!(backward(&[1, 3, 3, 2], &filter, &[1, 2, 3, 3]), text);
    let inputs = vec![Tensor::vector(&[3i32, 3]).unwrap(), ones(&filter), ones(&gradient)];
    let short = run(valid.op("Conv2DBackpropInput", "NHWC"), DType::Float, inputs).unwrap();
    assert_eq!(short.shape().dims(), [1, 3, 3, 2]);
}

#[test]
fn depthwise_is_a_convolution_in_groups_of_one() {
    for (multiple, dtype) in [(1, DType::Float), (3, DType::Float), (2, DType::Half), (2, DType::Double)] {
        let case = Case { groups: 4, out_depth: 4 * multiple, stride: (2, 2), ..PLAIN };
        let (input, filter) = (values(case.input_dims(), 5), values(case.filter_dims(), 3));
        let gradient = values(case.output_dims(), 7);
        let mut output = vec![0.0; gradient.len()];
        let (mut d_input, mut d_filter) = (vec![0.0; input.len()], vec![0.0; filter.len()]);
        case.each(|i, f, o| {
            output[o] += input[i] * filter[f];
            d_input[i] += filter[f] * gradient[o];
            d_filter[f] += input[i] * gradient[o];
        });
        let filter_dims = [3, 3, 4, multiple];
        let input = tensor(case.input_dims(), &input, dtype);
        let filter = tensor(filter_dims, &filter, dtype);
        let gradient = tensor(case.output_dims(), &gradient, dtype);
        let op = |suffix: &str| case.op(&format!("DepthwiseConv2dNative{suffix}"), "NHWC");
        assert!(same(&run(op(""), dtype, vec![input.clone(), filter.clone()]).unwrap(), &output));
        let inputs = vec![sizes(case.input_dims()), filter, gradient.clone()];
        assert!(same(&run(op("BackpropInput"), dtype, inputs).unwrap(), &d_input));
        let inputs = vec![input.clone(), sizes(filter_dims), gradient.clone()];
        assert!(same(&run(op("BackpropFilter"), dtype, inputs).unwrap(), &d_filter));
        let inputs = vec![input, sizes([3, 3, 3, multiple]), gradient];
        let error = run(op("BackpropFilter"), dtype, inputs).unwrap_err();
        assert_eq!(error.message(), "DepthwiseConv2DBackpropFilter: input and filter must have the same in_depth");
    }
}
