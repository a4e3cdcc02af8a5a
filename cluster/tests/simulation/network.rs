//! The network: hosts, and links between them that lose, delay and break.

use graphmill_cluster::network::{Connecting, Connection, Incoming, Network};
use graphmill_tensor::{Result, unavailable};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{HashMap, HashSet};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_stream::Stream;

/// Bytes that are under way at once.
const WINDOW: usize = 64 << 10;
/// After this long without a way to the other host a connection breaks.
const UNREACHABLE: Duration = Duration::from_millis(150);
/// Bytes that are lost come again after this time.
const RETRANSMISSION: Duration = Duration::from_millis(30);

type Accepted = io::Result<Connection>;

/// What all hosts are connected to.
pub struct Fabric {
    runtime: Option<Runtime>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

struct State {
    random: StdRng,
    listeners: HashMap<String, UnboundedSender<Accepted>>,
    down: HashSet<String>,
    /// Pairs of hosts that cannot reach each other, in order.
    cut: HashSet<(String, String)>,
    slow: HashMap<(String, String), Duration>,
    /// How many of a thousand packets are lost.
    lost: u32,
    links: Vec<((String, String), watch::Sender<bool>)>,
}

fn pair(a: &str, b: &str) -> (String, String) {
    if a < b { (a.to_owned(), b.to_owned()) } else { (b.to_owned(), a.to_owned()) }
}

impl Fabric {
    pub fn new(seed: u64) -> Arc<Fabric> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let state = State {
            random: StdRng::seed_from_u64(seed),
            listeners: HashMap::new(),
            down: HashSet::new(),
            cut: HashSet::new(),
            slow: HashMap::new(),
            lost: 0,
            links: Vec::new(),
        };
        Arc::new(Fabric { runtime: Some(runtime), state: Mutex::new(state), changed: watch::Sender::new(()) })
    }

