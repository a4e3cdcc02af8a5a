//! Compiles the schema in `proto/` into Rust types, without a system `protoc`.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("proto");
    println!("cargo:rerun-if-changed={}", root.display());

    let mut files = Vec::new();
    collect_protos(root, &mut files)?;
    // A fixed order keeps the generated code the same on every file system.
    files.sort();

    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        .boxed(".tensorflow.AttrValue.value.list")
        .boxed(".tensorflow.AttrValue.value.tensor")
        .include_file("all.rs")
        .compile_fds(protox::compile(&files, [root])?)?;
    Ok(())
}

/// Appends every `.proto` file below `dir`.
fn collect_protos(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_protos(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
