//! Elementwise ops: values that TensorFlow 2.21 gives, errors, and properties of the engine.
#![allow(clippy::unwrap_used)]

use graphmill_kernels_math::register;
use graphmill_runtime::Registry;
use graphmill_runtime::testing::OpRun;
use graphmill_tensor::{Bytes, Code, DType, Element, Int4, QInt8, Result, Shape, Tensor, bf16, f16};
use graphmill_tensor::{Complex32, Float8E4M3FN};

fn registry() -> Registry {
    let mut registry = Registry::new();
    register(&mut registry);
    registry
}

fn run(op: OpRun, inputs: Vec<Tensor>) -> Result<Tensor> {
    op.run(&registry(), inputs).map(|mut outputs| outputs.remove(0))
}

fn binary<T: Element>(op: &str, a: &[T], b: &[T]) -> Result<Tensor> {
    let op = OpRun::new(op).attr_type("T", T::DTYPE);
    run(op, vec![Tensor::vector(a).unwrap(), Tensor::vector(b).unwrap()])
}

fn tensor<T: Element>(dims: &[usize], f: impl Fn(usize) -> T) -> Tensor {
    let shape = Shape::from_dims(dims).unwrap();
    let values: Vec<T> = (0..shape.num_elements()).map(f).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

fn values<T: Element>(t: &Tensor) -> Vec<T> {
    t.as_slice().unwrap().to_vec()
}

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

/// Equal, NaN included; signs of zeros count.
fn same(actual: &Tensor, expected: &[f32]) {
    let actual = values::<f32>(actual);
    let alike = |(a, e): (&f32, &f32)| a.to_bits() == e.to_bits() || a.is_nan() && e.is_nan();
    assert!(actual.len() == expected.len() && actual.iter().zip(expected).all(alike), "{actual:?} {expected:?}");
}

#[test]
fn division_and_remainder_of_floats() {
    let a = [7.5, -7.5, 7.5, -7.5, 0.0, -0.0, 1.0, -1.0, INF, NAN, 1.0, INF, -1.0];
    let b = [2.0, 2.0, -2.0, -2.0, 3.0, 3.0, 0.0, 0.0, 2.0, 1.0, INF, INF, INF];
    same(&binary("FloorDiv", &a, &b).unwrap(), &[3.0, -4.0, -4.0, 3.0, 0.0, -0.0, INF, -INF, INF, NAN, 0.0, NAN, -0.0]);
    same(
        &binary("TruncateDiv", &a, &b).unwrap(),
        &[3.0, -3.0, -3.0, 3.0, 0.0, -0.0, INF, -INF, INF, NAN, 0.0, NAN, -0.0],
    );
    same(&binary("FloorMod", &a, &b).unwrap(), &[1.5, 0.5, -0.5, -1.5, 0.0, -0.0, NAN, NAN, NAN, NAN, 1.0, NAN, INF]);
    same(
        &binary("TruncateMod", &a, &b).unwrap(),
        &[1.5, -1.5, 1.5, -1.5, 0.0, -0.0, NAN, NAN, NAN, NAN, 1.0, NAN, -1.0],
    );
}

#[test]
fn nan_and_zero() {
    let a = [NAN, INF, 0.0, 0.0, 0.0, -0.0, 1.0, 2.0];
    let b = [0.0, 0.0, NAN, INF, 0.0, 1.0, -1.0, -2.0];
    same(&binary("DivNoNan", &a, &b).unwrap(), &[0.0, 0.0, NAN, 0.0, 0.0, -0.0, -1.0, -1.0]);
    same(&binary("MulNoNan", &a, &b).unwrap(), &[0.0, 0.0, NAN, NAN, 0.0, -0.0, -1.0, -4.0]);
    same(&binary("Xdivy", &a, &b).unwrap(), &[NAN, INF, 0.0, 0.0, 0.0, -0.0, -1.0, -1.0]);
    same(&binary("Xlogy", &a, &b).unwrap(), &[NAN, -INF, 0.0, 0.0, 0.0, -0.0, NAN, NAN]);
    let (a, b) = ([NAN, 1.0, NAN, -0.0, 0.0, 2.0], [1.0, NAN, NAN, 0.0, -0.0, 3.0]);
    same(&binary("Maximum", &a, &b).unwrap(), &[NAN, NAN, NAN, 0.0, -0.0, 3.0]);
    same(&binary("Minimum", &a, &b).unwrap(), &[NAN, NAN, NAN, 0.0, -0.0, 2.0]);
    let le = binary("LessEqual", &a, &b).unwrap();
    assert_eq!(values::<bool>(&le), [false, false, false, true, true, true]);
}

#[test]
fn integers_divide_as_in_tensorflow() {
    let (a, b) = ([-7i32, 8, -7, 7, i32::MIN], [2, -3, -2, 7, -1]);
    let get = |op| values::<i32>(&binary(op, &a, &b).unwrap());
    assert_eq!(get("FloorDiv"), [-4, -3, 3, 1, i32::MIN]);
    assert_eq!(get("TruncateDiv"), [-3, -2, 3, 1, i32::MIN]);
    assert_eq!(get("FloorMod"), [1, -1, -1, 0, 0]);
    assert_eq!(get("TruncateMod"), [-1, 2, -1, 0, 0]);
    for op in ["Div", "FloorDiv", "FloorMod", "Mod"] {
        let error = binary(op, &[1i64, 2], &[1, 0]).unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "Integer division by zero"), "{op}");
    }
    assert_eq!(binary("TruncateDiv", &[1u8], &[0]).unwrap_err().code(), Code::Internal);
    assert!(binary::<i32>("Div", &[], &[]).unwrap().as_slice::<i32>().unwrap().is_empty());
    let error = binary("Pow", &[1i32, 2], &[2, -1]).unwrap_err();
    assert_eq!(error.message(), "Integers to negative integer powers are not allowed");
    assert_eq!(values::<i8>(&binary("Pow", &[3i8, -2], &[7, 7]).unwrap()), [-117, -128]);
    assert_eq!(values::<i8>(&binary("LeftShift", &[1i8, -100, -127, 5], &[-1, 7, 70, -2]).unwrap()), [1, 0, -128, 5]);
    assert_eq!(values::<i8>(&binary("RightShift", &[1i8, -100, -127, 5], &[-1, 7, 70, -2]).unwrap()), [1, -1, -1, 5]);
}

