//! The program that runs while the network has its faults.

use crate::client::{Client, Failure};
use crate::cluster::Cluster;
use crate::faults::Plan;
use crate::messages::{constant, graph, node};
use bytes::Bytes;
use graphmill_tensor::{Code, DType, Shape, Tensor};
use graphmill_wire::service::MasterMethod;
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::*;
use std::time::{Duration, Instant};

/// Elements of the tensor that travels in each step: too many for one packet.
const ELEMENTS: i64 = 20_000;
/// Time for a step to work again after the last fault.
const RECOVERY: Duration = Duration::from_secs(20);
/// What a client waits for before it tries again.
const PAUSE: Duration = Duration::from_millis(5);
/// Steps that have to work after the last fault.
const STEPS_AFTER: usize = 3;

const PS: &str = "/job:ps/task:0";
const MASTER: &str = "/job:worker/task:0";
const WORKER: &str = "/job:worker/task:1";

/// What came of the steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log {
    pub right: usize,
    pub failed: usize,
}

/// Trains until the faults of a plan are over and some steps have worked after them, and at least for some time.
pub fn steps(seed: u64, plan: &Plan, at_least: Duration) -> Result<Log, String> {
    let cluster = Cluster::new(seed);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let faults = scope.spawn(|| plan.carry_out(&cluster));
        let mut training = Training::new(Client::new(cluster.fabric().host("client")));
        let (mut over, mut after) = (None, 0);
        while after < STEPS_AFTER || start.elapsed() < at_least {
            let step = training.step();
            if over.is_none() && faults.is_finished() {
                over = Some(Instant::now());
                continue;
            }
            if over.is_some() && step? {
                after += 1;
            }
            if over.is_some_and(|over| over.elapsed() > RECOVERY) {
                return Err(format!("no recovery: {:?}, {:?}", training.log, training.last));
            }
        }
        Ok(training.log)
    })
}

struct Training {
    client: Client,
    session: Option<String>,
    /// The value of the variable as it was last seen.
    value: i64,
    /// The next step adds this power of four. Steps that failed may have added theirs, but none of them twice.
    next: u32,
    last: Option<Failure>,
    log: Log,
}

impl Training {
    fn new(client: Client) -> Training {
        Training { client, session: None, value: 0, next: 0, last: None, log: Log::default() }
    }

    /// Makes a step, and a session before it if there is none. Whether the step worked; an error if something is wrong.
    fn step(&mut self) -> Result<bool, String> {
        match self.try_step() {
            Ok(value) => {
                self.check(value)?;
                self.log.right += 1;
                Ok(true)
            }
            Err(failure) => {
                self.log.failed += 1;
                let expected = [Code::Unavailable, Code::Aborted, Code::FailedPrecondition, Code::DeadlineExceeded];
                if !expected.contains(&failure.code) {
                    return Err(format!("a step failed with {failure:?}"));
                }
                // As a monitored session does: a new session, which finds out what is left.
                if let Some(session_handle) = self.session.take() {
                    let close = CloseSessionRequest { session_handle };
                    let _: Result<CloseSessionResponse, Failure> = self.client.call(MasterMethod::CloseSession, &close);
                }
                self.last = Some(failure);
                std::thread::sleep(PAUSE);
                Ok(false)
            }
        }
    }

    fn try_step(&mut self) -> Result<i64, Failure> {
        if self.session.is_none() {
            self.begin()?;
        }
        let power = self.next;
        self.next += 1;
        self.run(&[("x:0", 4i64.pow(power))], "result:0")
    }

    /// The value that a step gave is that of the step before, what the step added, and what steps that failed may have added.
    fn check(&mut self, value: i64) -> Result<(), String> {
        let failed = self.next - 1;
        if !follows(self.value, value, failed) {
            return Err(format!("{value} after {}, {failed} steps failed between: {:?}", self.value, self.last));
        }
        self.value = value;
        self.next = 0;
        Ok(())
    }

    /// Makes a session; a variable without a value gets the one that was last seen, as from a checkpoint.
    fn begin(&mut self) -> Result<(), Failure> {
        let request = CreateSessionRequest { graph_def: Some(program()), ..Default::default() };
        let response: CreateSessionResponse = self.client.call(MasterMethod::CreateSession, &request)?;
        self.session = Some(response.session_handle);
        let initialised = self.fetch(&[], "initialised:0")?.scalar_value::<bool>();
        if initialised == Ok(false) {
            self.run(&[("x:0", self.value)], "restore:0")?;
            self.next = 0;
        }
        Ok(())
    }

