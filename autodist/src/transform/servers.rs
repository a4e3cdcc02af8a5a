//! Gradients and updates of variables on parameter servers.
//!
//! Every node pushes the mean of its replicas' gradients to the server. The chief's graph alone holds the update: it takes the mean of
//! what was pushed. A node's step ends when the update is done, or, where nodes may run ahead by s steps, when no other is more
//! than s steps behind. Both are told through queues beside the variable:
//!
//! - Without staleness the chief puts a token into the queue of each other node after each update.
//! - With it each pair of nodes has a queue in each direction, that holds s tokens at the start. A node takes one from every other
//!   node's queue to it, then puts one into each of its own. So the queue from j to k has given k tokens for t + 1 steps only if j has
//!   completed t + 1 - s. The slowest node never waits, so that some node can always go on.

use super::gradients::{Gathered, Rows};
use super::nodes::shape;
use super::roles::Learner;
use super::writer::{Spot, Writer, after, bytes, ty};
use crate::strategy::ParameterServer;
use graphmill_tensor::{DType, Result, invalid_argument};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};

/// What becomes of a learner's update in this task.
#[derive(Default)]
pub(super) struct Plan {
    /// What the update takes for its gradient; `None` if another task runs the update.
    pub gradient: Option<Gathered>,
    /// What stands in the update's place waits for these nodes; `None` if the update stands there itself.
    pub gate: Option<Vec<String>>,
    /// Nodes that the chief runs once before the first step.
    pub prepare: Vec<String>,
}

/// What is added to the name of an update when a gate stands in its place.
pub(super) const APPLY: &str = "apply";

/// The types of an element that only tells that something has happened.
const TOKEN: &[DType] = &[DType::Bool];

