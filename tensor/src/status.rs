//! The one error type of graphmill.

use bytes::Bytes;
use std::fmt;

/// Result with graphmill's error type.
pub type Result<T, E = Status> = std::result::Result<T, E>;

/// Keys of the payloads that TensorFlow's masters and workers look for in an error.
pub mod payload {
    /// Marks an error that is only the consequence of another one.
    pub const DERIVED: &str = "type.googleapis.com/tensorflow.DerivedStatus";
    /// Marks an error whose likely reason is a restarted worker.
    pub const WORKER_POSSIBLY_RESTARTED: &str =
        "type.googleapis.com/tensorflow.distributed_runtime.WorkerPossiblyRestarted";
}

/// Status codes of TensorFlow, which are those of gRPC (`tensorflow.error.Code`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// The code of a number off the wire; numbers that TensorFlow does not define are `Unknown`.
    pub fn from_number(number: i32) -> Code {
        use Code::*;
        const ALL: [Code; 17] = [
            Ok,
            Cancelled,
            Unknown,
            InvalidArgument,
            DeadlineExceeded,
            NotFound,
            AlreadyExists,
            PermissionDenied,
            ResourceExhausted,
            FailedPrecondition,
            Aborted,
            OutOfRange,
            Unimplemented,
            Internal,
            Unavailable,
            DataLoss,
            Unauthenticated,
        ];
        usize::try_from(number).ok().and_then(|n| ALL.get(n)).copied().unwrap_or(Unknown)
    }

    /// The name as TensorFlow prints it, such as `INVALID_ARGUMENT`.
    pub fn name(self) -> &'static str {
        match self {
            Code::Ok => "OK",
            Code::Cancelled => "CANCELLED",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
            Code::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

/// An error: a TensorFlow status code, a text for people (and for clients that parse it), and payloads.
#[derive(Clone, PartialEq)]
pub struct Status(Box<Inner>);

#[derive(Clone, PartialEq)]
struct Inner {
    code: Code,
    message: String,
    payloads: Vec<(String, Bytes)>,
}

impl Status {
    /// An error with a code other than `Ok`.
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status(Box::new(Inner { code, message: message.into(), payloads: Vec::new() }))
    }

    /// The status code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The text.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The payloads: type url and serialized message.
    pub fn payloads(&self) -> &[(String, Bytes)] {
        &self.0.payloads
    }

    /// Adds a payload; an earlier one with this key stays first and wins.
    pub fn with_payload(mut self, key: &str, value: Bytes) -> Status {
        self.0.payloads.push((key.to_owned(), value));
        self
    }

    /// Marks this error as the consequence of another one, which aggregation then hides.
    pub fn derived(self) -> Status {
        if self.is_derived() { self } else { self.with_payload(payload::DERIVED, Bytes::new()) }
    }

    /// Whether this error is only the consequence of another one. Masters before TensorFlow 2.7 mark that in the text.
    pub fn is_derived(&self) -> bool {
        self.0.payloads.iter().any(|(key, _)| key == payload::DERIVED) || self.0.message.starts_with("[_Derived_]")
    }

    /// The same error with another text.
    pub fn with_message(mut self, message: impl Into<String>) -> Status {
        self.0.message = message.into();
        self
    }

    /// The same error with another code.
    pub fn with_code(mut self, code: Code) -> Status {
        self.0.code = code;
        self
    }

    /// Appends the tag by which clients find the failed node: `{{node NAME}}`, or the bare name when the text has a tag.
    pub fn at_node(self, name: &str) -> Status {
        let tag = if self.0.message.contains("{{node ") {
            format!("{}\n\t [[{name}]]", self.0.message)
        } else {
            format!("{}\n\t [[{{{{node {name}}}}}]]", self.0.message)
        };
        self.with_message(tag)
    }

    /// As [`Status::at_node`], for a node in the body of a function.
    pub fn at_function_node(self, function: &str, name: &str) -> Status {
        let tag = if self.0.message.contains("{{node ") {
            format!("{}\n\t [[{name}]]", self.0.message)
        } else {
            format!("{}\n\t [[{{{{function_node {function}}}}}{{{{node {name}}}}}]]", self.0.message)
        };
        self.with_message(tag)
    }

    /// Names the task an error comes from, as a master reports it.
    pub fn from_task(self, task: &str) -> Status {
        let message = format!("From {task}:\n{}", self.0.message);
        self.with_message(message)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.name(), self.0.message)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.name(), self.0.message)
    }
}

