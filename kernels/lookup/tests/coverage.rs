//! Every element type that TensorFlow's CPU kernels take has a kernel here, and no other.
// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used)]

use graphmill_runtime::{Registration, Registry};
use graphmill_tensor::DType;
use std::collections::BTreeMap;

/// Op, then for each kernel of TensorFlow 2.21 its type attributes.
const TABLE: &str = include_str!("cpu_kernels.tsv");

fn dtype(name: &str) -> DType {
    *DType::ALL.iter().find(|d| d.name() == name).unwrap()
}

fn takes(kernel: &Registration, wanted: &[(&str, DType)]) -> bool {
    kernel.constraints().iter().all(|(attr, types)| {
        let wanted = wanted.iter().find(|(name, _)| name == attr);
        wanted.is_some_and(|(_, dtype)| types.contains(dtype))
    })
}

/// How many combinations of types a kernel takes.
fn combinations(kernel: &Registration) -> usize {
    kernel.constraints().iter().map(|(_, types)| types.len()).product()
}

#[test]
fn kernels_are_those_of_the_table() {
    let mut registry = Registry::new();
    graphmill_kernels_lookup::register(&mut registry);
    let mut table = BTreeMap::new();
    for line in TABLE.lines().skip(1) {
        let (op, list) = line.split_once('\t').unwrap();
        let combination = |text: &'static str| -> Vec<(&str, DType)> {
            text.split(',').filter_map(|pair| pair.split_once('=')).map(|(a, d)| (a, dtype(d))).collect()
        };
        table.insert(op, list.split(" ; ").map(combination).collect::<Vec<_>>());
    }
    for (op, wanted) in &table {
        for wanted in wanted {
            let found = registry.kernels_of(op).iter().filter(|k| takes(k, wanted)).count();
            assert_eq!(found, 1, "{op} {wanted:?}");
        }
    }
    for (op, kernels) in registry.ops() {
        let count: usize = kernels.iter().map(combinations).sum();
        assert_eq!(table.get(op).map(Vec::len), Some(count), "{op}");
    }
}