#[test]
fn operands_broadcast() {
    let a = tensor(&[2, 1, 3], |i| i as i32);
    let b = tensor(&[4, 1], |i| 10 * i as i32);
    let sum = run(OpRun::new("AddV2").attr_type("T", DType::Int32), vec![a, b]).unwrap();
    assert_eq!(sum.shape().dims(), &[2, 4, 3]);
    let expected: Vec<i32> = (0..24).map(|i| i / 12 * 3 + i % 3 + 10 * (i / 3 % 4)).collect();
    assert_eq!(values::<i32>(&sum), expected);
    let error = binary("Add", &[1.0f32, 2.0], &[1.0, 2.0, 3.0]).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "Incompatible shapes: [2] vs. [3]"));
    let (a, b) = (tensor(&[2, 1, 2, 1, 2, 1], |_| 0f32), tensor(&[1, 2, 1, 2, 1, 2], |_| 0f32));
    let error = run(OpRun::new("Mul").attr_type("T", DType::Float), vec![a, b]).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert_eq!(error.message(), "Broadcast between [2,1,2,1,2,1] and [1,2,1,2,1,2] is not supported yet.");
}

#[test]
fn operands_in_place_give_the_same_bits() {
    let shapes: [(&[usize], &[usize]); 8] = [
        (&[1000], &[1000]),
        (&[], &[]),
        (&[5], &[]),
        (&[], &[3000]),
        (&[70, 40], &[40]),
        (&[70, 1], &[70, 40]),
        (&[30, 20], &[30, 1]),
        (&[200, 300], &[200, 300]),
    ];
    for (a, b) in shapes {
        let a = tensor(a, |i| (i as f32 * 0.37).sin());
        let b = tensor(b, |i| (i as f32 * 0.11).cos());
        let op = || OpRun::new("Sub").attr_type("T", DType::Float);
        let shared = run(op(), vec![a.clone(), b.clone()]).unwrap();
        let own = run(op(), vec![a.deep_copy().unwrap(), b.deep_copy().unwrap()]).unwrap();
        let first_own = run(op(), vec![a.deep_copy().unwrap(), b.clone()]).unwrap();
        let second_own = run(op(), vec![a.clone(), b.deep_copy().unwrap()]).unwrap();
        for other in [own, first_own, second_own] {
            assert_eq!(values::<f32>(&shared), values::<f32>(&other), "{} {}", a.shape(), b.shape());
        }
        let op = || OpRun::new("Exp").attr_type("T", DType::Float);
        let shared = run(op(), vec![a.clone()]).unwrap();
        assert_eq!(values::<f32>(&shared), values::<f32>(&run(op(), vec![a.deep_copy().unwrap()]).unwrap()));
    }
}

