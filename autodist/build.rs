//! Compiles the schema of strategies in `proto/` into Rust types, without a system `protoc`.

use std::error::Error;

const FILES: [&str; 3] = ["synchronizers", "strategy", "graphitem"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = FILES.map(|name| format!("autodist/proto/{name}.proto"));
    let descriptors = protox::compile(files, ["proto"])?;
    // Ordered maps make the bytes of a message depend on its contents alone.
    prost_build::Config::new().btree_map(["."]).include_file("autodist.rs").compile_fds(descriptors)?;
    Ok(())
}
