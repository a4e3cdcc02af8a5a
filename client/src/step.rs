//! What a step is given and asked for, and what it answers.

use graphmill_cluster::encoded::{EncodedNamed, EncodedTensor, begin, field_len};
use graphmill_cluster::grpc::{Frames, FramesBuilder};
use graphmill_graph::Signature;
use graphmill_tensor::{Code, Element, Result, Status, Tensor, internal, invalid_argument};
use graphmill_wire::tensorflow::{
    RunCallableRequest, RunMetadata, RunOptions, RunStepRequest, RunStepResponse, TensorProto,
};
use ndarray::ArrayD;
use prost::Message;
use std::collections::HashMap;

/// Field numbers of `RunStepRequest.feed` and `RunCallableRequest.feed`, which are written by hand.
const STEP_FEED: u32 = 2;
const CALLABLE_FEED: u32 = 3;

/// One step: tensors to feed, tensors to fetch, nodes to run.
///
/// Tensors have names like `node:1`; `node` stands for `node:0`.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub(crate) feeds: Vec<(String, Tensor)>,
    pub(crate) fetches: Vec<String>,
    pub(crate) targets: Vec<String>,
    pub(crate) options: Option<RunOptions>,
}

impl Step {
    /// A step that does nothing yet.
    pub fn new() -> Step {
        Step::default()
    }

    /// Puts a value in the place of a tensor of the graph.
    pub fn feed(mut self, name: impl Into<String>, value: Tensor) -> Step {
        self.feeds.push((name.into(), value));
        self
    }

    /// Asks for a tensor.
    pub fn fetch(mut self, name: impl Into<String>) -> Step {
        self.fetches.push(name.into());
        self
    }

    /// Asks for several tensors.
    pub fn fetch_all<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Step {
        self.fetches.extend(names.into_iter().map(Into::into));
        self
    }

    /// Runs a node without asking for its values.
    pub fn target(mut self, node: impl Into<String>) -> Step {
        self.targets.push(node.into());
        self
    }

    /// Sets options: a trace, a time limit in the server, the graphs that ran.
    pub fn options(mut self, options: RunOptions) -> Step {
        self.options = Some(options);
        self
    }

    /// The message of a step. Tensors are not copied.
    pub(crate) fn request(&self, session_handle: &str, partial_run_handle: &str) -> Result<Frames> {
        let mut fetch = Vec::with_capacity(self.fetches.len());
        for name in &self.fetches {
            let name = Signature::tensor_name(name);
            if !fetch.contains(&name) {
                fetch.push(name);
            }
        }
        // TensorFlow's servers wait for ever for a value that comes as `x` where an earlier step had it as `x:0`.
        let feeds: Vec<_> = self.feeds.iter().map(|(name, tensor)| (Signature::tensor_name(name), tensor)).collect();
        let head = RunStepRequest {
            session_handle: session_handle.to_owned(),
            fetch,
            target: self.targets.clone(),
            options: self.options.clone(),
            partial_run_handle: partial_run_handle.to_owned(),
            store_errors_in_response_body: true,
            ..Default::default()
        };
        let feeds = feeds.iter().map(|(name, tensor)| (name.as_str(), Tensor::clone(tensor)));
        let feeds = EncodedNamed::new(STEP_FEED, feeds);
        let mut frames = FramesBuilder::new(head.encoded_len() + feeds.encoded_len())?;
        head.encode_raw(frames.buffer());
        feeds.write(&mut frames);
        Ok(frames.finish())
    }
}

/// The message of a callable's run. Tensors are not copied.
pub(crate) fn callable_request(session_handle: &str, handle: i64, feeds: &[Tensor]) -> Result<Frames> {
    let head = RunCallableRequest { session_handle: session_handle.to_owned(), handle, ..Default::default() };
    let feeds: Vec<EncodedTensor> = feeds.iter().map(EncodedTensor::new).collect();
    let length: usize = feeds.iter().map(|feed| field_len(CALLABLE_FEED, feed.encoded_len())).sum();
    let mut frames = FramesBuilder::new(head.encoded_len() + length)?;
    head.encode_raw(frames.buffer());
    for feed in feeds {
        begin(frames.buffer(), CALLABLE_FEED, feed.encoded_len());
        feed.write(&mut frames);
    }
    Ok(frames.finish())
}

/// What a step answers.
#[derive(Clone, Debug)]
pub struct Outputs {
    names: Vec<String>,
    tensors: Vec<Tensor>,
    metadata: RunMetadata,
}

