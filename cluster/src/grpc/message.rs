//! The one message of a request or an answer, off the wire.

use super::MAX_MESSAGE;
use bytes::{Buf, Bytes};
use flate2::read::{GzDecoder, ZlibDecoder};
use graphmill_tensor::{Result, Status, cancelled, internal, resource_exhausted, unimplemented_op};
use http::HeaderMap;
use http_body_util::BodyExt;
use std::fmt::Display;
use std::io::Read;
use tonic::body::Body;

/// Memory that is set aside for a message on the word of its header alone. Longer messages grow their memory as they arrive.
const TRUSTED_LENGTH: usize = 64 << 20;

/// How a compressed message is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    Deflate,
}

impl Encoding {
    /// What the request says.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` for an encoding that the server does not have.
    pub(super) fn of(headers: &HeaderMap) -> Result<Encoding> {
        match headers.get("grpc-encoding").map(|value| value.as_bytes()) {
            None | Some(b"identity") => Ok(Encoding::Identity),
            Some(b"gzip") => Ok(Encoding::Gzip),
            Some(b"deflate") => Ok(Encoding::Deflate),
            Some(other) => Err(unimplemented_op!(
                "Messages cannot be compressed with `{}` here, but with gzip or deflate",
                String::from_utf8_lossy(other)
            )),
        }
    }
}

/// Reads the message of a unary request to the end of the stream.
///
/// # Errors
/// `INTERNAL` for a stream that does not hold exactly one message, `RESOURCE_EXHAUSTED` for one beyond [`MAX_MESSAGE`].
pub(super) async fn read_message(body: &mut Body, encoding: Encoding) -> Result<Bytes> {
    let mut stream = MessageStream::new(body);
    let message = stream.message(encoding).await?.ok_or_else(|| internal!("The request has no message"))?;
    stream.end().await?;
    Ok(message)
}

/// Reads an answer to the end of the stream: the message, which one that failed lacks, and the trailers.
///
/// # Errors
/// As [`read_message`].
pub(super) async fn read_answer<B>(body: &mut B, encoding: Encoding) -> Result<(Option<Bytes>, HeaderMap)>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    let mut stream = MessageStream::new(body);
    let message = stream.message(encoding).await?;
    stream.end().await?;
    Ok((message, stream.trailers))
}

/// A body of which the message, the end and the trailers are read in turn.
struct MessageStream<'a, B> {
    body: &'a mut B,
    /// What has come behind the message.
    rest: Bytes,
    trailers: HeaderMap,
}

impl<'a, B> MessageStream<'a, B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    fn new(body: &'a mut B) -> MessageStream<'a, B> {
        MessageStream { body, rest: Bytes::new(), trailers: HeaderMap::new() }
    }

    async fn message(&mut self, encoding: Encoding) -> Result<Option<Bytes>> {
        let Some(mut data) = self.next_data().await? else { return Ok(None) };
        while data.len() < 5 {
            let more = self.next_data().await?.ok_or_else(truncated)?;
            data = [data, more].concat().into();
        }
        let compressed = data.get_u8();
        let length = data.get_u32() as usize;
        if length > MAX_MESSAGE {
            return Err(resource_exhausted!("Received message larger than max ({length} vs. {MAX_MESSAGE})"));
        }
        let message =
            if data.len() >= length { data.split_to(length) } else { self.assemble(&mut data, length).await? };
        self.rest = data;
        match (compressed, encoding) {
            (0, _) => Ok(Some(message)),
            (1, Encoding::Gzip) => unpack(GzDecoder::new(message.as_ref())).map(Some),
            (1, Encoding::Deflate) => unpack(ZlibDecoder::new(message.as_ref())).map(Some),
            (1, Encoding::Identity) => Err(internal!("A compressed message came without the name of its encoding")),
            (flag, _) => Err(internal!("A message came with the unknown flag {flag}")),
        }
    }

    /// Puts a message together that came in several frames. `data` is its beginning, and then what came behind the message.
    async fn assemble(&mut self, data: &mut Bytes, length: usize) -> Result<Bytes> {
        let mut message = Vec::new();
        loop {
            let part = data.split_to(data.len().min(length - message.len()));
            if message.capacity() - message.len() < part.len() {
                // At least as much again, but never more than the message needs.
                let more = message.len().max(TRUSTED_LENGTH).max(part.len()).min(length - message.len());
                message
                    .try_reserve_exact(more)
                    .map_err(|_| resource_exhausted!("There is no memory for a message of {length} bytes"))?;
            }
            message.extend_from_slice(&part);
            if message.len() == length {
                return Ok(message.into());
            }
            *data = self.next_data().await?.ok_or_else(truncated)?;
        }
    }

    /// Checks that nothing follows the message, and reads on to the trailers.
    async fn end(&mut self) -> Result<()> {
        if !self.rest.is_empty() || self.next_data().await?.is_some() {
            return Err(internal!("More than one message came where one was expected"));
        }
        Ok(())
    }

    /// The next piece of the body that is not empty.
    async fn next_data(&mut self) -> Result<Option<Bytes>> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(cancelled!("The stream broke off: {error}")),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Ok(Some(data)),
                    Ok(_) => {}
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            self.trailers = trailers;
                        }
                    }
                },
            }
        }
    }
}

