//! Texts that were damaged are decoded or refused.
// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../formats/tests/damage/mod.rs"]
mod damage;

use damage::{Damage, check};
use graphmill_formats::{FileSystem, LocalFileSystem};
use graphmill_runtime::Registry;
use graphmill_runtime::testing::OpRun;
use graphmill_tensor::{Bytes, Shape, Tensor};
use std::sync::Arc;

#[test]
fn base64() {
    let mut registry = Registry::new();
    let files: Arc<dyn FileSystem> = Arc::new(LocalFileSystem::new());
    graphmill_kernels_string::register(&mut registry, &files);
    let op = OpRun::new("DecodeBase64");
    for valid in ["TWFueSBoYW5kcyBtYWtlIGxpZ2h0IHdvcmsu", "-_8=", "YQ=="] {
        let mut damage = Damage::new(valid.len() as u64);
        let damaged = || damage.of(valid.as_bytes());
        check(
            4000,
            damaged,
            |file| (1 << 20) + 16 * file.len(),
            |file| {
                let text = Tensor::from_strings(Shape::scalar(), vec![Bytes::from(file.clone())])?;
                op.run(&registry, vec![text])
            },
        );
    }
}