#[test]
fn equality_of_shapes_that_do_not_meet() {
    let inputs = || vec![tensor(&[2, 3], |_| 0f32), tensor(&[2], |_| 0f32)];
    let op = |name: &str, strict| {
        OpRun::new(name).attr_type("T", DType::Float).attr_bool("incompatible_shape_error", strict)
    };
    assert_eq!(run(op("Equal", false), inputs()).unwrap().scalar_value::<bool>(), Ok(false));
    assert_eq!(run(op("NotEqual", false), inputs()).unwrap().scalar_value::<bool>(), Ok(true));
    assert_eq!(run(op("Equal", true), inputs()).unwrap_err().message(), "Incompatible shapes: [2,3] vs. [2]");
}

#[test]
fn strings_join_and_compare() {
    let strings = |list: &[&str]| {
        let list: Vec<Bytes> = list.iter().map(|s| Bytes::copy_from_slice(s.as_bytes())).collect();
        Tensor::from_strings(Shape::vector(list.len()), list).unwrap()
    };
    let op = |name| OpRun::new(name).attr_type("T", DType::String);
    let sum = run(op("Add"), vec![strings(&["a", "b\0"]), strings(&["x"])]).unwrap();
    assert_eq!(sum.strings().unwrap(), &[Bytes::from("ax"), Bytes::from("b\0x")]);
    let equal = run(op("Equal"), vec![strings(&["a", "b", ""]), strings(&["a", "c", ""])]).unwrap();
    assert_eq!(values::<bool>(&equal), [true, false, true]);
}

#[test]
fn gradients_check_their_sizes() {
    for op in ["SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"] {
        let op = OpRun::new(op).attr_type("T", DType::Float);
        let error = run(op, vec![tensor(&[4, 16], |_| 1f32), tensor(&[], |_| 1f32)]).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert_eq!(error.message(), "The two arguments to a cwise op must have same number of elements, got 64 and 1");
    }
    let (y, dy) = ([NAN, INF, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 1.0, 3.0]);
    same(&binary("SqrtGrad", &y, &dy).unwrap(), &[0.0, 0.0, 0.0, INF, 0.75]);
    same(&binary("RsqrtGrad", &y, &dy).unwrap(), &[0.0, 0.0, 0.0, 0.0, -12.0]);
    same(&binary("InvGrad", &y, &dy).unwrap(), &[0.0, 0.0, 0.0, -0.0, -12.0]);
    same(&binary("TanhGrad", &y, &dy).unwrap(), &[NAN, NAN, 0.0, 1.0, -9.0]);
    same(&binary("SigmoidGrad", &y, &dy).unwrap(), &[NAN, NAN, 0.0, 0.0, -6.0]);
    let c = Complex32::new;
    let gradient = |op| values::<Complex32>(&binary(op, &[c(1.0, 2.0)], &[c(2.0, -1.0)]).unwrap())[0];
    assert_eq!(gradient("SigmoidGrad"), c(6.0, -8.0));
    assert_eq!(gradient("TanhGrad"), c(4.0, -12.0));
    assert_eq!(gradient("RsqrtGrad"), c(10.0, -7.5));
    assert_eq!(gradient("ReciprocalGrad"), c(10.0, 5.0));
}

fn cast(input: Tensor, to: DType, truncate: bool) -> Result<Tensor> {
    let op = OpRun::new("Cast").attr_type("SrcT", input.dtype()).attr_type("DstT", to).attr_bool("Truncate", truncate);
    run(op, vec![input])
}

