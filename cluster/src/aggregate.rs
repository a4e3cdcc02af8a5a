//! The errors of the parts of a step, as one.

use graphmill_tensor::Status;
use std::fmt::Write;

/// Longest text about several errors, in bytes.
const MAX_TEXT: usize = 8192;

/// The error with the name of its task, unless it has one already.
pub(crate) fn from_task(error: Status, task: &str) -> Status {
    if error.message().starts_with("From /job:") { error } else { error.from_task(task) }
}

/// What the parts of a step failed with, in the order in which it became known.
#[derive(Default)]
pub(crate) struct Failures(Vec<Status>);

impl Failures {
    /// Adds the error of the part on a task.
    pub fn add(&mut self, error: Status, task: &str) {
        self.0.push(from_task(error, task));
    }

    /// Whether there is an error that is not only the consequence of another.
    pub fn has_root(&self) -> bool {
        self.0.iter().any(|error| !error.is_derived())
    }

    /// One status for all: of errors that are no consequence of others the only one, or a list of them with the code of the first.
    /// `None` if nothing failed.
    pub fn into_status(self) -> Option<Status> {
        let first = self.0.first().cloned()?;
        let mut roots: Vec<Status> = Vec::new();
        for error in self.0.into_iter().filter(|error| !error.is_derived()) {
            if !roots.contains(&error) {
                roots.push(error);
            }
        }
        match roots.as_slice() {
            [] => Some(first),
            [root] => Some(root.clone()),
            [root, ..] => {
                let mut text = "\n=====================\n".to_owned();
                for error in &roots {
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{}: {}", error.code().name(), error.message());
                }
                text.truncate(text.floor_char_boundary(MAX_TEXT));
                text.push_str("\n=====================\n");
                Some(root.clone().with_message(text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::{Code, aborted, cancelled, internal};

    fn of(errors: &[(Status, &str)]) -> Option<Status> {
        let mut failures = Failures::default();
        errors.iter().for_each(|(error, task)| failures.add(error.clone(), task));
        failures.into_status()
    }

    #[test]
    fn consequences_are_left_out() {
        assert!(of(&[]).is_none());
        let derived = cancelled!("because").derived();
        let status = of(&[(derived.clone(), "/job:a"), (internal!("root"), "/job:b")]).unwrap();
        assert_eq!((status.code(), status.message()), (Code::Internal, "From /job:b:\nroot"));
        let status = of(&[(derived, "/job:a")]).unwrap();
        assert_eq!(status.message(), "From /job:a:\nbecause");
    }

    #[test]
    fn several_causes_are_listed() {
        let status = of(&[(aborted!("x"), "/job:a"), (internal!("y"), "/job:b"), (aborted!("x"), "/job:a")]).unwrap();
        assert_eq!(status.code(), Code::Aborted);
        assert_eq!(
            status.message(),
            "\n=====================\nABORTED: From /job:a:\nx\nINTERNAL: From /job:b:\ny\n\n=====================\n"
        );
        let long = "z".repeat(3 * MAX_TEXT);
        let status = of(&[(aborted!("{long}"), "/job:a"), (internal!("y"), "/job:b")]).unwrap();
        assert!(status.message().len() < MAX_TEXT + 30);
    }
}
