//! Describes the messages that settings may be given as, for their text form.

use protox::prost::Message;
use std::path::PathBuf;
use std::{env, error, fs};

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo:rerun-if-changed=../wire/proto");
    let descriptors = protox::compile(["tensorflow/core/protobuf/tensorflow_server.proto"], ["../wire/proto"])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    fs::write(out.join("settings.bin"), descriptors.encode_to_vec())?;
    Ok(())
}
