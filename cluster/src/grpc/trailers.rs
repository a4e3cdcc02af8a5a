//! Statuses as gRPC trailers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use graphmill_tensor::{Code, Status, unknown};
use graphmill_wire::tensorflow::distributed_runtime::GrpcPayloadContainer;
use http::{HeaderMap, HeaderValue};
use prost::Message;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Longest text of a status that travels as a trailer, in bytes. Callers limit the size of all headers together.
const MAX_TEXT: usize = 3072;

/// The trailers of a call that succeeded.
pub(super) fn ok() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers
}

/// Adds the trailers of a call that failed: code, text, and the payloads, which TensorFlow puts into a container of its own
/// instead of gRPC's `google.rpc.Status`.
pub(super) fn insert(trailers: &mut HeaderMap, status: &Status) {
    trailers.insert("grpc-status", HeaderValue::from(status.code() as i32));
    // Percent encoding leaves only characters that a header may hold.
    if let Ok(text) = HeaderValue::from_str(&percent_encoded(&shortened(status.message()))) {
        trailers.insert("grpc-message", text);
    }
    if !status.payloads().is_empty() {
        let mut container = GrpcPayloadContainer::default();
        for (key, value) in status.payloads() {
            container.payloads.entry(key.clone()).or_insert_with(|| value.clone());
        }
        if let Ok(details) = HeaderValue::from_str(&STANDARD_NO_PAD.encode(container.encode_to_vec())) {
            trailers.insert("grpc-status-details-bin", details);
        }
    }
}

/// The status that the trailers of an answer carry; `None` for success.
pub(super) fn status(trailers: &HeaderMap) -> Option<Status> {
    let Some(code) = trailers.get("grpc-status") else {
        return Some(unknown!("The answer has no status"));
    };
    let code = code.to_str().ok().and_then(|digits| digits.parse().ok()).map_or(Code::Unknown, Code::from_number);
    if code == Code::Ok {
        return None;
    }
    let text = trailers.get("grpc-message").map(|text| percent_decoded(text.as_bytes())).unwrap_or_default();
    // What TensorFlow's servers give when the connection breaks under a call.
    let code = if code == Code::Unknown && text.contains("Stream removed") { Code::Unavailable } else { code };
    let mut status = Status::new(code, text);
    for (key, value) in payloads(trailers).into_iter().flatten() {
        status = status.with_payload(&key, value);
    }
    Some(status)
}

fn payloads(trailers: &HeaderMap) -> Option<BTreeMap<String, Bytes>> {
    let details = trailers.get("grpc-status-details-bin")?.as_bytes();
    // Padding is optional.
    let unpadded = details.split(|&byte| byte == b'=').next()?;
    let bytes = STANDARD_NO_PAD.decode(unpadded).ok()?;
    GrpcPayloadContainer::decode(bytes.as_slice()).ok().map(|container| container.payloads)
}

fn percent_decoded(text: &[u8]) -> String {
    let digit = |at: usize| text.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn shortened(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= MAX_TEXT {
        return text.into();
    }
    format!("{} ... [truncated]", &text[..text.floor_char_boundary(MAX_TEXT)]).into()
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::payload;

    fn trailers(status: &Status) -> HeaderMap {
        let mut map = HeaderMap::new();
        insert(&mut map, status);
        map
    }

    #[test]
    fn texts_are_encoded_and_cut() {
        let map = trailers(&Status::new(Code::Aborted, "a%\n\té"));
        assert_eq!(map["grpc-status"], "10");
        assert_eq!(map["grpc-message"], "a%25%0A%09%C3%A9");
        let map = trailers(&Status::new(Code::Internal, "x".repeat(4000)));
        let text = map["grpc-message"].to_str().unwrap();
        assert_eq!(text, format!("{} ... [truncated]", "x".repeat(3072)));
        // The limit falls into the second of two bytes.
        let map = trailers(&Status::new(Code::Internal, format!("{}é", "x".repeat(3071))));
        assert_eq!(map["grpc-message"], format!("{} ... [truncated]", "x".repeat(3071)).as_str());
    }

    #[test]
    fn payloads_are_in_a_container() {
        let map = trailers(&Status::new(Code::Cancelled, "x").with_payload(payload::DERIVED, Bytes::from_static(b"v")));
        let bytes = STANDARD_NO_PAD.decode(map["grpc-status-details-bin"].as_bytes()).unwrap();
        let container = GrpcPayloadContainer::decode(bytes.as_slice()).unwrap();
        assert_eq!(container.payloads[payload::DERIVED].as_ref(), b"v");
        assert!(!trailers(&Status::new(Code::Cancelled, "x")).contains_key("grpc-status-details-bin"));
    }

    #[test]
    fn statuses_come_back() {
        let sent = Status::new(Code::Aborted, "a%\n\té %zz").with_payload(payload::DERIVED, Bytes::from_static(b"v"));
        let came = status(&trailers(&sent)).unwrap();
        assert_eq!((came.code(), came.message(), came.payloads()), (sent.code(), sent.message(), sent.payloads()));
        assert!(status(&ok()).is_none());
        assert_eq!(status(&HeaderMap::new()).unwrap().code(), Code::Unknown);
        let lost = trailers(&Status::new(Code::Unknown, "Stream removed"));
        assert_eq!(status(&lost).unwrap().code(), Code::Unavailable);
    }
}
