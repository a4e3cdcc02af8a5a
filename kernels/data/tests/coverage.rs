//! Which ops the family has, against TensorFlow's table of kernels.
// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used)]

use graphmill_formats::{FileSystem, LocalFileSystem};
use graphmill_graph::op_def;
use graphmill_runtime::Registry;
use graphmill_runtime::testing::OpRun;
use graphmill_tensor::{DType, Tensor};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Ops of input pipelines that TensorFlow 2.21 has CPU kernels for; those in the second column are not there.
const TABLE: &str = include_str!("cpu_kernels.tsv");

fn registry() -> Registry {
    let mut registry = Registry::new();
    let files: Arc<dyn FileSystem> = Arc::new(LocalFileSystem::new());
    graphmill_kernels_data::register(&mut registry, &files);
    registry
}

#[test]
fn kernels_are_those_of_the_table() {
    let registry = registry();
    let ours: BTreeSet<&str> = registry.ops().map(|(op, _)| op).collect();
    let mut missing = BTreeSet::new();
    let mut listed = BTreeSet::new();
    for line in TABLE.lines().skip(1) {
        let (op, state) = line.split_once('\t').unwrap();
        listed.insert(op);
        if state == "missing" {
            missing.insert(op);
        }
    }
    assert_eq!(listed.difference(&ours).copied().collect::<BTreeSet<_>>(), missing);
    assert!(ours.is_subset(&listed), "{:?}", ours.difference(&listed));
    for op in ours {
        assert!(op_def(op).is_some(), "{op}");
        // Element types show when a dataset is used, as in TensorFlow.
        assert!(registry.kernels_of(op).iter().all(|kernel| kernel.constraints().is_empty()), "{op}");
    }
}

fn range(registry: &Registry, start: i64, stop: i64, step: i64) -> Tensor {
    let op =
        OpRun::new("RangeDataset").attr_types("output_types", &[DType::Int64]).attr_shapes("output_shapes", &[&[]]);
    op.run(registry, [start, stop, step].map(|n| Tensor::scalar(n).unwrap()).to_vec()).unwrap().remove(0)
}

#[test]
fn cardinalities_of_what_can_be_counted() {
    let registry = registry();
    let count = |dataset: Tensor| -> i64 {
        OpRun::new("DatasetCardinality").run(&registry, vec![dataset]).unwrap()[0].scalar_value().unwrap()
    };
    let by = |op: &str, dataset: Tensor, n: i64| -> Tensor {
        let op = OpRun::new(op).attr_types("output_types", &[DType::Int64]).attr_shapes("output_shapes", &[&[]]);
        op.run(&registry, vec![dataset, Tensor::scalar(n).unwrap()]).unwrap().remove(0)
    };
    let ten = || range(&registry, 0, 10, 1);
    assert_eq!(count(ten()), 10);
    assert_eq!(count(range(&registry, 9, -1, -2)), 5);
    assert_eq!(count(range(&registry, i64::MIN, i64::MAX, 1)), i64::MAX);
    assert_eq!(count(by("TakeDataset", ten(), 4)), 4);
    assert_eq!(count(by("TakeDataset", ten(), -1)), 10);
    assert_eq!(count(by("SkipDataset", ten(), 4)), 6);
    assert_eq!(count(by("SkipDataset", ten(), -1)), 0);
    assert_eq!(count(by("RepeatDataset", ten(), 3)), 30);
    assert_eq!(count(by("RepeatDataset", ten(), -1)), -1);
    assert_eq!(count(by("TakeDataset", by("RepeatDataset", ten(), -1), 7)), 7);
    assert_eq!(count(by("BatchDataset", ten(), 3)), 4);
}

#[test]
fn arguments_are_checked() {
    let registry = registry();
    let error = |op: &str, n: i64| {
        let op = OpRun::new(op).attr_types("output_types", &[DType::Int64]).attr_shapes("output_shapes", &[&[]]);
        let inputs = vec![range(&registry, 0, 10, 1), Tensor::scalar(n).unwrap()];
        op.run(&registry, inputs).unwrap_err().message().to_owned()
    };
    assert_eq!(error("BatchDataset", 0), "Batch size must be greater than zero.");
    assert_eq!(error("PrefetchDataset", -2), "buffer_size must be >= 0 or set buffer_size to be -1 for auto-tuning");
    let step =
        OpRun::new("RangeDataset").attr_types("output_types", &[DType::Int64]).attr_shapes("output_shapes", &[&[]]);
    let zero = step.run(&registry, [0i64, 1, 0].map(|n| Tensor::scalar(n).unwrap()).to_vec()).unwrap_err();
    assert_eq!(zero.message(), "step must be a non-zero integer.");
    let no_dataset = OpRun::new("DatasetCardinality");
    let variant = Tensor::alloc(DType::Variant, graphmill_tensor::Shape::scalar()).unwrap();
    assert_eq!(no_dataset.run(&registry, vec![variant]).unwrap_err().message(), "Tensor must be a Dataset object.");
}
