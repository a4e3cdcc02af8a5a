//! Ops that make readers.

use super::resource::Reader;
use super::source::Format;
use graphmill_formats::{Compression, FileSystem, FixedLength};
use graphmill_runtime::{Construction, Context, Kernel, OwnedResource, Registry};
use graphmill_tensor::{Result, invalid_argument};
use std::sync::Arc;

type Parse = fn(&Construction<'_>) -> Result<Format>;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    let ops: [(&'static str, &'static str, Parse); 5] = [
        ("IdentityReader", "IdentityReaderV2", |_| Ok(Format::Identity)),
        ("WholeFileReader", "WholeFileReaderV2", |_| Ok(Format::WholeFile)),
        ("TFRecordReader", "TFRecordReaderV2", records),
        ("TextLineReader", "TextLineReaderV2", lines),
        ("FixedLengthRecordReader", "FixedLengthRecordReaderV2", fixed_length),
    ];
    for (kind, newer, parse) in ops {
        for op in [kind, newer] {
            let files = files.clone();
            registry.op(op).kernel(move |c| MakeReader::new(c, files.clone(), kind, parse));
        }
    }
    let files = files.clone();
    registry.op("LMDBReader").kernel(move |c| MakeReader::new(c, files.clone(), "LMDBReader", |_| Ok(Format::Lmdb)));
}

/// Gives out the handle of a reader, which it makes when it first runs.
struct MakeReader {
    owned: OwnedResource<Reader>,
    files: Arc<dyn FileSystem>,
    kind: &'static str,
    node: String,
    format: parking_lot::Mutex<Option<Format>>,
}

impl MakeReader {
    fn new(c: &Construction<'_>, files: Arc<dyn FileSystem>, kind: &'static str, parse: Parse) -> Result<MakeReader> {
        let format = parking_lot::Mutex::new(Some(parse(c)?));
        Ok(MakeReader { owned: OwnedResource::new(c, false)?, files, kind, node: c.name().to_owned(), format })
    }
}

impl Kernel for MakeReader {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let create = || {
            let format = self.format.lock().take();
            let format = format.ok_or_else(|| invalid_argument!("the reader {} has been removed", self.node))?;
            Ok(Reader::new(self.files.clone(), self.kind, &self.node, format))
        };
        self.owned.give_out(ctx, create, |_| Ok(()))
    }
}

/// An unknown compression is none, as in TensorFlow.
fn compression(name: &[u8]) -> Compression {
    Compression::from_name(name).unwrap_or(Compression::None)
}

fn records(c: &Construction<'_>) -> Result<Format> {
    Ok(Format::Records(compression(c.attrs().string("compression_type")?)))
}

fn lines(c: &Construction<'_>) -> Result<Format> {
    let skipped = c.attrs().int("skip_header_lines")?;
    match usize::try_from(skipped) {
        Ok(skipped) => Ok(Format::Lines(skipped)),
        Err(_) => Err(invalid_argument!("skip_header_lines must be >= 0 not {skipped}")),
    }
}

fn fixed_length(c: &Construction<'_>) -> Result<Format> {
    let bytes = |name| c.attrs().int(name);
    let layout =
        FixedLength::new(bytes("header_bytes")?, bytes("record_bytes")?, bytes("footer_bytes")?, bytes("hop_bytes")?)?;
    let encoding = if c.attrs().has("encoding") { c.attrs().string("encoding")? } else { b"" };
    Ok(Format::FixedLength(layout, compression(encoding)))
}