impl Outputs {
    /// Takes an answer apart.
    ///
    /// # Errors
    /// The status of the step; `INTERNAL` if a fetch is missing.
    pub(crate) fn of(names: &[String], response: RunStepResponse) -> Result<Outputs> {
        let code = Code::from_number(response.status_code);
        if code != Code::Ok {
            return Err(Status::new(code, response.status_error_message));
        }
        let mut by_name: HashMap<&str, Tensor> = HashMap::with_capacity(response.tensor.len());
        for named in &response.tensor {
            by_name.insert(&named.name, tensor(named.tensor.as_ref())?);
        }
        // A tensor may be asked for twice.
        let find = |name: &String| by_name.get(Signature::tensor_name(name).as_str()).cloned();
        let tensors = names.iter().map(|name| find(name).ok_or_else(|| internal!("The step did not answer {name}")));
        Ok(Outputs {
            names: names.to_vec(),
            tensors: tensors.collect::<Result<_>>()?,
            metadata: response.metadata.unwrap_or_default(),
        })
    }

    /// The tensors in the order of the fetches.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensors in the order of the fetches.
    pub fn into_tensors(self) -> Vec<Tensor> {
        self.tensors
    }

    /// The tensor fetched under this name.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the step did not fetch it.
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        let wanted = Signature::tensor_name(name);
        let found = self.names.iter().position(|other| Signature::tensor_name(other) == wanted);
        let found = found.and_then(|at| self.tensors.get(at));
        found.ok_or_else(|| invalid_argument!("The step did not fetch {name}, but: {}", self.names.join(", ")))
    }

    /// The tensor fetched under this name as an array of numbers.
    ///
    /// # Errors
    /// As [`Outputs::tensor`]; `INVALID_ARGUMENT` if its elements are of another type.
    pub fn array<T: Element>(&self, name: &str) -> Result<ArrayD<T>> {
        crate::to_array(self.tensor(name)?)
    }

    /// The trace and the graphs, where the options of the step asked for them.
    pub fn metadata(&self) -> &RunMetadata {
        &self.metadata
    }
}

/// A tensor of an answer.
pub(crate) fn tensor(proto: Option<&TensorProto>) -> Result<Tensor> {
    Tensor::from_proto(proto.ok_or_else(|| internal!("An answer names a tensor without a value"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;
    use graphmill_wire::tensorflow::NamedTensorProto;

    #[test]
    fn requests_are_those_of_the_plain_encoder() {
        let big = Tensor::vector(&vec![1.5f32; 5000]).unwrap();
        let small = Tensor::scalar(7i64).unwrap();
        let step =
            Step::new().feed("big", big.clone()).feed("small:1", small.clone()).fetch("y").fetch("y:0").target("t");
        let message = RunStepRequest::decode(step.request("s", "p").unwrap().into_message()).unwrap();
        let named =
            |name: &str, tensor: &Tensor| NamedTensorProto { name: name.into(), tensor: Some(tensor.to_proto()) };
        let plain = RunStepRequest {
            session_handle: "s".into(),
            feed: vec![named("big:0", &big), named("small:1", &small)],
            fetch: vec!["y:0".into()],
            target: vec!["t".into()],
            partial_run_handle: "p".into(),
            store_errors_in_response_body: true,
            ..Default::default()
        };
        assert_eq!(message, plain);
        let content = &message.feed[0].tensor.as_ref().unwrap().tensor_content;
        assert_eq!(content.as_ptr(), big.as_bytes().unwrap().as_ptr());

        let frames = callable_request("s", 3, &[big.clone(), small.clone()]).unwrap().into_message();
        let length = frames.remaining();
        let plain = RunCallableRequest {
            session_handle: "s".into(),
            handle: 3,
            feed: vec![big.to_proto(), small.to_proto()],
            ..Default::default()
        };
        assert_eq!(length, plain.encoded_len());
        assert_eq!(RunCallableRequest::decode(frames).unwrap(), plain);
    }

    #[test]
    fn answers_are_checked() {
        let names = ["a".to_owned(), "b:0".to_owned(), "a:0".to_owned()];
        let value = Some(Tensor::scalar(1i32).unwrap().to_proto());
        let named = |name: &str| NamedTensorProto { name: name.into(), tensor: value.clone() };
        let answer = |names: &[&str]| RunStepResponse {
            tensor: names.iter().map(|name| named(name)).collect(),
            ..Default::default()
        };
        let outputs = Outputs::of(&names, answer(&["b:0", "a:0"])).unwrap();
        assert_eq!(outputs.tensors().len(), 3);
        assert_eq!(outputs.array::<i32>("a").unwrap().first(), Some(&1));
        assert_eq!(outputs.array::<f32>("a").unwrap_err().code(), Code::InvalidArgument);
        assert!(outputs.tensor("c").unwrap_err().message().ends_with("a, b:0, a:0"));
        assert_eq!(Outputs::of(&names, answer(&["a:0"])).unwrap_err().code(), Code::Internal);
        let failed = RunStepResponse { status_code: 10, status_error_message: "gone".into(), ..Default::default() };
        assert_eq!(Outputs::of(&names, failed).unwrap_err().to_string(), "ABORTED: gone");
    }
}