    fn run(&mut self, feeds: &[(&str, i64)], fetch: &str) -> Result<i64, Failure> {
        let fetched = self.fetch(feeds, fetch)?;
        fetched.scalar_value::<i64>().map_err(|status| Failure { code: status.code(), text: status.to_string() })
    }

    fn fetch(&mut self, feeds: &[(&str, i64)], fetch: &str) -> Result<Tensor, Failure> {
        let feed = |(name, value): &(&str, i64)| NamedTensorProto {
            name: (*name).to_owned(),
            tensor: Some(Tensor::scalar(*value).unwrap().to_proto()),
        };
        let request = RunStepRequest {
            session_handle: self.session.clone().unwrap_or_default(),
            feed: feeds.iter().map(feed).collect(),
            fetch: vec![fetch.to_owned()],
            store_errors_in_response_body: true,
            ..Default::default()
        };
        let response: RunStepResponse = self.client.call(MasterMethod::RunStep, &request)?;
        match response.status_code {
            0 => Ok(Tensor::from_proto(response.tensor[0].tensor.as_ref().unwrap()).unwrap()),
            code => Err(Failure { code: Code::from_number(code), text: response.status_error_message }),
        }
    }
}

/// Whether a step may find one value after another, when so many failed in between: it has added its own power of four, and each of those
/// that failed its own at most once.
fn follows(before: i64, after: i64, failed: u32) -> bool {
    let added = (after - before) / ELEMENTS;
    let digits = |number: i64| (0..=failed).map(move |power| number / 4i64.pow(power) % 4);
    let counted: i64 = digits(added).zip(0..).map(|(digit, power)| digit * 4i64.pow(power)).sum();
    before + counted * ELEMENTS == after
        && digits(added).all(|digit| (0..2).contains(&digit))
        && digits(added).next_back() == Some(1)
}

#[test]
fn values_that_follow() {
    assert!(follows(7, 7 + ELEMENTS, 0) && follows(7, 7 + 16 * ELEMENTS, 2) && follows(7, 7 + 21 * ELEMENTS, 2));
    // Not at all, twice, without the own, one of the past, a part.
    for (after, failed) in [(7, 0), (7 + 2 * ELEMENTS, 0), (7 + ELEMENTS, 1), (7 + 64 * ELEMENTS, 2), (8 + ELEMENTS, 0)]
    {
        assert!(!follows(7, after, failed), "{after} {failed}");
    }
    assert!(!follows(7, 7 + (16 + 4 + 4) * ELEMENTS, 2));
}

/// `result`: `x` times [`ELEMENTS`], added up from a tensor of one worker, is added to the variable of the parameter server, whose
/// value goes back over both workers. `restore` gives the variable the value of `x`.
fn program() -> GraphDef {
    let long = || Value::Type(DType::Int64.number());
    let int = || Value::Type(DType::Int32.number());
    let text = |text: &str| Value::S(Bytes::copy_from_slice(text.as_bytes()));
    let on = |device: &str, node: NodeDef| NodeDef { device: device.to_owned(), ..node };
    let scalar = Value::Shape(TensorShapeProto::default());
    let handle = [("dtype", long()), ("shape", scalar), ("shared_name", text("v"))];
    let one = || Shape::new(&[1]).unwrap();
    let dims = Tensor::from_slice(one(), &[ELEMENTS as i32]).unwrap();
    let axis = Tensor::from_slice(one(), &[0i32]).unwrap();
    graph(vec![
        on(MASTER, node("x", "Placeholder", &[], &[("dtype", long())])),
        on(WORKER, constant("dims", &dims)),
        on(WORKER, node("payload", "Fill", &["dims", "x"], &[("T", long()), ("index_type", int())])),
        on(PS, constant("axis", &axis)),
        on(PS, node("sum", "Sum", &["payload", "axis"], &[("T", long()), ("Tidx", int())])),
        on(PS, node("v", "VarHandleOp", &[], &handle)),
        on(PS, node("add", "AssignAddVariableOp", &["v", "sum"], &[("dtype", long())])),
        on(PS, node("read", "ReadVariableOp", &["v", "^add"], &[("dtype", long())])),
        on(WORKER, node("back", "Identity", &["read"], &[("T", long())])),
        on(MASTER, node("result", "Identity", &["back"], &[("T", long())])),
        on(PS, node("initialised", "VarIsInitializedOp", &["v"], &[])),
        on(PS, node("assign", "AssignVariableOp", &["v", "x"], &[("dtype", long())])),
        on(MASTER, node("restore", "Identity", &["x", "^assign"], &[("T", long())])),
    ])
}
