//! The numbers of a seed are TensorFlow's, bit for bit.
// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used)]

use graphmill_formats::{FileSystem, LocalFileSystem};
use graphmill_runtime::Registry;
use graphmill_runtime::testing::OpRun;
use graphmill_tensor::{Code, DType, Result, Shape, Tensor, bf16, f16};
use std::sync::Arc;

const TABLE: &str = include_str!("values.tsv");

fn registry() -> Registry {
    let mut registry = Registry::new();
    let files: Arc<dyn FileSystem> = Arc::new(LocalFileSystem::new());
    graphmill_kernels_random::register(&mut registry, &files);
    registry
}

fn dtype(name: &str) -> DType {
    *DType::ALL.iter().find(|d| d.name() == name).unwrap()
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// `values` as a tensor of a type.
fn cast(dtype: DType, shape: &[i64], values: impl Iterator<Item = i32>) -> Tensor {
    let shape = Shape::new(shape).unwrap();
    let values: Vec<i32> = values.collect();
    fn of<T: graphmill_tensor::Element>(shape: Shape, values: &[i32], to: impl Fn(i32) -> T) -> Tensor {
        Tensor::from_slice(shape, &values.iter().map(|&v| to(v)).collect::<Vec<_>>()).unwrap()
    }
    match dtype {
        DType::Float => of(shape, &values, |v| v as f32),
        DType::Double => of(shape, &values, f64::from),
        DType::Half => of(shape, &values, |v| f16::from_f32(v as f32)),
        DType::BFloat16 => of(shape, &values, |v| bf16::from_f32(v as f32)),
        DType::Int64 => of(shape, &values, i64::from),
        _ => of(shape, &values, |v| v),
    }
}

/// Runs an op of the table with the inputs that the numbers in it were made with.
fn run(op: &str, dtype: DType, seed: i64, seed2: i64) -> Tensor {
    let length = |n: i32| Tensor::vector(&[n]).unwrap();
    let stateful = || OpRun::new(op).attr_int("seed", seed).attr_int("seed2", seed2);
    let (run, inputs) = match op {
        "RandomShuffle" => (stateful().attr_type("T", dtype), vec![cast(dtype, &[1000], 0..1000)]),
        "RandomUniformInt" => (
            stateful().attr_type("Tout", dtype).attr_type("T", DType::Int32),
            vec![length(1001), cast(dtype, &[], -10..-9), cast(dtype, &[], 10007..10008)],
        ),
        "Multinomial" => (
            stateful().attr_type("T", dtype).attr_type("output_dtype", DType::Int64),
            vec![cast(dtype, &[4, 10], (0..40).map(|i| i % 7)), Tensor::scalar(50i32).unwrap()],
        ),
        _ if op.starts_with("Stateless") => (
            OpRun::new(op).attr_type("dtype", dtype).attr_type("T", DType::Int32).attr_type("Tseed", DType::Int64),
            vec![length(1001), Tensor::vector(&[seed, seed2]).unwrap()],
        ),
        _ => (stateful().attr_type("dtype", dtype).attr_type("T", DType::Int32), vec![length(70001)]),
    };
    run.run(&registry(), inputs).unwrap().remove(0)
}

#[test]
fn numbers_are_tensorflows() {
    assert!(TABLE.lines().count() > 60);
    for line in TABLE.lines().skip(1) {
        let [op, name, seed, seed2, first, all] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let tensor = run(op, dtype(name), seed.parse().unwrap(), seed2.parse().unwrap());
        let bytes = tensor.as_bytes().unwrap();
        let hex: String = bytes[..first.len() / 2].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, first, "{line}");
        assert_eq!(format!("{:016x}", fnv(bytes)), all, "{line}");
    }
}

#[test]
fn without_seeds_every_kernel_has_numbers_of_its_own() {
    assert_ne!(
        run("RandomUniform", DType::Double, 0, 0).as_bytes().unwrap(),
        run("RandomUniform", DType::Double, 0, 0).as_bytes().unwrap()
    );
}

#[test]
fn keys_and_counters_continue_what_seeds_begin() {
    let registry = registry();
    let seed = Tensor::vector(&[1i64, 2]).unwrap();
    let key = OpRun::new("StatelessRandomGetKeyCounterAlg").attr_type("Tseed", DType::Int64);
    let [key, counter, algorithm] = key.run(&registry, vec![seed]).unwrap().try_into().unwrap();
    let second =
        OpRun::new("StatelessRandomUniformV2").attr_type("dtype", DType::Float).attr_type("Tshape", DType::Int32);
    let shape = Tensor::vector(&[1001]).unwrap();
    let values = second.run(&registry, vec![shape, key, counter, algorithm]).unwrap();
    assert_eq!(values[0].as_bytes(), run("StatelessRandomUniform", DType::Float, 1, 2).as_bytes());
}

fn uniform(shape: Tensor) -> Result<Vec<Tensor>> {
    let op = OpRun::new("RandomUniform").attr_type("dtype", DType::Float).attr_type("T", shape.dtype());
    op.run(&registry(), vec![shape])
}

#[test]
fn shapes_are_checked() {
    for (shape, text) in [
        (Tensor::vector(&[2i32, -1]), "Dimension -1 must be >= 0"),
        (Tensor::scalar(3i32), "shape must be a vector of {int32,int64}, got shape []"),
        (Ok(cast(DType::Int64, &[1, 1], 3..4)), "shape must be a vector of {int32,int64}, got shape [1,1]"),
        (
            Tensor::vector(&[1i64 << 40, 1 << 40]),
            "Shape [1099511627776,1099511627776] would have more than 2**63 - 1 elements",
        ),
    ] {
        let error = uniform(shape.unwrap()).unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::InvalidArgument, text));
    }
    assert_eq!(uniform(Tensor::vector(&[0i32, 4]).unwrap()).unwrap()[0].shape().dims(), [0, 4]);
    let scalar = cast(DType::Int32, &[0], 0..0);
    assert!(uniform(scalar).unwrap()[0].shape().is_scalar());
}

#[test]
fn bounds_are_checked_unless_there_is_nothing_to_draw() {
    let run = |n: i32, low: Tensor, high: Tensor| {
        let op = OpRun::new("RandomUniformInt").attr_type("Tout", DType::Int32).attr_type("T", DType::Int32);
        op.run(&registry(), vec![Tensor::vector(&[n]).unwrap(), low, high])
    };
    let scalar = |v: i32| Tensor::scalar(v).unwrap();
    assert_eq!(run(3, scalar(5), scalar(5)).unwrap_err().message(), "Need minval < maxval, got 5 >= 5");
    assert!(run(0, scalar(5), scalar(5)).is_ok());
    let vector = Tensor::vector(&[5i32]).unwrap();
    assert_eq!(run(3, vector, scalar(7)).unwrap_err().message(), "minval must be 0-D, got shape [1]");
    let all = run(1000, scalar(i32::MIN), scalar(i32::MAX)).unwrap();
    assert!(all[0].as_slice::<i32>().unwrap().iter().any(|&v| v < 0));
}
