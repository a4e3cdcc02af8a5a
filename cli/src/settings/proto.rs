//! Settings as TensorFlow's messages: in binary form, as text, or binary in base64.

use anyhow::{Context, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use graphmill_wire::tensorflow::ConfigProto;
use prost::Message;
use prost_reflect::text_format::ParseError;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use std::path::Path;

/// Errors behind this line are said to be in the last one.
const MAX_LINES: usize = 200;

static DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/settings.bin"));

/// The message of a file, of the type that is called `name`.
///
/// # Errors
/// If the file cannot be read or is no such message; a text says where.
pub fn read_file<M: Message + Default>(path: &Path, name: &str) -> Result<M> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let message = match std::str::from_utf8(&bytes) {
        Ok(text) if is_text(text) => parse_text(text, name),
        _ => M::decode(&bytes[..]).map_err(|error| anyhow!("it is not a {name} in binary form: {error}")),
    };
    message.with_context(|| format!("cannot use {}", path.display()))
}

/// Settings of sessions: the name of a file, or the binary form in base64.
///
/// # Errors
/// If it is neither.
pub fn session_config(text: &str) -> Result<ConfigProto> {
    let path = Path::new(text);
    if path.exists() {
        return read_file(path, "ConfigProto");
    }
    let neither = || format!("{text:?} is neither a file nor a ConfigProto in base64");
    let bytes = STANDARD.decode(text.trim()).with_context(neither)?;
    ConfigProto::decode(&bytes[..]).with_context(neither)
}

/// The binary form in base64.
pub fn to_base64(config: &ConfigProto) -> String {
    STANDARD.encode(config.encode_to_vec())
}

/// The text form, in one line.
///
/// # Errors
/// If the built-in descriptors are damaged.
pub fn to_text(config: &ConfigProto) -> Result<String> {
    let message = DynamicMessage::decode(descriptor("ConfigProto")?, &config.encode_to_vec()[..])?;
    Ok(message.to_text_format())
}

/// Binary messages have control characters among their first bytes.
fn is_text(text: &str) -> bool {
    text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'))
}

fn parse_text<M: Message + Default>(text: &str, name: &str) -> Result<M> {
    let descriptor = descriptor(name)?;
    let message = DynamicMessage::parse_text_format(descriptor.clone(), text).map_err(|error| {
        let line = line_of(text, &error, &descriptor);
        anyhow!("line {line}: it is not a {name} in text form: {error}")
    })?;
    Ok(M::decode(&message.encode_to_vec()[..])?)
}

/// The line of an error, which the reader keeps to itself: the first lines of the text that give the same error end with it.
fn line_of(text: &str, error: &ParseError, descriptor: &MessageDescriptor) -> usize {
    let error = error.to_string();
    let ends = text.match_indices('\n').map(|(at, _)| at).take(MAX_LINES);
    let same = |end: usize| {
        let start = text.get(..end).unwrap_or(text);
        DynamicMessage::parse_text_format(descriptor.clone(), start).is_err_and(|other| other.to_string() == error)
    };
    let lines = text.lines().count().max(1);
    ends.enumerate().find(|&(_, end)| same(end)).map_or(lines, |(before, _)| before + 1)
}

fn descriptor(name: &str) -> Result<MessageDescriptor> {
    let pool = DescriptorPool::decode(DESCRIPTORS).context("the built-in descriptors are damaged")?;
    let descriptor = pool.get_message_by_name(&format!("tensorflow.{name}"));
    descriptor.with_context(|| format!("there is no message {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_wire::tensorflow::ServerDef;

    fn written(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn all_forms_are_read() {
        let config = ConfigProto { allow_soft_placement: true, operation_timeout_in_ms: 50, ..Default::default() };
        let text = written(b"# comment\nallow_soft_placement: true\noperation_timeout_in_ms: 50\n");
        let binary = written(&config.encode_to_vec());
        for given in [text.path().to_str().unwrap(), binary.path().to_str().unwrap(), &to_base64(&config)] {
            assert_eq!(session_config(given).unwrap(), config, "{given}");
        }
        assert_eq!(to_text(&config).unwrap(), "allow_soft_placement:true,operation_timeout_in_ms:50");
        let server = ServerDef { job_name: "ps".to_owned(), port: 7, ..Default::default() };
        let binary = written(&server.encode_to_vec());
        assert_eq!(read_file::<ServerDef>(binary.path(), "ServerDef").unwrap(), server);
    }

    #[test]
    fn errors_name_file_and_line() {
        let text = written(b"allow_soft_placement: true\nno_such_field: 1\n");
        let error = format!("{:#}", read_file::<ConfigProto>(text.path(), "ConfigProto").unwrap_err());
        assert!(error.contains(text.path().to_str().unwrap()), "{error}");
        assert!(error.contains("line 2") && error.contains("no_such_field"), "{error}");
        assert!(session_config("/no/such/file").is_err());
        assert!(session_config("bm9uc2Vuc2U=").is_err());
    }
}
