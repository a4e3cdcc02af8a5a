//! Compiles the schema in `proto/` into Rust types, without a system `protoc`.

use std::path::{Path, PathBuf};
use std::{env, error, fs, io};

use protox::prost::Message;

fn main() -> Result<(), Box<dyn error::Error>> {
    let root = Path::new("proto");
    println!("cargo:rerun-if-changed={}", root.display());

    let mut files = Vec::new();
    collect_protos(root, &mut files)?;
    // A fixed order keeps the generated code the same on every file system.
    files.sort();
    let descriptors = protox::compile(&files, [root])?;

    // Text forms of messages are read by it, and tests compare it with its recorded form.
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;

    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        // A node has many attributes and few of them are tensors or lists: inline, these two would
        // make each attribute several hundred bytes large.
        .boxed(".tensorflow.AttrValue.value.list")
        .boxed(".tensorflow.AttrValue.value.tensor")
        .include_file("all.rs")
        .compile_fds(descriptors)?;
    Ok(())
}

/// Appends every `.proto` file below `dir`.
fn collect_protos(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
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