impl std::error::Error for Status {}

/// A [`Status`] with the code `CANCELLED` and a formatted text.
#[macro_export]
macro_rules! cancelled {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::Cancelled, format!($($arg)*)) };
}

/// A [`Status`] with the code `UNKNOWN` and a formatted text.
#[macro_export]
macro_rules! unknown {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::Unknown, format!($($arg)*)) };
}

/// A [`Status`] with the code `INVALID_ARGUMENT` and a formatted text.
#[macro_export]
macro_rules! invalid_argument {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::InvalidArgument, format!($($arg)*)) };
}

/// A [`Status`] with the code `DEADLINE_EXCEEDED` and a formatted text.
#[macro_export]
macro_rules! deadline_exceeded {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::DeadlineExceeded, format!($($arg)*)) };
}

/// A [`Status`] with the code `NOT_FOUND` and a formatted text.
#[macro_export]
macro_rules! not_found {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::NotFound, format!($($arg)*)) };
}

/// A [`Status`] with the code `ALREADY_EXISTS` and a formatted text.
#[macro_export]
macro_rules! already_exists {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::AlreadyExists, format!($($arg)*)) };
}

/// A [`Status`] with the code `PERMISSION_DENIED` and a formatted text.
#[macro_export]
macro_rules! permission_denied {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::PermissionDenied, format!($($arg)*)) };
}

/// A [`Status`] with the code `RESOURCE_EXHAUSTED` and a formatted text.
#[macro_export]
macro_rules! resource_exhausted {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::ResourceExhausted, format!($($arg)*)) };
}

/// A [`Status`] with the code `FAILED_PRECONDITION` and a formatted text.
#[macro_export]
macro_rules! failed_precondition {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::FailedPrecondition, format!($($arg)*)) };
}

/// A [`Status`] with the code `ABORTED` and a formatted text.
#[macro_export]
macro_rules! aborted {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::Aborted, format!($($arg)*)) };
}

/// A [`Status`] with the code `OUT_OF_RANGE` and a formatted text.
#[macro_export]
macro_rules! out_of_range {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::OutOfRange, format!($($arg)*)) };
}

/// A [`Status`] with the code `UNIMPLEMENTED` and a formatted text.
#[macro_export]
macro_rules! unimplemented_op {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::Unimplemented, format!($($arg)*)) };
}

/// A [`Status`] with the code `INTERNAL` and a formatted text.
#[macro_export]
macro_rules! internal {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::Internal, format!($($arg)*)) };
}

/// A [`Status`] with the code `UNAVAILABLE` and a formatted text.
#[macro_export]
macro_rules! unavailable {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::Unavailable, format!($($arg)*)) };
}

/// A [`Status`] with the code `DATA_LOSS` and a formatted text.
#[macro_export]
macro_rules! data_loss {
    ($($arg:tt)*) => { $crate::Status::new($crate::Code::DataLoss, format!($($arg)*)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_tag_is_spelled_once() {
        let first = Status::new(Code::Internal, "bad").at_node("a/b");
        assert_eq!(first.message(), "bad\n\t [[{{node a/b}}]]");
        assert_eq!(first.at_node("c").message(), "bad\n\t [[{{node a/b}}]]\n\t [[c]]");
    }

    #[test]
    fn numbers_off_the_wire_become_codes() {
        assert_eq!(Code::from_number(3), Code::InvalidArgument);
        assert_eq!(Code::from_number(-1), Code::Unknown);
        assert_eq!(Code::from_number(99), Code::Unknown);
    }

    #[test]
    fn derived_errors_are_recognised_in_both_spellings() {
        assert!(Status::new(Code::Cancelled, "x").derived().is_derived());
        assert!(Status::new(Code::Cancelled, "[_Derived_]x").is_derived());
        assert!(!Status::new(Code::Cancelled, "x").is_derived());
    }
}
