//! The messages of graphmill's own service. Times are seconds.

use prost::Message;
use serde::Serialize;

/// Asks a server to let its steps end, and to end then.
#[derive(Clone, PartialEq, Message)]
pub struct StopRequest {}

/// The server ends.
#[derive(Clone, PartialEq, Message)]
pub struct StopResponse {
    /// The task, such as `/job:ps/replica:0/task:0`.
    #[prost(string, tag = "1")]
    pub task: String,
    /// How long running steps may go on.
    #[prost(double, tag = "2")]
    pub grace: f64,
}

/// Asks what a server is doing.
#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {}

/// What a server is doing.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct StatusResponse {
    /// The task, such as `/job:ps/replica:0/task:0`.
    #[prost(string, tag = "1")]
    pub task: String,
    /// The version of graphmill.
    #[prost(string, tag = "2")]
    pub version: String,
    /// The number of the process.
    #[prost(uint32, tag = "3")]
    pub process: u32,
    /// What tells this life of the process from others, in 16 hexadecimal digits.
    #[prost(string, tag = "4")]
    pub incarnation: String,
    /// When it began to serve, in seconds since 1970.
    #[prost(double, tag = "5")]
    pub since: f64,
    /// For how long it has served.
    #[prost(double, tag = "6")]
    pub age: f64,
    /// Whether it takes no new sessions and steps, because it ends.
    #[prost(bool, tag = "7")]
    pub ends: bool,
    /// The cluster, as `graphmill serve --cluster` takes it; empty for a task alone.
    #[prost(string, tag = "8")]
    pub cluster: String,
    /// The sessions, of clients of this server and of other masters.
    #[prost(message, repeated, tag = "9")]
    pub sessions: Vec<SessionStatus>,
    /// The steps that have run for more than a second.
    #[prost(message, repeated, tag = "10")]
    pub steps: Vec<StepStatus>,
    /// The sessions that cannot be made before other tasks answer.
    #[prost(message, repeated, tag = "11")]
    pub creations: Vec<CreationStatus>,
    /// What steps have put down here, and who waits for what.
    #[prost(message, optional, tag = "12")]
    pub rendezvous: Option<RendezvousStatus>,
    /// The number of resources by container and kind.
    #[prost(message, repeated, tag = "13")]
    pub resources: Vec<ResourceStatus>,
    /// The queues.
    #[prost(message, repeated, tag = "14")]
    pub queues: Vec<QueueStatus>,
    /// What there is now, in numbers that come back to what they were when a client has gone.
    #[prost(message, optional, tag = "15")]
    pub counters: Option<Counters>,
}

/// What a server holds for clients and other masters, in numbers.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Counters {
    /// Sessions.
    #[prost(uint64, tag = "1")]
    pub sessions: u64,
    /// Steps that run, or their parts on this task.
    #[prost(uint64, tag = "2")]
    pub steps: u64,
    /// Graphs of other masters.
    #[prost(uint64, tag = "3")]
    pub graphs: u64,
    /// Runs that are kept ready in own sessions.
    #[prost(uint64, tag = "4")]
    pub prepared: u64,
    /// Callables that were made and not released.
    #[prost(uint64, tag = "5")]
    pub callables: u64,
}

/// A session.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct SessionStatus {
    /// Its handle; empty for that of masters that make none.
    #[prost(string, tag = "1")]
    pub handle: String,
    /// The task of its master; empty if that is not known.
    #[prost(string, tag = "2")]
    pub master: String,
    /// Whether this task is its master.
    #[prost(bool, tag = "3")]
    pub own: bool,
    /// How long it has existed.
    #[prost(double, tag = "4")]
    pub age: f64,
    /// The steps of it that run here.
    #[prost(uint64, tag = "5")]
    pub steps: u64,
    /// The graphs of other masters that are registered here.
    #[prost(uint64, tag = "6")]
    pub graphs: u64,
    /// How long no call has begun in it; absent for a session of another master.
    #[prost(double, optional, tag = "7")]
    pub idle: Option<f64>,
}

/// A step that takes long.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct StepStatus {
    /// Its number, as in log lines, the same on all tasks.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// The handle of its session.
    #[prost(string, tag = "2")]
    pub session: String,
    /// How long it has run.
    #[prost(double, tag = "3")]
    pub age: f64,
    /// What it waits for, in words.
    #[prost(string, repeated, tag = "4")]
    pub waits_for: Vec<String>,
}

/// A session that is being made.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct CreationStatus {
    /// How long it has waited.
    #[prost(double, tag = "1")]
    pub age: f64,
    /// The tasks that have not answered.
    #[prost(message, repeated, tag = "2")]
    pub waits_for: Vec<MissingTask>,
}

/// A task that does not answer.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct MissingTask {
    /// The task.
    #[prost(string, tag = "1")]
    pub task: String,
    /// Where it should be.
    #[prost(string, tag = "2")]
    pub address: String,
    /// Why the last attempt to reach it failed; empty if it was reached and does not answer.
    #[prost(string, tag = "3")]
    pub error: String,
}

/// What the parts of steps exchange.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct RendezvousStatus {
    /// The steps that exchange something here.
    #[prost(uint64, tag = "1")]
    pub steps: u64,
    /// The tensors that wait to be taken.
    #[prost(uint64, tag = "2")]
    pub held: u64,
    /// The tensors that somebody waits for.
    #[prost(uint64, tag = "3")]
    pub awaited: u64,
    /// The bytes of the tensors that wait to be taken.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
}

/// Resources of a kind.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct ResourceStatus {
    /// Their container.
    #[prost(string, tag = "1")]
    pub container: String,
    /// Their kind, such as `Var`.
    #[prost(string, tag = "2")]
    pub kind: String,
    /// How many there are.
    #[prost(uint64, tag = "3")]
    pub number: u64,
}

/// A queue.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct QueueStatus {
    /// Its container.
    #[prost(string, tag = "1")]
    pub container: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The elements in it.
    #[prost(uint64, tag = "3")]
    pub elements: u64,
    /// How many it takes; absent without a limit.
    #[prost(uint64, optional, tag = "4")]
    pub capacity: Option<u64>,
    /// The enqueues that wait for room.
    #[prost(uint64, tag = "5")]
    pub enqueues: u64,
    /// The dequeues that wait for elements.
    #[prost(uint64, tag = "6")]
    pub dequeues: u64,
    /// Whether it is closed.
    #[prost(bool, tag = "7")]
    pub closed: bool,
}
