//! Every element type that TensorFlow's CPU kernels take has a kernel here, and no other.

use graphmill_runtime::Registry;
use graphmill_runtime::testing::kernel_differences;

#[test]
fn kernels_are_those_of_the_table() {
    let mut registry = Registry::new();
    graphmill_kernels_collective::register(&mut registry);
    let differences = kernel_differences(&registry, include_str!("cpu_kernels.tsv"), &[]);
    assert!(differences.is_empty(), "{differences:#?}");
}