    /// The network as one host has it.
    pub fn host(self: &Arc<Self>, name: &str) -> Arc<Host> {
        Arc::new(Host { fabric: self.clone(), name: name.to_owned() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.send_replace(());
    }

    /// Has two hosts lose each other, or find each other again.
    pub fn cut(&self, a: &str, b: &str, cut: bool) {
        self.change(|state| {
            if cut {
                state.cut.insert(pair(a, b));
            } else {
                state.cut.remove(&pair(a, b));
            }
        });
    }

    /// What all bytes between two hosts take in addition.
    pub fn slow(&self, a: &str, b: &str, by: Duration) {
        self.state().slow.insert(pair(a, b), by);
    }

    /// How many of a thousand packets are lost.
    pub fn lose(&self, thousandths: u32) {
        self.state().lost = thousandths;
    }

    /// Breaks all connections between two hosts.
    pub fn reset(&self, a: &str, b: &str) {
        self.break_links(|of| *of == pair(a, b));
    }

    /// Takes a host away with all its connections, or brings it back.
    pub fn down(&self, host: &str, down: bool) {
        self.change(|state| {
            if down {
                state.down.insert(host.to_owned());
                state.listeners.retain(|address, _| address.split(':').next() != Some(host));
            } else {
                state.down.remove(host);
            }
        });
        if down {
            self.break_links(|(a, b)| a == host || b == host);
        }
    }

    fn break_links(&self, which: impl Fn(&(String, String)) -> bool) {
        self.state().links.retain(|(of, broken)| {
            let breaks = which(of);
            if breaks {
                broken.send_replace(true);
            }
            !breaks && !broken.is_closed()
        });
    }

    /// Waits until there is a way between two hosts.
    async fn way(&self, a: &str, b: &str) {
        let mut changed = self.changed.subscribe();
        while self.state().cut.contains(&pair(a, b)) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// How long the next bytes between two hosts take.
    fn delay(&self, a: &str, b: &str) -> Duration {
        let mut state = self.state();
        let jitter = Duration::from_micros(state.random.random_range(0..400));
        let lost = state.random.random_range(0..1000) < state.lost;
        let slow = state.slow.get(&pair(a, b)).copied().unwrap_or_default();
        jitter + slow + if lost { RETRANSMISSION } else { Duration::ZERO }
    }

    /// Both ends of a new connection.
    fn link(self: &Arc<Self>, from: &str, to: &str) -> (Connection, Connection) {
        let (near, near_wire) = tokio::io::duplex(WINDOW);
        let (far, far_wire) = tokio::io::duplex(WINDOW);
        let ((near_in, near_out), (far_in, far_out)) = (tokio::io::split(near_wire), tokio::io::split(far_wire));
        let broken = watch::Sender::new(false);
        self.carry((from, to), near_in, far_out, &broken);
        self.carry((to, from), far_in, near_out, &broken);
        self.state().links.push((pair(from, to), broken));
        (end(near), end(far))
    }

    fn carry(
        self: &Arc<Self>,
        (from, to): (&str, &str),
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
        broken: &watch::Sender<bool>,
    ) {
        let (fabric, from, to) = (Arc::downgrade(self), from.to_owned(), to.to_owned());
        let (breaking, mut broken) = (broken.clone(), broken.subscribe());
        let Some(runtime) = &self.runtime else { return };
        runtime.spawn(async move {
            tokio::select! {
                _ = broken.wait_for(|broken| *broken) => {}
                carried = carry_all(fabric, (&from, &to), input, output) => {
                    // A direction that is lost takes the other with it; one that has come to its end does not.
                    if carried.is_none() {
                        breaking.send_replace(true);
                    }
                }
            }
        });
    }
}

/// `None` where the bytes could not be carried to their end.
async fn carry_all(
    fabric: Weak<Fabric>,
    (from, to): (&str, &str),
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> Option<()> {
    let mut buffer = vec![0; WINDOW / 4];
    loop {
        let length = input.read(&mut buffer).await.ok()?;
        let fabric = fabric.upgrade()?;
        sleep(fabric.delay(from, to)).await;
        timeout(UNREACHABLE, fabric.way(from, to)).await.ok()?;
        if length == 0 {
            return output.shutdown().await.ok();
        }
        output.write_all(&buffer[..length]).await.ok()?;
    }
}

fn end(stream: DuplexStream) -> Connection {
    let (read, write) = tokio::io::split(stream);
    Connection::new(read, write)
}

impl Drop for Fabric {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The network as one host has it.
pub struct Host {
    fabric: Arc<Fabric>,
    name: String,
}

impl Network for Host {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let to = address.split(':').next().unwrap_or_default();
            self.fabric.way(&self.name, to).await;
            sleep(self.fabric.delay(&self.name, to)).await;
            let listener = {
                let state = self.fabric.state();
                if state.down.contains(&self.name) {
                    return Err(io::ErrorKind::NetworkDown.into());
                }
                state.listeners.get(address).cloned().ok_or(io::ErrorKind::ConnectionRefused)?
            };
            let (near, far) = self.fabric.link(&self.name, to);
            listener.send(Ok(far)).map_err(|_| io::ErrorKind::ConnectionRefused)?;
            Ok(near)
        })
    }

    fn listen(&self, _: &[String], port: u16) -> Result<(Incoming, u16)> {
        let address = format!("{}:{port}", self.name);
        let (sender, receiver) = unbounded_channel();
        let mut state = self.fabric.state();
        if state.listeners.get(&address).is_some_and(|listener| !listener.is_closed()) {
            return Err(unavailable!("{address} is taken"));
        }
        state.listeners.insert(address, sender);
        Ok((Box::pin(Listening(receiver)), port))
    }
}

struct Listening(UnboundedReceiver<Accepted>);

impl Stream for Listening {
    type Item = Accepted;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Accepted>> {
        self.0.poll_recv(context)
    }
}
