//! Every element type that TensorFlow's CPU kernels take has a kernel here, and no other.

use graphmill_formats::{FileSystem, LocalFileSystem};
use graphmill_runtime::Registry;
use graphmill_runtime::testing::kernel_differences;
use std::sync::Arc;

#[test]
fn kernels_are_those_of_the_table() {
    let mut registry = Registry::new();
    let files: Arc<dyn FileSystem> = Arc::new(LocalFileSystem::new());
    graphmill_kernels_string::register(&mut registry, &files);
    let differences = kernel_differences(&registry, include_str!("cpu_kernels.tsv"), &[]);
    assert!(differences.is_empty(), "{differences:#?}");
}
