//! The kernels take the element types that TensorFlow's take.
#![allow(clippy::expect_used)]

use graphmill_runtime::{Registration, Registry};
use std::collections::BTreeSet;

/// Each line: an op, and the values of its type attributes for each of TensorFlow's kernels.
const KERNELS: &str = include_str!("cpu_kernels.tsv");

/// Whether a registration takes types given as `T=float,Tidx=int32`.
fn takes(registration: &Registration, types: &str) -> bool {
    types.split(',').all(|pair| {
        let (attr, name) = pair.split_once('=').expect("a pair");
        // Some of TensorFlow's kernels are told apart by a data format that they leave open.
        attr == "data_format"
            || registration
                .constraints()
                .iter()
                .any(|(a, allowed)| *a == attr && allowed.iter().any(|d| d.name() == name))
            || registration.constraints().iter().all(|(a, _)| *a != attr)
    })
}

#[test]
fn every_type_of_tensorflows_kernels_is_taken() {
    let mut registry = Registry::new();
    graphmill_kernels_nn::register(&mut registry);
    let mut listed = BTreeSet::new();
    for line in KERNELS.lines().skip(1) {
        let (op, kernels) = line.split_once('\t').expect("a tab");
        listed.insert(op);
        for types in kernels.split(" ; ") {
            assert!(registry.kernels_of(op).iter().any(|r| takes(r, types)), "{op} does not take {types}");
        }
    }
    let registered: BTreeSet<&str> = registry.ops().map(|(op, _)| op).collect();
    assert_eq!(registered, listed);
}
