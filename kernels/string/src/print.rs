//! `PrintV2`: writes a string to a stream of the server, or to a file.

use graphmill_formats::FileSystem;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Code, Result, Status, invalid_argument};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    let files = files.clone();
    registry.op("PrintV2").kernel(move |c| Print::new(c, files.clone()));
}

enum Target {
    Stdout,
    Stderr,
    Info,
    Warning,
    Error,
    File(PathBuf),
}

struct Print {
    files: Arc<dyn FileSystem>,
    target: Target,
    end: Vec<u8>,
}

impl Print {
    fn new(c: &Construction<'_>, files: Arc<dyn FileSystem>) -> Result<Print> {
        let target = match c.attrs().str("output_stream")? {
            "stdout" => Target::Stdout,
            "stderr" => Target::Stderr,
            "log(info)" => Target::Info,
            "log(warning)" => Target::Warning,
            "log(error)" => Target::Error,
            other => match other.strip_prefix("file://") {
                Some(path) => Target::File(Path::new(path).to_owned()),
                None => {
                    return Err(invalid_argument!(
                        "Unknown output stream: {other}, Valid streams are: stdout stderr log(info) log(warning) log(error)"
                    ));
                }
            },
        };
        Ok(Print { files, target, end: c.attrs().string("end")?.to_vec() })
    }
}

impl Kernel for Print {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let [text] = input.strings()? else {
            return Err(invalid_argument!("Input is expected to be scalar, but got {}", input.shape()));
        };
        let message = [&text[..], &self.end[..]].concat();
        let written = match &self.target {
            Target::Stdout => std::io::stdout().write_all(&message),
            Target::Stderr => std::io::stderr().write_all(&message),
            Target::File(path) => {
                let mut file = self.files.append(path)?;
                file.write(&message)?;
                return file.close();
            }
            Target::Info => {
                tracing::info!("{}", String::from_utf8_lossy(&message));
                Ok(())
            }
            Target::Warning => {
                tracing::warn!("{}", String::from_utf8_lossy(&message));
                Ok(())
            }
            Target::Error => {
                tracing::error!("{}", String::from_utf8_lossy(&message));
                Ok(())
            }
        };
        written.map_err(|error| Status::new(Code::Unknown, format!("cannot print: {error}")))
    }
}
