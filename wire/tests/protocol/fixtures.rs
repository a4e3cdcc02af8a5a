//! Reads `tests/data/runtime-fixtures.jsonl`: calls between TensorFlow clients and servers.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use graphmill_wire::service::{MasterMethod, WorkerMethod};
use graphmill_wire::tensorflow as tf;
use prost::bytes::Bytes;
use prost::{DecodeError, Message};
use serde_json::Value;

/// One recorded call.
pub struct Call {
    /// Which recording it belongs to.
    pub case: String,
    /// Path of the method, as it was on the wire.
    pub path: String,
    /// Name of the gRPC status that ended the call.
    pub code: String,
    pub request: Bytes,
    /// Missing where the call ended without a response message.
    pub response: Option<Bytes>,
}

/// Every recorded call, in the order of the file.
pub fn calls() -> Vec<Call> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/runtime-fixtures.jsonl");
    let text = std::fs::read_to_string(path).expect("the fixtures are readable");
    text.lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line).expect("a line is a JSON object");
            let text = |key: &str| record[key].as_str().map(str::to_owned);
            let bytes = |key: &str| text(key).map(|t| Bytes::from(STANDARD.decode(t).expect("the bytes are base64")));
            Call {
                case: text("case").expect("a call has a case"),
                path: text("method").expect("a call has a method"),
                code: text("code").expect("a call has a code"),
                request: bytes("req").expect("a call has a request"),
                response: bytes("resp"),
            }
        })
        .collect()
}

/// Decodes a message and encodes what was understood of it.
pub type Reencode = fn(Bytes) -> Result<Vec<u8>, DecodeError>;

/// What the tests need of a method: its name and the types of its two messages.
pub struct Codec {
    pub method: &'static str,
    pub request: Reencode,
    pub response: Reencode,
}

/// [`Reencode`] of one message type.
pub fn reencode<M: Message + Default>(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    M::decode(bytes).map(|message| message.encode_to_vec())
}

macro_rules! codec {
    ($method:expr, $($enum:ident::$name:ident: $request:ident => $response:ident,)*) => {
        match $method {
            $($enum::$name => Codec {
                method: $method.name(),
                request: reencode::<tf::$request>,
                response: reencode::<tf::$response>,
            },)*
        }
    };
}

/// The codec of the method at `path`.
pub fn codec(path: &str) -> Codec {
    if let Some(method) = MasterMethod::from_path(path) {
        codec! { method,
            MasterMethod::CreateSession: CreateSessionRequest => CreateSessionResponse,
            MasterMethod::ExtendSession: ExtendSessionRequest => ExtendSessionResponse,
            MasterMethod::PartialRunSetup: PartialRunSetupRequest => PartialRunSetupResponse,
            MasterMethod::RunStep: RunStepRequest => RunStepResponse,
            MasterMethod::CloseSession: CloseSessionRequest => CloseSessionResponse,
            MasterMethod::ListDevices: ListDevicesRequest => ListDevicesResponse,
            MasterMethod::Reset: ResetRequest => ResetResponse,
            MasterMethod::MakeCallable: MakeCallableRequest => MakeCallableResponse,
            MasterMethod::RunCallable: RunCallableRequest => RunCallableResponse,
            MasterMethod::ReleaseCallable: ReleaseCallableRequest => ReleaseCallableResponse,
        }
    } else {
        let method = WorkerMethod::from_path(path).expect("the path names a known method");
        codec! { method,
            WorkerMethod::GetStatus: GetStatusRequest => GetStatusResponse,
            WorkerMethod::CreateWorkerSession:
                CreateWorkerSessionRequest => CreateWorkerSessionResponse,
            WorkerMethod::DeleteWorkerSession:
                DeleteWorkerSessionRequest => DeleteWorkerSessionResponse,
            WorkerMethod::RegisterGraph: RegisterGraphRequest => RegisterGraphResponse,
            WorkerMethod::DeregisterGraph: DeregisterGraphRequest => DeregisterGraphResponse,
            WorkerMethod::RunGraph: RunGraphRequest => RunGraphResponse,
            WorkerMethod::CleanupGraph: CleanupGraphRequest => CleanupGraphResponse,
            WorkerMethod::CleanupAll: CleanupAllRequest => CleanupAllResponse,
            WorkerMethod::RecvTensor: RecvTensorRequest => RecvTensorResponse,
            WorkerMethod::RecvBuf: RecvBufRequest => RecvBufResponse,
            WorkerMethod::Logging: LoggingRequest => LoggingResponse,
            WorkerMethod::Tracing: TracingRequest => TracingResponse,
            WorkerMethod::CompleteGroup: CompleteGroupRequest => CompleteGroupResponse,
            WorkerMethod::CompleteInstance: CompleteInstanceRequest => CompleteInstanceResponse,
            WorkerMethod::GetStepSequence: GetStepSequenceRequest => GetStepSequenceResponse,
            WorkerMethod::MarkRecvFinished: MarkRecvFinishedRequest => MarkRecvFinishedResponse,
        }
    }
}
