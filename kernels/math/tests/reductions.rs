//! Reductions, products, scans and sequences against plain loops, and what TensorFlow 2.21 gives in odd cases.
#![allow(clippy::unwrap_used)]

use graphmill_kernels_math::register;
use graphmill_runtime::Registry;
use graphmill_runtime::testing::OpRun;
use graphmill_tensor::{Code, Complex64, DType, Element, Result, Shape, Tensor, bf16, f16};

fn run(op: OpRun, inputs: Vec<Tensor>) -> Result<Tensor> {
    let mut registry = Registry::new();
    register(&mut registry);
    op.run(&registry, inputs).map(|mut outputs| outputs.remove(0))
}

fn tensor<T: Element>(dims: &[usize], f: impl Fn(usize) -> T) -> Tensor {
    let shape = Shape::from_dims(dims).unwrap();
    let values: Vec<T> = (0..shape.num_elements()).map(f).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

fn values<T: Element>(t: &Tensor) -> Vec<T> {
    t.as_slice().unwrap().to_vec()
}

fn reduce(op: &str, input: &Tensor, axes: &[i32]) -> Result<Tensor> {
    let op = OpRun::new(op).attr_type("Tidx", DType::Int32);
    let op = if input.dtype() == DType::Bool { op } else { op.attr_type("T", input.dtype()) };
    run(op, vec![input.clone(), Tensor::vector(axes).unwrap()])
}

/// A sum by definition: each element goes to the output position without the reduced indices.
fn sum_by_definition(input: &Tensor, axes: &[i32]) -> Vec<i64> {
    let shape = input.shape();
    let (rank, strides) = (shape.rank(), shape.strides());
    let gone = |axis: usize| axes.iter().any(|&a| a.rem_euclid(rank as i32) as usize == axis);
    let kept: Vec<usize> = (0..rank).filter(|&a| !gone(a)).collect();
    let mut sums = vec![0; kept.iter().map(|&a| shape.dim(a)).product()];
    for (flat, &value) in input.as_slice::<i64>().unwrap().iter().enumerate() {
        let at = kept.iter().fold(0, |at, &a| at * shape.dim(a) + flat / strides[a] % shape.dim(a));
        sums[at] += value;
    }
    sums
}

#[test]
fn sums_follow_the_definition() {
    let cases: [(&[usize], &[i32]); 14] = [
        (&[7, 5], &[0]),
        (&[7, 5], &[1]),
        (&[3, 4, 5], &[1]),
        (&[3, 4, 5], &[0, 2]),
        (&[2, 3, 2, 3, 2], &[0, 2, 4]),
        (&[2, 3, 2, 3, 2], &[1, -2]),
        (&[1, 6, 1], &[0]),
        (&[40_000], &[0]),
        (&[3, 20_000], &[1]),
        (&[20_000, 3], &[0]),
        (&[700, 300], &[0]),
        (&[2, 900, 70], &[1]),
        (&[5, 3000, 2], &[0, 1]),
        (&[300, 2, 100], &[0, 2]),
    ];
    for (dims, axes) in cases {
        let input = tensor(dims, |i| (i as i64).wrapping_mul(7919) % 1000 - 300);
        assert_eq!(
            values::<i64>(&reduce("Sum", &input, axes).unwrap()),
            sum_by_definition(&input, axes),
            "{dims:?} {axes:?}"
        );
    }
}

#[test]
fn sums_of_floats_lose_little() {
    let ones = tensor(&[3000], |_| f16::ONE);
    assert_eq!(values::<f16>(&reduce("Sum", &ones, &[0]).unwrap())[0].to_f32(), 3000.0);
    let tenths = tensor(&[3_000_000], |_| 0.1f32);
    let sum = values::<f32>(&reduce("Sum", &tenths, &[0]).unwrap())[0];
    assert!((sum - 300_000.0).abs() < 0.5, "{sum}");
    let tenths = tensor(&[1_000_000, 3], |_| 0.1f32);
    assert!(values::<f32>(&reduce("Sum", &tenths, &[0]).unwrap()).iter().all(|s| (s - 100_000.0).abs() < 0.5));
}

#[test]
fn odd_reductions() {
    let nan = f32::NAN;
    let x = Tensor::from_slice(Shape::from_dims(&[3, 2]).unwrap(), &[nan, 1.0, 1.0, nan, 1.0, 2.0]).unwrap();
    let max = values::<f32>(&reduce("Max", &x, &[1]).unwrap());
    assert!(max[0].is_nan() && max[1].is_nan() && max[2] == 2.0);
    assert!(values::<f32>(&reduce("Min", &x, &[0]).unwrap()).iter().all(|v| v.is_nan()));
    let none = tensor(&[0, 2], |_| 0f32);
    assert_eq!(values::<f32>(&reduce("Sum", &none, &[0]).unwrap()), [0.0, 0.0]);
    assert_eq!(values::<f32>(&reduce("Prod", &none, &[0]).unwrap()), [1.0, 1.0]);
    assert_eq!(values::<f32>(&reduce("Max", &none, &[0]).unwrap()), [f32::NEG_INFINITY; 2]);
    assert!(values::<f32>(&reduce("Mean", &none, &[0]).unwrap()).iter().all(|v| v.is_nan()));
    let none = tensor(&[0, 2], |_| 0i32);
    assert_eq!(values::<i32>(&reduce("Max", &none, &[0]).unwrap()), [i32::MIN; 2]);
    assert_eq!(values::<i32>(&reduce("Mean", &none, &[0]).unwrap()), [0, 0]);
    assert_eq!(reduce("Sum", &none, &[1]).unwrap().shape().dims(), &[0]);
    assert_eq!(values::<i8>(&reduce("Mean", &tensor(&[300], |_| 100i8), &[0]).unwrap()), [100]);
    assert_eq!(values::<i32>(&reduce("Mean", &Tensor::vector(&[-7, -6, -4]).unwrap(), &[0]).unwrap()), [-5]);
    assert_eq!(values::<u8>(&reduce("EuclideanNorm", &tensor(&[300], |_| 100u8), &[0]).unwrap()), [13]);
    assert_eq!(
        values::<f32>(&reduce("EuclideanNorm", &tensor(&[1, 2], |i| i as f32 - 3.0), &[0]).unwrap()),
        [3.0, 2.0]
    );
    assert_eq!(values::<f32>(&reduce("Sum", &tensor(&[1, 2], |i| i as f32 - 3.0), &[0]).unwrap()), [-3.0, -2.0]);
    assert_eq!(values::<bool>(&reduce("Any", &tensor(&[2, 2], |i| i == 3), &[1]).unwrap()), [false, true]);
    assert_eq!(values::<bool>(&reduce("All", &tensor(&[2, 2], |i| i > 1), &[1]).unwrap()), [false, true]);
    assert_eq!(values::<bool>(&reduce("All", &tensor(&[0, 2], |_| false), &[0]).unwrap()), [true, true]);
    let loss = run(OpRun::new("L2Loss").attr_type("T", DType::Float), vec![tensor(&[2, 2], |i| i as f32)]).unwrap();
    assert!(loss.shape().is_scalar() && values::<f32>(&loss) == [7.0]);
}

#[test]
fn where_the_extremes_are() {
    let arg = |op: &str, input: &Tensor, axis: i32| {
        let op = OpRun::new(op).attr_type("T", input.dtype()).attr_type("output_type", DType::Int64);
        run(op, vec![input.clone(), Tensor::scalar(axis).unwrap()])
    };
    let nan = f32::NAN;
    let x = Tensor::vector(&[nan, 1.0, nan, 2.0]).unwrap();
    assert_eq!(values::<i64>(&arg("ArgMax", &x, 0).unwrap()), [3]);
    assert_eq!(values::<i64>(&arg("ArgMin", &x, 0).unwrap()), [1]);
    assert_eq!(values::<i64>(&arg("ArgMax", &Tensor::vector(&[nan, nan]).unwrap(), 0).unwrap()), [0]);
    let x = tensor(&[3, 100, 70], |i| (i * 7919 % 1009) as i32);
    let found = values::<i64>(&arg("ArgMax", &x, 1).unwrap());
    let x_values = values::<i32>(&x);
    for (at, &index) in found.iter().enumerate() {
        let column: Vec<i32> = (0..100).map(|i| x_values[(at / 70 * 100 + i) * 70 + at % 70]).collect();
        let best = column.iter().max().unwrap();
        assert_eq!(index as usize, column.iter().position(|v| v == best).unwrap());
    }
    let error = |input: &Tensor, axis| arg("ArgMax", input, axis).unwrap_err().message().to_owned();
    assert_eq!(error(&tensor(&[0, 3], |_| 0f32), 0), "Reduction axis 0 is empty in shape [0,3]");
    assert_eq!(error(&tensor(&[4, 5], |_| 0f32), 2), "Expected dimension in the range [-2, 2), but got 2");
}

#[test]
fn running_sums() {
    let scan = |input: &Tensor, axis: i64, exclusive, reverse| {
        let op = OpRun::new("Cumsum").attr_type("T", input.dtype()).attr_type("Tidx", DType::Int64);
        let op = op.attr_bool("exclusive", exclusive).attr_bool("reverse", reverse);
        run(op, vec![input.clone(), Tensor::scalar(axis).unwrap()])
    };
    let x = tensor(&[3, 2], |i| i as i32 + 1);
    assert_eq!(values::<i32>(&scan(&x, 0, false, false).unwrap()), [1, 2, 4, 6, 9, 12]);
    assert_eq!(values::<i32>(&scan(&x, 0, true, true).unwrap()), [8, 10, 5, 6, 0, 0]);
    assert_eq!(values::<i32>(&scan(&x, -1, false, true).unwrap()), [3, 2, 7, 4, 11, 6]);
    assert_eq!(values::<i32>(&scan(&x, 1, true, false).unwrap()), [0, 1, 0, 3, 0, 5]);
    let error = scan(&x, 2, false, false).unwrap_err();
    assert_eq!(error.message(), "ScanOp: Expected scan axis in the range [-2, 2), but got 2");
    assert!(scan(&x, i64::MIN, false, false).is_err());
}

fn product_by_definition(a: &[f64], b: &[f64], (m, n, k): (usize, usize, usize), ta: bool, tb: bool) -> Vec<f64> {
    let at_a = |i: usize, p: usize| a[if ta { p * m + i } else { i * k + p }];
    let at_b = |p: usize, j: usize| b[if tb { j * k + p } else { p * n + j }];
    (0..m * n).map(|at| (0..k).map(|p| at_a(at / n, p) * at_b(p, at % n)).sum()).collect()
}

fn products<T: Element>(from: fn(f64) -> T, to: fn(T) -> f64) {
    for (m, n, k) in [
        (1, 1, 1),
        (3, 5, 4),
        (1, 40, 70),
        (50, 1, 33),
        (1, 2100, 19),
        (2100, 1, 40),
        (65, 33, 129),
        (13, 77, 600),
        (32, 64, 40),
    ] {
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let (a_dims, b_dims) = (if ta { [k, m] } else { [m, k] }, if tb { [n, k] } else { [k, n] });
            let value = |i: usize| ((i * 37 + 11) % 7) as f64 - 3.0;
            let a = tensor(&a_dims, |i| from(value(i)));
            let b = tensor(&b_dims, |i| from(value(i + 5)));
            let (x, y): (Vec<f64>, Vec<f64>) =
                ((0..m * k).map(value).collect(), (0..k * n).map(|i| value(i + 5)).collect());
            let op =
                OpRun::new("MatMul").attr_type("T", T::DTYPE).attr_bool("transpose_a", ta).attr_bool("transpose_b", tb);
            let c = run(op, vec![a, b]).unwrap();
            assert_eq!(c.shape().dims(), &[m, n]);
            let c: Vec<f64> = values::<T>(&c).into_iter().map(to).collect();
            let expected: Vec<f64> =
                product_by_definition(&x, &y, (m, n, k), ta, tb).into_iter().map(|v| to(from(v))).collect();
            assert_eq!(c, expected, "{} {m} {n} {k} {ta} {tb}", T::DTYPE);
        }
    }
}

