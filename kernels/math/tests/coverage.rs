//! Every element type that TensorFlow's CPU kernels take has a kernel here, and no other.
#![allow(clippy::unwrap_used)]

use graphmill_runtime::{Registration, Registry};
use graphmill_tensor::DType;
use std::collections::BTreeMap;

/// Op, then for each kernel of TensorFlow 2.21 its type attributes.
const TABLE: &str = include_str!("cpu_kernels.tsv");
/// Kernels of ops that TensorFlow replaces before it looks for a kernel.
const OWN: [&str; 1] = ["AccumulateNV2"];

fn dtype(name: &str) -> DType {
    *DType::ALL.iter().find(|d| d.name() == name).unwrap()
}

fn takes(kernel: &Registration, wanted: &[(&str, DType)]) -> bool {
    kernel.constraints().iter().all(|(attr, types)| {
        let wanted = wanted.iter().find(|(name, _)| name == attr);
        wanted.is_some_and(|(_, dtype)| types.contains(dtype))
    })
}

#[test]
fn kernels_are_those_of_the_table() {
    let mut registry = Registry::new();
    graphmill_kernels_math::register(&mut registry);
    let mut table: BTreeMap<&str, Vec<Vec<(&str, DType)>>> = BTreeMap::new();
    for line in TABLE.lines() {
        let (op, combinations) = line.split_once('\t').unwrap();
        let combination = |text: &'static str| -> Vec<(&str, DType)> {
            text.split(',').filter_map(|pair| pair.split_once('=')).map(|(a, d)| (a, dtype(d))).collect()
        };
        table.insert(op, combinations.split(" ; ").map(combination).collect());
    }
    for (op, combinations) in &table {
        for wanted in combinations {
            let found = registry.kernels_of(op).iter().filter(|k| takes(k, wanted)).count();
            assert_eq!(found, 1, "{op} {wanted:?}");
        }
    }
    for (op, kernels) in registry.ops().filter(|(op, _)| !OWN.contains(op)) {
        assert_eq!(kernels.len(), table[op].len(), "{op}");
    }
}