#[test]
fn casts_go_as_on_x86() {
    let x = || Tensor::vector(&[NAN, INF, -INF, 1e10, -1e10, 3e9, -3.7, 300.5, 1e19, 1.7e19, 200.0]).unwrap();
    assert_eq!(
        values::<i32>(&cast(x(), DType::Int32, false).unwrap()),
        [i32::MIN, i32::MIN, i32::MIN, i32::MIN, i32::MIN, i32::MIN, -3, 300, i32::MIN, i32::MIN, 200]
    );
    assert_eq!(values::<u8>(&cast(x(), DType::UInt8, false).unwrap()), [0, 0, 0, 0, 0, 0, 253, 44, 0, 0, 200]);
    assert_eq!(values::<u32>(&cast(x(), DType::UInt32, false).unwrap())[5..8], [3_000_000_000, 4_294_967_293, 300]);
    assert_eq!(
        values::<u64>(&cast(x(), DType::UInt64, false).unwrap()),
        [
            1 << 63,
            1 << 63,
            1 << 63,
            10_000_000_000,
            10_000_000_000u64.wrapping_neg(),
            3_000_000_000,
            3u64.wrapping_neg(),
            300,
            9_999_999_980_506_447_872,
            17_000_000_076_812_124_160,
            200
        ]
    );
    let c = Tensor::vector(&[Complex32::new(2.9, 7.0), Complex32::new(0.0, 1.0)]).unwrap();
    assert_eq!(values::<i32>(&cast(c.clone(), DType::Int32, false).unwrap()), [2, 0]);
    assert_eq!(values::<bool>(&cast(c, DType::Bool, false).unwrap()), [true, false]);
}

#[test]
fn casts_of_small_types() {
    let x = || Tensor::vector(&[1.999_999_9f32, -1.999_999_9, 1.0 / 3.0]).unwrap();
    let halves = |truncate| values::<f16>(&cast(x(), DType::Half, truncate).unwrap()).map(f16::to_bits);
    assert_eq!(halves(false), [0x4000, 0xc000, 0x3555]);
    assert_eq!(halves(true), [0x3fff, 0xbfff, 0x3555]);
    let bits = values::<bf16>(&cast(x(), DType::BFloat16, true).unwrap()).map(bf16::to_bits);
    assert_eq!(bits, [0x3fff, 0xbfff, 0x3eaa]);
    let eight = cast(Tensor::vector(&[1.4f32, 460.0, 1e9]).unwrap(), DType::Float8E4M3FN, false).unwrap();
    let eight: Vec<f64> = values::<Float8E4M3FN>(&eight).iter().map(|v| v.to_f64()).collect();
    assert!(eight[0] == 1.375 && eight[1] == 448.0 && eight[2].is_nan());
    let four = cast(Tensor::vector(&[7i32, 9, -1]).unwrap(), DType::Int4, false).unwrap();
    assert_eq!(values::<Int4>(&four).iter().map(|v| v.get()).collect::<Vec<_>>(), [7, -7, -1]);
    let quantised = cast(Tensor::vector(&[1.5f32, -3.0]).unwrap(), DType::QInt8, false).unwrap();
    assert_eq!(values::<QInt8>(&quantised), [QInt8(1), QInt8(-3)]);
    assert_eq!(values::<f32>(&cast(quantised, DType::Float, false).unwrap()), [1.0, -3.0]);
    let error = cast(x(), DType::String, false).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unimplemented, "Cast float to string is not supported"));
}

trait Each<T> {
    fn map<U>(self, f: impl Fn(T) -> U) -> Vec<U>;
}

impl<T> Each<T> for Vec<T> {
    fn map<U>(self, f: impl Fn(T) -> U) -> Vec<U> {
        self.into_iter().map(f).collect()
    }
}