fn list_of(types: &[DType]) -> Value {
    let types = types.iter().map(|dtype| dtype.number()).collect();
    Value::List(Box::new(ListValue { r#type: types, ..ListValue::default() }))
}

impl Writer<'_> {
    /// Writes how a served variable learns.
    pub fn serve(&mut self, learner: &Learner<'_>, server: &ParameterServer) -> Result<Plan> {
        let mean = self.local_mean(learner)?;
        if self.job.nodes() == 1 || !server.sync {
            return Ok(Plan { gradient: Some(mean), ..Plan::default() });
        }
        self.make_proxy(learner, server)?;
        let spot = Spot::of(learner, &self.job.device(&server.destination));
        let accumulator = Accumulator::new(self, &spot, learner, &mean)?;
        let pushed = accumulator.push(self, &spot, learner, &mean)?;
        let mut plan = Plan::default();
        let mut done = vec![pushed];
        if self.job.is_chief() {
            // With staleness what has arrived is enough; the chief's own gradient has.
            let wanted = if server.staleness == 0 { self.job.nodes() } else { 1 };
            plan.gradient = Some(accumulator.take(self, &spot, learner, wanted, &done[0])?);
            done.extend(self.steps_of(learner));
        }
        let gate = if server.staleness == 0 {
            self.token_gate(&spot, &done)?
        } else {
            self.stale_gate(&spot, learner, server.staleness, &done, &mut plan.prepare)?
        };
        let done = self.refresh(learner.variable.node, "refresh", [done, gate].concat())?;
        plan.gate = Some(done);
        Ok(plan)
    }

    /// The nodes of this task that change a learner and its slots, under the names that they have behind a gate.
    fn steps_of(&self, learner: &Learner<'_>) -> Vec<String> {
        let steps = learner.region.iter().copied().filter(|node| self.roles.changes.contains_key(node));
        let mut steps: Vec<usize> = steps.filter(|&node| node != learner.update).collect();
        steps.sort_unstable();
        let mut names: Vec<String> = steps.into_iter().map(|node| self.node_name(node, 0)).collect();
        names.push(format!("{}/{APPLY}", self.node_name(learner.update, 0)));
        names
    }

    /// The name by which all tasks know a resource of a variable.
    fn shared_name(&self, spot: &Spot, name: &str) -> Value {
        bytes(&format!("{}/{}/{name}", self.job.strategy.id, spot.scope))
    }

    fn queue(&mut self, spot: &Spot, name: &str, capacity: i64, types: &[DType]) -> Result<String> {
        // Other elements than tokens differ in shape from step to step.
        let shapes = if types == TOKEN { vec![shape(&[])] } else { Vec::new() };
        let shapes = ListValue { shape: shapes, ..ListValue::default() };
        let attrs = [
            ("component_types", list_of(types)),
            ("shapes", Value::List(Box::new(shapes))),
            ("capacity", Value::I(capacity)),
            ("container", bytes("")),
            ("shared_name", self.shared_name(spot, name)),
        ];
        self.add(spot, name, "FIFOQueueV2", &[], &attrs)
    }

    fn put(
        &mut self,
        spot: &Spot,
        name: &str,
        queue: &str,
        element: (&[&str], &[DType]),
        op: &str,
        done: &[String],
    ) -> Result<String> {
        let waits: Vec<String> = done.iter().map(|node| after(node)).collect();
        let waits = waits.iter().map(String::as_str);
        let inputs: Vec<&str> = [queue].into_iter().chain(element.0.iter().copied()).chain(waits).collect();
        self.add(spot, name, op, &inputs, &[("Tcomponents", list_of(element.1)), ("timeout_ms", Value::I(-1))])
    }

    fn take_element(
        &mut self,
        spot: &Spot,
        name: &str,
        queue: &str,
        types: &[DType],
        done: &[String],
    ) -> Result<String> {
        let waits: Vec<String> = done.iter().map(|node| after(node)).collect();
        let inputs: Vec<&str> = [queue].into_iter().chain(waits.iter().map(String::as_str)).collect();
        let attrs = [("component_types", list_of(types)), ("timeout_ms", Value::I(-1))];
        self.add(spot, name, "QueueDequeueV2", &inputs, &attrs)
    }

    /// The mean over all replicas of a gradient that every task applies by itself: it meets in an accumulator, from where the chief sends the
    /// mean to each task.
    pub fn meet(&mut self, learner: &Learner<'_>, hub: &str) -> Result<Gathered> {
        let spot = Spot::of(learner, hub);
        let sum = self.local_sum(learner)?;
        let accumulator = Accumulator::new(self, &spot, learner, &sum)?;
        let pushed = accumulator.push(self, &spot, learner, &sum)?;
        let (nodes, replicas, dtype) = (self.job.nodes(), self.job.strategy.replicas.len(), learner.variable.dtype);
        let index_type = self.index_type(learner)?;
        let types: Vec<DType> = index_type.into_iter().chain([dtype]).collect();
        let own = self.job.number(self.job.task);
        let mean = if self.job.is_chief() {
            let mean = accumulator.take(self, &spot, learner, nodes, &pushed)?;
            let mut sent = Vec::new();
            for other in (0..nodes).filter(|&other| other != own) {
                let queue = self.queue(&spot, &format!("mean_for_{other}"), 1, &types)?;
                let element = (&mean.tensors()[..], &types[..]);
                sent.push(self.put(&spot, &format!("send_{other}"), &queue, element, "QueueEnqueueV2", &[])?);
            }
            let local = Spot::of(learner, &self.job.processor());
            let sent: Vec<String> = sent.iter().map(|node| after(node)).collect();
            let mut kept = Vec::new();
            for (i, (tensor, &dtype)) in mean.tensors().iter().zip(&types).enumerate() {
                let inputs: Vec<&str> = [*tensor].into_iter().chain(sent.iter().map(String::as_str)).collect();
                kept.push(self.add(&local, &format!("sent_{i}"), "Identity", &inputs, &[("T", ty(dtype))])?);
            }
            kept
        } else {
            let queue = self.queue(&spot, &format!("mean_for_{own}"), 1, &types)?;
            let taken = self.take_element(&spot, "received", &queue, &types, &[pushed])?;
            (0..types.len()).map(|i| if i == 0 { taken.clone() } else { format!("{taken}:{i}") }).collect()
        };
        let local = Spot::of(learner, &self.job.processor());
        let gathered = match (&mean[..], index_type) {
            ([indices, values], Some(index_type)) => {
                Gathered::Rows(Rows { indices: indices.clone(), values: values.clone(), index_type })
            }
            (tensors, _) => Gathered::Dense(tensors.first().cloned().unwrap_or_default()),
        };
        if replicas == nodes {
            return Ok(gathered);
        }
        // The accumulator's mean is over tasks.
        let factor = self.number(&local, "of_replicas/nodes", dtype, nodes as i64)?;
        let scaled = |writer: &mut Self, tensor: &str| {
            writer.add(&local, "of_replicas", "Mul", &[tensor, &factor], &[("T", ty(dtype))])
        };
        let gathered = match gathered {
            Gathered::Dense(mean) => Gathered::Dense(scaled(self, &mean)?),
            Gathered::Rows(rows) => Gathered::Rows(Rows { values: scaled(self, &rows.values)?, ..rows }),
        };
        self.share(&local, "mean", learner, gathered, replicas)
    }

    fn token_gate(&mut self, spot: &Spot, done: &[String]) -> Result<Vec<String>> {
        if !self.job.is_chief() {
            let own = format!("update_sync_queue_{}", self.job.number(self.job.task));
            let queue = self.queue(spot, &own, 1, TOKEN)?;
            return Ok(vec![self.take_element(spot, "updated", &queue, TOKEN, done)?]);
        }
        let token = self.number(spot, "token", DType::Bool, 1)?;
        let chief = self.job.number(self.job.task);
        let mut told = Vec::new();
        for other in (0..self.job.nodes()).filter(|&other| other != chief) {
            let queue = self.queue(spot, &format!("update_sync_queue_{other}"), 1, TOKEN)?;
            told.push(self.put(spot, &format!("tell_{other}"), &queue, (&[&token], TOKEN), "QueueEnqueueV2", done)?);
        }
        Ok(told)
    }

    fn stale_gate(
        &mut self,
        spot: &Spot,
        learner: &Learner<'_>,
        staleness: u32,
        done: &[String],
        prepare: &mut Vec<String>,
    ) -> Result<Vec<String>> {
        // One can be s steps ahead, with s tokens in stock: twice that, and one on its way.
        let capacity = 2 * i64::from(staleness) + 1;
        let own = self.job.number(self.job.task);
        let others: Vec<usize> = (0..self.job.nodes()).filter(|&other| other != own).collect();
        let name = |from: usize, to: usize| format!("steps_of_{from}_for_{to}");
        let token = self.number(spot, "token", DType::Bool, 1)?;
        let mut waited = Vec::new();
        let mut outgoing = Vec::new();
        for &other in &others {
            let queue = self.queue(spot, &name(other, own), capacity, TOKEN)?;
            waited.push(self.take_element(spot, &format!("wait_for_{other}"), &queue, TOKEN, done)?);
            outgoing.push((other, self.queue(spot, &name(own, other), capacity, TOKEN)?));
        }
        let mut told = Vec::new();
        for (other, queue) in &outgoing {
            told.push(self.put(
                spot,
                &format!("tell_{other}"),
                queue,
                (&[&token], TOKEN),
                "QueueEnqueueV2",
                &waited,
            )?);
        }
        if self.job.is_chief() {
            let count = self.vector(spot, "stock/count", DType::Int32, &[i64::from(staleness)])?;
            let fill = [("T", ty(DType::Bool)), ("index_type", ty(DType::Int32))];
            let stock = self.add(spot, "stock", "Fill", &[&count, &token], &fill)?;
            for from in 0..self.job.nodes() {
                for to in (0..self.job.nodes()).filter(|&to| to != from) {
                    let queue = if from == own || to == own {
                        spot.name(&name(from, to))
                    } else {
                        self.queue(spot, &name(from, to), capacity, TOKEN)?
                    };
                    let put = format!("stock_{from}_for_{to}");
                    prepare.push(self.put(spot, &put, &queue, (&[&stock], TOKEN), "QueueEnqueueManyV2", &[])?);
                }
            }
        } else if !prepare.is_empty() {
            return Err(invalid_argument!("\"{}\" is prepared twice", learner.variable.name));
        }
        Ok(told)
    }
}

/// Where the gradients of a variable meet.
struct Accumulator {
    handle: String,
    /// With a row more than the variable has, if gradients have rows.
    shape: Vec<i64>,
}

/// Never stale.
const ALWAYS: i64 = i64::MAX;

impl Accumulator {
    fn new(writer: &mut Writer<'_>, spot: &Spot, learner: &Learner<'_>, gradient: &Gathered) -> Result<Accumulator> {
        let dims = learner.variable.shape.dims().filter(|dims| dims.iter().all(|&size| size >= 0));
        let Some(dims) = dims else {
            return Err(invalid_argument!(
                "Variable \"{}\" has the shape {}; a parameter server needs to know it in full",
                learner.variable.name,
                learner.variable.shape
            ));
        };
        let mut shape = dims.to_vec();
        let (op, reduction) = match (gradient, shape.first_mut()) {
            (Gathered::Rows(_), Some(rows)) => {
                // The row after the last counts contributions: TensorFlow's mean would divide each row by its own count.
                *rows += 1;
                ("SparseConditionalAccumulator", "SUM")
            }
            _ => ("ConditionalAccumulator", "MEAN"),
        };
        let sizes: Vec<u64> = shape.iter().map(|&size| u64::try_from(size).unwrap_or(0)).collect();
        let attrs = [
            ("dtype", ty(learner.variable.dtype)),
            ("shape", Value::Shape(super::nodes::shape(&sizes))),
            ("container", bytes("")),
            ("shared_name", writer.shared_name(spot, "grad_accum")),
            ("reduction_type", bytes(reduction)),
        ];
        Ok(Accumulator { handle: writer.add(spot, "grad_accum", op, &[], &attrs)?, shape })
    }

    /// Adds a gradient. The variable has been read by then, so that this step sees one value of it.
    fn push(&self, writer: &mut Writer<'_>, spot: &Spot, learner: &Learner<'_>, gradient: &Gathered) -> Result<String> {
        let dtype = learner.variable.dtype;
        let step = writer.number(spot, "local_step", DType::Int64, ALWAYS)?;
        let read = writer.read_of_step(learner).map(|read| after(&read));
        let local = Spot::of(learner, &writer.job.processor());
        let mut inputs = vec![self.handle.clone(), step];
        let attrs = [("dtype", ty(dtype))];
        let op = match gradient {
            Gathered::Dense(mean) => {
                inputs.push(mean.clone());
                "AccumulatorApplyGradient"
            }
            Gathered::Rows(rows) => {
                let rows = writer.wide(&local, "pushed_indices", rows)?;
                let rows = writer.distinct(&local, "pushed", &rows, dtype)?;
                let last = writer.vector(&local, "count/index", DType::Int64, &[self.shape[0] - 1])?;
                let one_row: Vec<i64> = [1].iter().chain(&self.shape[1..]).copied().collect();
                let one_row = writer.vector(&local, "count/shape", DType::Int32, &one_row)?;
                let one = writer.number(&local, "count/one", dtype, 1)?;
                let fill = [("T", ty(dtype)), ("index_type", ty(DType::Int32))];
                let count = writer.add(&local, "count", "Fill", &[&one_row, &one], &fill)?;
                inputs.push(writer.concat(&local, "counted_indices", DType::Int64, &[&rows.indices, &last])?);
                inputs.push(writer.concat(&local, "counted_values", dtype, &[&rows.values, &count])?);
                inputs.push(writer.vector(&local, "counted_shape", DType::Int64, &self.shape)?);
                "SparseAccumulatorApplyGradient"
            }
        };
        inputs.extend(read);
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let mut all = attrs.to_vec();
        if op.starts_with("Sparse") {
            all.push(("has_known_shape", Value::B(true)));
        }
        writer.add(spot, "accum_apply_grad", op, &inputs, &all)
    }

    /// Takes the mean of at least `wanted` gradients.
    fn take(
        &self,
        writer: &mut Writer<'_>,
        spot: &Spot,
        learner: &Learner<'_>,
        wanted: usize,
        pushed: &str,
    ) -> Result<Gathered> {
        let dtype = learner.variable.dtype;
        let wanted = writer.number(spot, "num_required", DType::Int32, wanted as i64)?;
        let pushed = after(pushed);
        let inputs = [self.handle.as_str(), &wanted, &pushed];
        let attrs = [("dtype", ty(dtype))];
        if learner.sources.len() == 1 {
            return Ok(Gathered::Dense(writer.add(spot, "take_grad", "AccumulatorTakeGradient", &inputs, &attrs)?));
        }
        let index_type = match writer.index_type(learner)? {
            Some(index_type) => index_type,
            None => DType::Int64,
        };
        let taken = writer.add(spot, "take_grad", "SparseAccumulatorTakeGradient", &inputs, &attrs)?;
        let all_values = format!("{taken}:1");
        let total = writer.size(spot, "taken/total", DType::Int64, &taken)?;
        let one = writer.vector(spot, "taken/one", DType::Int32, &[1])?;
        let int32 = [("T", ty(DType::Int32))];
        let total = {
            let any = writer.vector(spot, "taken/vector", DType::Int32, &[1])?;
            let reshape = [("T", ty(DType::Int32)), ("Tshape", ty(DType::Int32))];
            writer.add(spot, "taken/total_vector", "Reshape", &[&total, &any], &reshape)?
        };
        let rows = writer.add(spot, "taken/rows", "Sub", &[&total, &one], &int32)?;
        let zero = writer.vector(spot, "taken/zero", DType::Int32, &[0])?;
        let rest = vec![0; self.shape.len() - 1];
        let whole = vec![-1; rest.len()];
        let rest = writer.vector(spot, "taken/rest", DType::Int32, &rest)?;
        let whole = writer.vector(spot, "taken/whole", DType::Int32, &whole)?;
        let slice = |dtype| [("T", ty(dtype)), ("Index", ty(DType::Int32))];
        let indices = writer.add(spot, "taken/indices", "Slice", &[&taken, &zero, &rows], &slice(DType::Int64))?;
        let first = writer.concat(spot, "taken/first", DType::Int32, &[&zero, &rest])?;
        let most = writer.concat(spot, "taken/most", DType::Int32, &[&rows, &whole])?;
        let values = writer.add(spot, "taken/values", "Slice", &[&all_values, &first, &most], &slice(dtype))?;
        let last = writer.concat(spot, "taken/last", DType::Int32, &[&rows, &rest])?;
        let one_row = writer.concat(spot, "taken/one_row", DType::Int32, &[&one, &whole])?;
        let count = writer.add(spot, "taken/count", "Slice", &[&all_values, &last, &one_row], &slice(dtype))?;
        let values = writer.add(spot, "taken/mean", "RealDiv", &[&values, &count], &[("T", ty(dtype))])?;
        let indices = match index_type {
            DType::Int64 => indices,
            narrow => writer.cast(spot, "taken/narrow", &indices, DType::Int64, narrow)?,
        };
        Ok(Gathered::Rows(Rows { indices, values, index_type }))
    }
}

impl Writer<'_> {
    /// The same rows with numbers of 64 bits.
    fn wide(&mut self, spot: &Spot, name: &str, rows: &Rows) -> Result<Rows> {
        let indices = match rows.index_type {
            DType::Int64 => rows.indices.clone(),
            narrow => self.cast(spot, name, &rows.indices, narrow, DType::Int64)?,
        };
        Ok(Rows { indices, values: rows.values.clone(), index_type: DType::Int64 })
    }
}
