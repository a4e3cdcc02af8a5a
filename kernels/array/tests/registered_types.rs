//! The kernels take the element types that TensorFlow's take.

#![allow(clippy::unwrap_used)]

use graphmill_runtime::Registry;
use graphmill_tensor::DType;

const TABLE: &str = include_str!("cpu_kernels.tsv");

/// Ops that TensorFlow registers for every device, so that the table of CPU kernels does not list them.
const EVERY_DEVICE: &[&str] = &["IdentityN"];

fn dtype(name: &str) -> DType {
    DType::ALL.iter().copied().find(|d| d.name() == name).unwrap()
}

/// Type attributes and types of one kernel.
type Combination = Vec<(&'static str, DType)>;

/// For each op, the combinations that have a kernel.
fn table() -> Vec<(&'static str, Vec<Combination>)> {
    let combination = |text: &'static str| {
        let pairs = text.split(',').filter_map(|pair| pair.split_once('=')).filter(|(_, name)| !name.is_empty());
        pairs.map(|(attr, name)| (attr, dtype(name))).collect()
    };
    let line = |line: &'static str| {
        let (op, list) = line.split_once('\t').unwrap();
        (op, list.split(" ; ").filter(|c| !c.is_empty()).map(combination).collect())
    };
    TABLE.lines().skip(1).map(line).collect()
}

#[test]
fn every_listed_combination_has_a_kernel_and_no_other() {
    let mut registry = Registry::new();
    graphmill_kernels_array::register(&mut registry);
    let table = table();
    assert!(table.len() > 100);
    for (op, combinations) in &table {
        let kernels = registry.kernels_of(op);
        let kernels_for = |combination: &[(&str, DType)]| {
            let takes = |(attr, allowed): &(&str, Vec<DType>)| {
                combination.iter().any(|(name, dtype)| name == attr && allowed.contains(dtype))
            };
            kernels.iter().filter(|k| k.constraints().iter().all(takes)).count()
        };
        if combinations.is_empty() {
            assert_eq!(kernels.len(), 1, "{op}");
            assert!(kernels[0].constraints().is_empty(), "{op}");
            continue;
        }
        for combination in combinations {
            assert_eq!(kernels_for(combination), 1, "{op} {combination:?}");
        }
        let registered: usize =
            kernels.iter().map(|k| k.constraints().iter().map(|(_, allowed)| allowed.len()).product::<usize>()).sum();
        assert_eq!(registered, combinations.len(), "{op}");
    }
    for (op, _) in registry.ops() {
        assert!(
            EVERY_DEVICE.contains(&op) || table.iter().any(|(listed, _)| *listed == op),
            "{op} is not in the table"
        );
    }
}