#[test]
fn selections() {
    let cond = |dims: &[usize], f: fn(usize) -> bool| tensor(dims, f);
    let op = |name| OpRun::new(name).attr_type("T", DType::Int32);
    let (then, other) = (|| tensor(&[2, 3], |i| i as i32), || tensor(&[2, 3], |i| -(i as i32)));
    let rows = run(op("Select"), vec![cond(&[2], |i| i == 1), then(), other()]).unwrap();
    assert_eq!(values::<i32>(&rows), [0, -1, -2, 3, 4, 5]);
    let each = run(op("Select"), vec![cond(&[2, 3], |i| i % 2 == 0), then(), other()]).unwrap();
    assert_eq!(values::<i32>(&each), [0, -1, 2, -3, 4, -5]);
    let error = run(op("Select"), vec![cond(&[3], |_| true), then(), other()]).unwrap_err();
    assert_eq!(error.message(), "Number of batches of 'then' must match size of 'cond', but saw: 2 vs. 3");
    let error = run(op("Select"), vec![cond(&[2, 2], |_| true), then(), other()]).unwrap_err();
    assert_eq!(
        error.message(),
        "Inputs to operation op of type Select must have the same size and shape.  Input 0: [2,2] != input 1: [2,3]"
    );
    let broad = run(op("SelectV2"), vec![cond(&[2, 1], |i| i == 0), then(), tensor(&[], |_| 9)]).unwrap();
    assert_eq!(values::<i32>(&broad), [0, 1, 2, 9, 9, 9]);
    let error = run(op("SelectV2"), vec![cond(&[4], |_| true), then(), other()]).unwrap_err();
    assert_eq!(error.message(), "condition [4], then [2,3], and else [2,3] must be broadcastable");
    let strings = |s: &'static str| Tensor::from_strings(Shape::scalar(), vec![Bytes::from(s)]).unwrap();
    let op = OpRun::new("SelectV2").attr_type("T", DType::String);
    let chosen = run(op, vec![cond(&[2], |i| i == 0), strings("a"), strings("b")]).unwrap();
    assert_eq!(chosen.strings().unwrap(), &[Bytes::from("a"), Bytes::from("b")]);
}

#[test]
fn clipping() {
    let clip = |x: &[f32], low: Tensor, high: f32| {
        let op = OpRun::new("ClipByValue").attr_type("T", DType::Float);
        run(op, vec![Tensor::vector(x).unwrap(), low, Tensor::scalar(high).unwrap()])
    };
    same(&clip(&[NAN, 1.0, 5.0], Tensor::scalar(2f32).unwrap(), 3.0).unwrap(), &[NAN, 2.0, 3.0]);
    same(&clip(&[2.0, 1.0, 5.0, 7.0], Tensor::scalar(6f32).unwrap(), 3.0).unwrap(), &[6.0; 4]);
    same(&clip(&[2.0, 1.0, 5.0], Tensor::scalar(NAN).unwrap(), 3.0).unwrap(), &[2.0, 1.0, 3.0]);
    same(&clip(&[1.0, 1.0, 5.0], Tensor::vector(&[0f32, 2.0, 3.0]).unwrap(), 4.0).unwrap(), &[1.0, 2.0, 4.0]);
    assert!(clip(&[1.0], Tensor::vector(&[0f32, 2.0]).unwrap(), 4.0).is_err());
}

#[test]
fn sums_of_many() {
    let input = |k: usize| tensor(&[2000], move |i| (i * k) as f32);
    let op = || OpRun::new("AddN").attr_int("N", 4).attr_type("T", DType::Float);
    let keep = input(1);
    for inputs in [
        vec![keep.clone(), input(2), keep.clone(), input(3)],
        vec![keep.clone(), keep.clone(), keep.clone(), keep.clone()],
    ] {
        let expected: Vec<f32> =
            (0..2000).map(|i| inputs.iter().map(|t| t.as_slice::<f32>().unwrap()[i]).sum()).collect();
        assert_eq!(values::<f32>(&run(op(), inputs).unwrap()), expected);
    }
    let op = OpRun::new("AddN").attr_int("N", 2).attr_type("T", DType::Float);
    let error = run(op, vec![tensor(&[2], |_| 0f32), tensor(&[3], |_| 0f32)]).unwrap_err();
    assert_eq!(
        error.message(),
        "Inputs to operation op of type AddN must have the same size and shape.  Input 0: [2] != input 1: [3]"
    );
}
