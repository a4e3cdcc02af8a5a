//! Graphs in files, in binary and in text form.

use graphmill_tensor::{Result, Status, internal, invalid_argument, not_found};
use graphmill_wire::DESCRIPTORS;
use graphmill_wire::tensorflow::{GraphDef, MetaGraphDef};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Reads a graph with what belongs to it. The file may hold a `MetaGraphDef` or a bare `GraphDef`, in binary form or as text.
///
/// # Errors
/// `NOT_FOUND` if there is no such file, `INVALID_ARGUMENT` if it is neither of them.
pub fn load_meta_graph(path: impl AsRef<Path>) -> Result<MetaGraphDef> {
    let path = path.as_ref();
    let bytes = read(path)?;
    parse(&bytes).map_err(|error| in_file(path, error))
}

/// Reads a graph. The file is as for [`load_meta_graph`].
///
/// # Errors
/// As [`load_meta_graph`].
pub fn load_graph(path: impl AsRef<Path>) -> Result<GraphDef> {
    Ok(load_meta_graph(path)?.graph_def.unwrap_or_default())
}

/// An error about the contents of a file.
pub(crate) fn in_file(path: &Path, error: Status) -> Status {
    let text = format!("{}: {}", path.display(), error.message());
    error.with_message(text)
}

/// The contents of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| file_error(path, &error))
}

fn file_error(path: &Path, error: &std::io::Error) -> Status {
    match error.kind() {
        ErrorKind::NotFound => not_found!("{}: there is no such file", path.display()),
        _ => invalid_argument!("{} cannot be read: {error}", path.display()),
    }
}

fn parse(bytes: &[u8]) -> Result<MetaGraphDef> {
    // The two messages can be read as each other, but then make no sense.
    if let Ok(graph) = GraphDef::decode(bytes)
        && graph.node.iter().all(|node| !node.name.is_empty() && !node.op.is_empty())
    {
        return Ok(MetaGraphDef { graph_def: Some(graph), ..Default::default() });
    }
    if let Ok(meta) = MetaGraphDef::decode(bytes)
        && meta.graph_def.is_some()
    {
        return Ok(meta);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(invalid_argument!("This is neither a GraphDef nor a MetaGraphDef"));
    };
    match from_text::<GraphDef>(text, "tensorflow.GraphDef") {
        Ok(graph) => Ok(MetaGraphDef { graph_def: Some(graph), ..Default::default() }),
        Err(error) => from_text::<MetaGraphDef>(text, "tensorflow.MetaGraphDef").map_err(|other| {
            // The texts of the two are not alike: the one that read on for longer is the one that is meant.
            let error = if text.contains("graph_def") { other } else { error };
            invalid_argument!("This is neither a GraphDef nor a MetaGraphDef: {}", error.message())
        }),
    }
}

/// A message from its text form.
///
/// # Errors
/// `INVALID_ARGUMENT` that says what is wrong in the text.
pub(crate) fn from_text<M: Message + Default>(text: &str, name: &str) -> Result<M> {
    let pool = DescriptorPool::decode(DESCRIPTORS).map_err(|error| internal!("The schema cannot be read: {error}"))?;
    let descriptor = pool.get_message_by_name(name).ok_or_else(|| internal!("The schema has no {name}"))?;
    let message = DynamicMessage::parse_text_format(descriptor, text)
        .map_err(|error| invalid_argument!("{error} (as {name})"))?;
    message.transcode_to().map_err(|error| internal!("{name} cannot be read again: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;
    use graphmill_wire::tensorflow::{NodeDef, meta_graph_def::MetaInfoDef};

    fn graph() -> GraphDef {
        let node = |name: &str| NodeDef { name: name.into(), op: "NoOp".into(), ..Default::default() };
        GraphDef { node: vec![node("a"), node("b")], ..Default::default() }
    }

    #[test]
    fn each_form_is_recognised() {
        let info =
            MetaInfoDef { tensorflow_version: "2.21.0".into(), tags: vec!["serve".into()], ..Default::default() };
        let meta = MetaGraphDef { meta_info_def: Some(info), graph_def: Some(graph()), ..Default::default() };
        assert_eq!(parse(&graph().encode_to_vec()).unwrap().graph_def, Some(graph()));
        assert_eq!(parse(&meta.encode_to_vec()).unwrap(), meta);
        let text = "node { name: \"a\" op: \"NoOp\" } # a comment\nnode { name: 'b' op: 'NoOp' }";
        assert_eq!(parse(text.as_bytes()).unwrap().graph_def, Some(graph()));
        let text = format!("meta_info_def {{ tensorflow_version: '2.21.0' tags: 'serve' }} graph_def {{ {text}\n}}");
        assert_eq!(parse(text.as_bytes()).unwrap(), meta);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(parse(b"\xff\xff\xff").unwrap_err().code(), Code::InvalidArgument);
        let error = parse(b"node { name: \"a\"\n op: 7 }").unwrap_err();
        assert!(error.message().contains("expected a string"), "{error}");
        assert_eq!(load_graph("no such file").unwrap_err().code(), Code::NotFound);
        assert_eq!(load_graph("/").unwrap_err().code(), Code::InvalidArgument);
    }
}