fn truncated() -> Status {
    internal!("The stream ended within its message")
}

fn unpack(reader: impl Read) -> Result<Bytes> {
    let mut message = Vec::new();
    let limit = MAX_MESSAGE as u64 + 1;
    reader
        .take(limit)
        .read_to_end(&mut message)
        .map_err(|error| internal!("A compressed message is damaged: {error}"))?;
    if message.len() > MAX_MESSAGE {
        return Err(resource_exhausted!("Received message that unpacks to more than {MAX_MESSAGE} bytes"));
    }
    Ok(message.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;
    use http_body_util::StreamBody;
    use std::convert::Infallible;
    use std::io::Write;

    fn body(parts: &[&[u8]]) -> Body {
        let frames: Vec<_> = parts
            .iter()
            .map(|part| Ok::<_, Infallible>(http_body::Frame::data(Bytes::copy_from_slice(part))))
            .collect();
        Body::new(StreamBody::new(tokio_stream::iter(frames)))
    }

    fn read_as(parts: &[&[u8]], encoding: Encoding) -> Result<Bytes> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(read_message(&mut body(parts), encoding))
    }

    fn read(parts: &[&[u8]]) -> Result<Bytes> {
        read_as(parts, Encoding::Identity)
    }

    fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
        let mut all = vec![flag];
        all.extend((message.len() as u32).to_be_bytes());
        all.extend(message);
        all
    }

    #[test]
    fn a_message_in_any_pieces() {
        let all = framed(0, b"hello");
        assert_eq!(read(&[&all]).unwrap().as_ref(), b"hello");
        for cut in 1..all.len() {
            let (a, b) = all.split_at(cut);
            assert_eq!(read(&[a, &[], b]).unwrap().as_ref(), b"hello", "{cut}");
        }
        let bytes: Vec<&[u8]> = all.chunks(1).collect();
        assert_eq!(read(&bytes).unwrap().as_ref(), b"hello");
        assert!(read(&[&framed(0, b"")]).unwrap().is_empty());
    }

    #[test]
    fn what_is_not_one_message_is_refused() {
        let all = framed(0, b"hello");
        for parts in [&[][..], &[&[0][..]], &[&all[..5]], &[&all[..9]], &[&all, b"x"], &[&all, &all]] {
            assert_eq!(read(parts).unwrap_err().code(), Code::Internal, "{parts:?}");
        }
        assert_eq!(read(&[&framed(2, b"hello")]).unwrap_err().code(), Code::Internal);
        assert_eq!(read(&[&framed(1, b"hello")]).unwrap_err().code(), Code::Internal);
        // A header that announces 2 GiB costs no memory until the bytes come.
        assert_eq!(read(&[&[0, 0x7f, 0xff, 0xff, 0xff, 1]]).unwrap_err().code(), Code::Internal);
        assert_eq!(read(&[&[0, 0x80, 0, 0, 0, 1]]).unwrap_err().code(), Code::ResourceExhausted);
    }

    #[test]
    fn compressed_messages() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        gzip.write_all(b"hello").unwrap();
        let gzip = gzip.finish().unwrap();
        assert_eq!(read_as(&[&framed(1, &gzip)], Encoding::Gzip).unwrap().as_ref(), b"hello");
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
        zlib.write_all(b"hello").unwrap();
        let zlib = zlib.finish().unwrap();
        assert_eq!(read_as(&[&framed(1, &zlib)], Encoding::Deflate).unwrap().as_ref(), b"hello");
        assert_eq!(read_as(&[&framed(0, b"plain")], Encoding::Gzip).unwrap().as_ref(), b"plain");
        for damaged in [&framed(1, b"hello")[..], &framed(1, &gzip[..gzip.len() - 1]), &framed(1, &zlib)] {
            assert_eq!(read_as(&[damaged], Encoding::Gzip).unwrap_err().code(), Code::Internal);
        }
    }

    #[test]
    fn encodings() {
        let of = |value: &'static str| {
            Encoding::of(&HeaderMap::from_iter([(
                http::header::HeaderName::from_static("grpc-encoding"),
                http::HeaderValue::from_static(value),
            )]))
        };
        assert_eq!(of("gzip").unwrap(), Encoding::Gzip);
        assert_eq!(of("deflate").unwrap(), Encoding::Deflate);
        assert_eq!(of("identity").unwrap(), Encoding::Identity);
        assert_eq!(of("snappy").unwrap_err().code(), Code::Unimplemented);
        assert_eq!(Encoding::of(&HeaderMap::new()).unwrap(), Encoding::Identity);
    }
}