/// Small integers, so that every type holds all sums exactly.
#[test]
fn products_follow_the_definition() {
    products::<f32>(|v| v as f32, f64::from);
    products::<f64>(|v| v, |v| v);
    products::<i32>(|v| v as i32, f64::from);
    products::<i64>(|v| v as i64, |v| v as f64);
    products::<f16>(f16::from_f64, f16::to_f64);
    products::<bf16>(bf16::from_f64, bf16::to_f64);
    products::<Complex64>(|v| Complex64::new(v, 0.0), |v| v.re);
}

#[test]
fn batches_broadcast_and_adjoints_conjugate() {
    let a = tensor(&[2, 1, 2, 3], |i| i as f32);
    let b = tensor(&[4, 3, 1], |i| i as f32);
    let op = |name| OpRun::new(name).attr_type("T", DType::Float);
    let c = run(op("BatchMatMulV2"), vec![a.clone(), b.clone()]).unwrap();
    assert_eq!(c.shape().dims(), &[2, 4, 2, 1]);
    let expected: Vec<f32> = (0..16)
        .map(|at| (0..3).map(|p| ((at / 8 * 2 + at % 2) * 3 + p) as f32 * (at / 2 % 4 * 3 + p) as f32).sum())
        .collect();
    assert_eq!(values::<f32>(&c), expected);
    assert!(run(op("BatchMatMul"), vec![a, b]).is_err());
    let z = Complex64::new;
    let x = Tensor::from_slice(Shape::from_dims(&[1, 1, 2]).unwrap(), &[z(1.0, 1.0), z(2.0, 0.0)]).unwrap();
    let y = Tensor::from_slice(Shape::from_dims(&[1, 1, 2]).unwrap(), &[z(0.0, 1.0), z(2.0, 0.0)]).unwrap();
    let op = OpRun::new("BatchMatMulV2").attr_type("T", DType::Complex128).attr_bool("adj_y", true);
    assert_eq!(values::<Complex64>(&run(op, vec![x, y]).unwrap()), [z(5.0, -1.0)]);
    let op = OpRun::new("BatchMatMulV3")
        .attr_type("Ta", DType::Int8)
        .attr_type("Tb", DType::UInt8)
        .attr_type("Tout", DType::Int32);
    let c = run(op, vec![tensor(&[1, 2], |i| [-100i8, 100][i]), tensor(&[2, 1], |i| [200u8, 3][i])]).unwrap();
    assert_eq!(values::<i32>(&c), [-19_700]);
}

