//! Gradients of variables that every replica holds: summed within a task, then among tasks by collective operations.
//!
//! A task takes part once in each collective, whatever its number of replicas, so every replica counts once in the mean. Where a strategy has
//! servers too, the gradients meet in an accumulator instead.

use super::gradients::{Gathered, Rows};
use super::replicas::dense_of;
use super::roles::Learner;
use super::writer::{Spot, Writer, bytes, ty};
use crate::compiler::{InstanceKeys, instance_key};
use crate::strategy::{AllReduce, Communication, Compressor, Synchronizer};
use graphmill_tensor::{DType, Result};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};

/// The numbers by which the tasks of a job meet.
struct Keys {
    group: u32,
    instances: InstanceKeys,
}

/// Learners whose dense gradients travel in one message.
pub(super) struct Bundle {
    pub reduce: AllReduce,
    pub dtype: DType,
    /// What waits for the updates: updates of different programs do not travel together.
    waiting: Vec<usize>,
    members: Vec<usize>,
}

impl Writer<'_> {
    /// Writes how the learners that have no server learn; the results are by the learner's number.
    pub fn reduce(&mut self) -> Result<Vec<(usize, Gathered, Vec<String>)>> {
        let roles = self.roles;
        let mut keys = Keys { group: instance_key(&self.job.strategy.id), instances: InstanceKeys::new() };
        // Steps with collective operations bear one number on all tasks, so that those of two sessions would be one step on a server.
        let is_mixed = roles.learners.iter().any(|learner| learner.server().is_some());
        let mut bundles: Vec<Bundle> = Vec::new();
        let mut results = Vec::new();
        for (number, learner) in roles.learners.iter().enumerate() {
            let Synchronizer::AllReduce(reduce) = learner.leaf.synchronizer else { continue };
            if is_mixed && self.job.nodes() > 1 {
                let hub = self.job.participant_processor(number);
                results.push((number, self.meet(learner, &hub)?, Vec::new()));
                continue;
            }
            if learner.sources.len() > 1 || self.job.nodes() == 1 {
                let gradient = self.reduce_alone(learner, reduce, &mut keys)?;
                results.push((number, gradient, Vec::new()));
                continue;
            }
            let dtype = learner.variable.dtype;
            let waiting = roles.item.index().consumers(learner.update).to_vec();
            let known = bundles.iter_mut().find(|bundle| {
                bundle.reduce == reduce && bundle.dtype == dtype && bundle.waiting == waiting && has_size(learner)
            });
            match known {
                Some(bundle) => bundle.members.push(number),
                None => bundles.push(Bundle { reduce, dtype, waiting, members: vec![number] }),
            }
        }
        for bundle in bundles {
            self.reduce_bundle(&bundle, &mut keys, &mut results)?;
        }
        Ok(results)
    }

    /// What to tell if gradients that a strategy compresses travel as they are.
    pub fn plain_warning(&self) -> Option<String> {
        let is_mixed = self.roles.learners.iter().any(|learner| learner.server().is_some());
        let compressed = self.roles.learners.iter().find(|learner| {
            matches!(&learner.leaf.synchronizer, Synchronizer::AllReduce(reduce) if reduce.compressor != Compressor::None)
        })?;
        (is_mixed && self.job.nodes() > 1).then(|| {
            format!(
                "The gradient of \"{}\" is not compressed: the strategy has parameter servers too",
                compressed.variable.name
            )
        })
    }

    /// The mean over all replicas of the job of one gradient.
    fn reduce_alone(&mut self, learner: &Learner<'_>, reduce: AllReduce, keys: &mut Keys) -> Result<Gathered> {
        let spot = Spot::of(learner, &self.job.processor());
        let total = self.job.strategy.replicas.len();
        let sum = self.local_sum(learner)?;
        match sum {
            Gathered::Rows(rows) if self.job.nodes() > 1 => {
                let rows = self.gather_rows(&spot, learner, reduce, &rows, keys)?;
                self.share(&spot, "mean", learner, Gathered::Rows(rows), total)
            }
            sum => self.share(&spot, "mean", learner, sum, total),
        }
    }

    /// All tasks' rows. Those of a task are made as many as the fullest has, so that what travels grows with the number of distinct rows.
    fn gather_rows(
        &mut self,
        spot: &Spot,
        learner: &Learner<'_>,
        reduce: AllReduce,
        rows: &Rows,
        keys: &mut Keys,
    ) -> Result<Rows> {
        let (dtype, index_type, int32) = (learner.variable.dtype, rows.index_type, ty(DType::Int32));
        let row: Vec<i64> = learner.variable.shape.dims().unwrap_or_default().iter().skip(1).copied().collect();
        let rows = self.distinct(spot, "own", rows, dtype)?;
        let size = self.size(spot, "own/size", index_type, &rows.indices)?;
        let vector = self.vector(spot, "own/vector", DType::Int32, &[1])?;
        let reshape = |dtype| [("T", ty(dtype)), ("Tshape", ty(DType::Int32))];
        let size = self.add(spot, "own/rows", "Reshape", &[&size, &vector], &reshape(DType::Int32))?;
        let op = learner.op_name();
        let most = self.collective(spot, "most", DType::Int32, &size, reduce, "Max", keys, &format!("{op}-rows"))?;
        let missing = self.add(spot, "missing", "Sub", &[&most, &size], &[("T", int32.clone())])?;
        let fill = |dtype| [("T", ty(dtype)), ("index_type", ty(DType::Int32))];
        let none = self.number(spot, "none", index_type, -1)?;
        let no_indices = self.add(spot, "no_indices", "Fill", &[&missing, &none], &fill(index_type))?;
        let row = self.vector(spot, "row", DType::Int32, &row)?;
        let no_shape = self.concat(spot, "no_shape", DType::Int32, &[&missing, &row])?;
        let zero = self.number(spot, "zero", dtype, 0)?;
        let no_values = self.add(spot, "no_values", "Fill", &[&no_shape, &zero], &fill(dtype))?;
        let indices = self.concat(spot, "sent_indices", index_type, &[&rows.indices, &no_indices])?;
        let values = self.concat(spot, "sent_values", dtype, &[&rows.values, &no_values])?;
        let scalar =
            self.add(spot, "number/shape", "Shape", &[&none], &[("T", ty(index_type)), ("out_type", int32)])?;
        let number = self.add(spot, "number", "Reshape", &[&most, &scalar], &reshape(DType::Int32))?;
        let indices = self.gather_all(spot, "gathered_indices", index_type, &indices, reduce, &number)?;
        let values = self.gather_all(spot, "gathered_values", dtype, &values, reduce, &number)?;
        let first = self.number(spot, "first", index_type, 0)?;
        let real = self.add(spot, "is_row", "GreaterEqual", &[&indices, &first], &[("T", ty(index_type))])?;
        let real = self.add(spot, "where", "Where", &[&real], &[("T", ty(DType::Bool))])?;
        let any = self.vector(spot, "any", DType::Int32, &[-1])?;
        let real = self.add(spot, "real", "Reshape", &[&real, &any], &reshape(DType::Int64))?;
        let real = self.cast(spot, "real_rows", &real, DType::Int64, DType::Int32)?;
        let all = Rows {
            indices: self.gather(spot, "real_indices", index_type, &indices, &real)?,
            values: self.gather(spot, "real_values", dtype, &values, &real)?,
            index_type,
        };
        self.distinct(spot, "all", &all, dtype)
    }

    /// The means of several gradients, in one message.
    fn reduce_bundle(
        &mut self,
        bundle: &Bundle,
        keys: &mut Keys,
        results: &mut Vec<(usize, Gathered, Vec<String>)>,
    ) -> Result<()> {
        let roles = self.roles;
        let Some(first) = bundle.members.first().map(|&number| &roles.learners[number]) else { return Ok(()) };
        let spot = Spot::of(first, &self.job.processor());
        let mut sums = Vec::new();
        for &number in &bundle.members {
            sums.push(self.local_sum(&roles.learners[number])?);
        }
        let flat = self.vector(&spot, "flat", DType::Int32, &[-1])?;
        let dtype = bundle.dtype;
        let reshape = [("T", ty(dtype)), ("Tshape", ty(DType::Int32))];
        let mut pieces = Vec::new();
        for (i, sum) in sums.iter().filter_map(dense_of).enumerate() {
            pieces.push(self.add(&spot, &format!("flat_{i}"), "Reshape", &[sum, &flat], &reshape)?);
        }
        let packed = match &pieces[..] {
            [one] => one.clone(),
            many => {
                let many: Vec<&str> = many.iter().map(String::as_str).collect();
                self.concat(&spot, "packed", dtype, &many)?
            }
        };
        let name =
            if bundle.members.len() > 1 { format!("{}/group", first.op_name()) } else { first.op_name().to_owned() };
        let (mean, prepare) = self.mean_of_packed(&spot, first, bundle, &packed, keys, &name)?;
        let mut prepare = Some(prepare);
        let mut parts = vec![mean.clone()];
        if bundle.members.len() > 1 {
            let sizes: Vec<i64> =
                bundle.members.iter().map(|&number| dims(&roles.learners[number]).iter().product()).collect();
            let sizes = self.vector(&spot, "sizes", DType::Int64, &sizes)?;
            let axis = self.number(&spot, "split_axis", DType::Int32, 0)?;
            let count = bundle.members.len();
            let attrs = [("T", ty(dtype)), ("Tlen", ty(DType::Int64)), ("num_split", Value::I(count as i64))];
            let split = self.add(&spot, "parts", "SplitV", &[&mean, &sizes, &axis], &attrs)?;
            parts = (0..count).map(|i| format!("{split}:{i}")).collect();
        }
        for (i, (&number, part)) in bundle.members.iter().zip(&parts).enumerate() {
            let learner = &roles.learners[number];
            let shape = if has_size(learner) {
                self.vector(&spot, &format!("shape_{i}"), DType::Int32, dims(learner))?
            } else {
                let sum = dense_of(&sums[i]).unwrap_or_default().to_owned();
                let attrs = [("T", ty(dtype)), ("out_type", ty(DType::Int32))];
                self.add(&spot, &format!("shape_{i}"), "Shape", &[&sum], &attrs)?
            };
            let gradient = self.add(&spot, &format!("mean_{i}"), "Reshape", &[part, &shape], &reshape)?;
            results.push((number, Gathered::Dense(gradient), prepare.take().unwrap_or_default()));
        }
        Ok(())
    }

    /// The mean over all replicas of a vector that each task has the sum of, and what to run before the first step.
    fn mean_of_packed(
        &mut self,
        spot: &Spot,
        first: &Learner<'_>,
        bundle: &Bundle,
        sum: &str,
        keys: &mut Keys,
        name: &str,
    ) -> Result<(String, Vec<String>)> {
        let (dtype, total) = (bundle.dtype, self.job.strategy.replicas.len());
        let is_wide = matches!(dtype, DType::Float | DType::Double);
        if bundle.reduce.compressor == Compressor::None || !is_wide {
            let reduced = self.collective(spot, "reduced", dtype, sum, bundle.reduce, "Add", keys, name)?;
            return Ok((self.divide(spot, "mean", dtype, &reduced, total)?, Vec::new()));
        }
        self.mean_of_halves(spot, first, bundle, sum)
    }

    /// The number of elements of a bundle.
    pub(super) fn packed_size(&self, bundle: &Bundle) -> Option<u64> {
        let sizes = bundle.members.iter().map(|&number| self.roles.learners[number].variable.shape.to_shape());
        sizes.map(|shape| u64::try_from(shape?.num_elements()).ok()).sum()
    }

    fn collective_attrs(&self, spot: &Spot, dtype: DType, reduce: AllReduce) -> Vec<(&'static str, Value)> {
        // NVIDIA's library joins no processors.
        let hint = match reduce.communication {
            Communication::Nccl if spot.device.contains(":CPU:") => Communication::Auto,
            other => other,
        };
        vec![("T", ty(dtype)), ("communication_hint", bytes(hint.hint())), ("timeout_seconds", Value::F(0.0))]
    }

    /// All tasks' rows behind each other; each brings as many. TensorFlow remembers the shape that goes with a number, so `number`
    /// differs where that does, within a group that has this purpose alone.
    pub(super) fn gather_all(
        &mut self,
        spot: &Spot,
        name: &str,
        dtype: DType,
        input: &str,
        reduce: AllReduce,
        number: &str,
    ) -> Result<String> {
        let group = instance_key(&format!("{}/{}", self.job.strategy.id, spot.name(name)));
        let size = self.number(spot, &format!("{name}/group_size"), DType::Int32, self.job.nodes() as i64)?;
        let group = self.number(spot, &format!("{name}/group_key"), DType::Int32, i64::from(group))?;
        let mut attrs = self.collective_attrs(spot, dtype, reduce);
        attrs.extend([("Nordering_token", Value::I(0)), ("is_stateless", Value::B(true))]);
        self.add(spot, name, "CollectiveGatherV2", &[input, &size, &group, number], &attrs)
    }

    #[allow(clippy::too_many_arguments)]
    fn collective(
        &mut self,
        spot: &Spot,
        name: &str,
        dtype: DType,
        input: &str,
        reduce: AllReduce,
        merge: &str,
        keys: &mut Keys,
        key_name: &str,
    ) -> Result<String> {
        let instance = keys.instances.assign(key_name);
        let (nodes, group) = (self.job.nodes() as i64, keys.group);
        let mut attrs = self.collective_attrs(spot, dtype, reduce);
        let offsets = ListValue { i: vec![0], ..ListValue::default() };
        attrs.extend([
            ("group_size", Value::I(nodes)),
            ("group_key", Value::I(group.into())),
            ("instance_key", Value::I(instance.into())),
            ("merge_op", bytes(merge)),
            ("final_op", bytes("Id")),
            ("subdiv_offsets", Value::List(Box::new(offsets))),
            ("wait_for", Value::List(Box::default())),
        ]);
        self.add(spot, name, "CollectiveReduce", &[input], &attrs)
    }
}

fn dims<'a>(learner: &'a Learner<'_>) -> &'a [i64] {
    learner.variable.shape.dims().unwrap_or_default()
}

fn has_size(learner: &Learner<'_>) -> bool {
    learner.variable.shape.dims().is_some_and(|dims| dims.iter().all(|&size| size >= 0))
}