#[test]
fn products_check_their_shapes() {
    let error = |op: &str, a: &[usize], b: &[usize]| {
        let op = OpRun::new(op).attr_type("T", DType::Float);
        let error = run(op, vec![tensor(a, |_| 0f32), tensor(b, |_| 0f32)]).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        error.message().to_owned()
    };
    assert_eq!(error("MatMul", &[2, 3], &[2, 3]), "Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]");
    assert_eq!(error("MatMul", &[3], &[3, 2]), "In[0] and In[1] has different ndims: [3] vs. [3,2]");
    assert_eq!(error("BatchMatMulV2", &[4], &[4, 5]), "In[0] ndims must be >= 2: 1");
    assert_eq!(
        error("BatchMatMulV2", &[2, 3, 4], &[3, 4, 5]),
        "In[0] and In[1] must have compatible batch dimensions: [2,3,4] vs. [3,4,5]"
    );
    let op = OpRun::new("MatMul").attr_type("T", DType::Float);
    let empty = run(op, vec![tensor(&[2, 0], |_| 0f32), tensor(&[0, 3], |_| 0f32)]).unwrap();
    assert_eq!(values::<f32>(&empty), [0.0; 6]);
}

#[test]
fn ranges() {
    fn range<T: Element>(start: T, limit: T, delta: T) -> Result<Tensor> {
        let scalar = |v: T| Tensor::scalar(v).unwrap();
        run(OpRun::new("Range").attr_type("Tidx", T::DTYPE), vec![scalar(start), scalar(limit), scalar(delta)])
    }
    assert_eq!(values::<i64>(&range(i64::MIN, i64::MAX, 1 << 62).unwrap()).len(), 4);
    assert_eq!(values::<i32>(&range(5, -1, -2).unwrap()), [5, 3, 1]);
    let too_many = "Requires ((limit - start) / delta) <= 9223372036854775807";
    assert_eq!(range(i64::MIN, i64::MAX, 1).unwrap_err().message(), too_many);
    assert_eq!(range(0f32, 1e30, 1e-30).unwrap_err().message(), too_many);
    assert_eq!(range(0f32, f32::INFINITY, 1.0).unwrap_err().message(), too_many);
    assert_eq!(range(0, i64::MAX, 1).unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(range(0, 10, 0).unwrap_err().message(), "Requires delta != 0: 0");
    assert_eq!(range(0f32, 10.0, f32::NAN).unwrap_err().message(), "Requires start >= limit when delta < 0: 0/10");
    assert_eq!(range(f32::NAN, 10.0, 1.0).unwrap_err().message(), "Requires start <= limit when delta > 0: nan/10");
    let halves = values::<f16>(&range(f16::ZERO, f16::from_f32(5.0), f16::from_f32(0.7)).unwrap());
    assert_eq!((halves.len(), halves[7].to_f32()), (8, 4.902_343_8));
    let op = OpRun::new("LinSpace").attr_type("T", DType::Double).attr_type("Tidx", DType::Int32);
    let line = run(op, vec![Tensor::scalar(1f64).unwrap(), Tensor::scalar(2f64).unwrap(), Tensor::scalar(5).unwrap()]);
    assert_eq!(values::<f64>(&line.unwrap()), [1.0, 1.25, 1.5, 1.75, 2.0]);
}

#[test]
fn bins() {
    let count = |values: &[i32], size: i32, weights: &[f32]| {
        let inputs =
            vec![Tensor::vector(values).unwrap(), Tensor::scalar(size).unwrap(), Tensor::vector(weights).unwrap()];
        run(OpRun::new("Bincount").attr_type("T", DType::Float), inputs)
    };
    assert_eq!(values::<f32>(&count(&[1, 1, 7], 4, &[]).unwrap()), [0.0, 2.0, 0.0, 0.0]);
    assert_eq!(values::<f32>(&count(&[1, 1, 2], 4, &[1.0, 2.0, 3.0]).unwrap()), [0.0, 3.0, 3.0, 0.0]);
    assert_eq!(count(&[1, -1], 4, &[]).unwrap_err().message(), "Input arr must be non-negative!");
    assert_eq!(count(&[1], -1, &[]).unwrap_err().message(), "size (-1) must be non-negative");
    assert!(count(&[1, 1], 4, &[1.0]).is_err());
    let inputs = vec![tensor(&[2, 2], |i| [1i64, 1, 2, 3][i]), Tensor::scalar(4i64).unwrap(), tensor(&[0], |_| 0i32)];
    let op = OpRun::new("DenseBincount").attr_type("T", DType::Int32).attr_type("Tidx", DType::Int64);
    assert_eq!(values::<i32>(&run(op.attr_bool("binary_output", true), inputs).unwrap()), [0, 1, 0, 0, 0, 0, 1, 1]);
}
