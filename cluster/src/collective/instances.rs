//! What the members of a group agree on for one operation.

use super::groups::Group;
use graphmill_runtime::{CollectiveKind, CollectivePart};
use graphmill_tensor::{DType, Result, Shape, internal, invalid_argument};
use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::sync::oneshot;

/// What a member says of an operation.
#[derive(Clone)]
pub(super) struct Terms {
    /// The number of the kind.
    pub kind: i32,
    /// The number of the element type.
    pub dtype: i32,
    pub shape: Shape,
    pub instance_key: i32,
    pub device: String,
    pub is_source: bool,
    /// Whether the next step may come with other terms.
    pub is_stateless: bool,
}

impl Terms {
    pub fn new(part: &CollectivePart, device: &str) -> Terms {
        Terms {
            kind: part.kind.number(),
            dtype: part.dtype.number(),
            shape: part.shape.clone(),
            instance_key: part.instance_key,
            device: device.to_owned(),
            is_source: part.is_source,
            is_stateless: part.is_stateless,
        }
    }

    fn is_broadcast(&self) -> bool {
        self.kind == CollectiveKind::Broadcast.number()
    }

    /// Whether each step may do without the others' terms.
    pub fn is_free(&self) -> bool {
        self.is_stateless && !self.is_broadcast()
    }

    fn check(&self, known: &Terms) -> Result<()> {
        let key = self.instance_key;
        if (known.kind, known.dtype) != (self.kind, self.dtype) {
            return Err(internal!(
                "Collective instance {key} expected type {} and data_type {} but got type {} and data_type {}",
                known.kind,
                known.dtype,
                self.kind,
                self.dtype
            ));
        }
        if known.shape != self.shape {
            return Err(invalid_argument!(
                "Shape mismatch in the collective instance {key}. Op at device {} expected shape {} but another member in the group \
                 expected shape {}. This is likely due to different input shapes at different members of the collective op.",
                self.device,
                self.shape,
                known.shape
            ));
        }
        Ok(())
    }
}

/// Most operations that are remembered. Those beyond are agreed on anew.
const MOST: usize = 100_000;

type Waiter = oneshot::Sender<Result<Option<usize>>>;

/// An operation of which the members' terms come together.
struct Record {
    terms: Terms,
    source_rank: Option<usize>,
    /// By rank, whether the member has said what it does; for broadcasts alone.
    present: Vec<bool>,
    waiting: Vec<(usize, u64, Waiter)>,
}

impl Record {
    fn is_settled(&self) -> bool {
        !self.terms.is_broadcast() || self.present.iter().all(|&present| present)
    }
}

/// The operations that this task has agreed on, as a leader or for itself.
#[derive(Default)]
pub(super) struct Instances(Mutex<State>);

#[derive(Default)]
struct State {
    records: HashMap<(i32, i32), Record>,
    next: u64,
}

impl Instances {
    /// Compares a member's terms with those of the others. A broadcast waits until all have said who has the tensor. Yields the rank
    /// of the source. What goes wrong is forgotten once it is told.
    ///
    /// # Errors
    /// `INTERNAL` for another kind or type and for a broadcast without a source or with several, `INVALID_ARGUMENT` for another shape.
    pub async fn agree(&self, group: &Group, terms: &Terms) -> Result<Option<usize>> {
        if terms.is_free() {
            return Ok(None);
        }
        let (receiver, rank, number) = match self.enter(group, terms)? {
            Entered::Settled(source_rank) => return Ok(source_rank),
            Entered::Waits(receiver, rank, number) => (receiver, rank, number),
        };
        let _withdraw = Withdraw { instances: self, key: (group.key, terms.instance_key), rank, number };
        receiver.await.unwrap_or_else(|_| Err(internal!("The instance {} went away", terms.instance_key)))
    }

    fn enter(&self, group: &Group, terms: &Terms) -> Result<Entered> {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let key = (group.key, terms.instance_key);
        make_room(state);
        let record = state.records.entry(key).or_insert_with(|| Record {
            terms: terms.clone(),
            source_rank: None,
            present: vec![false; group.members.len()],
            waiting: Vec::new(),
        });
        let outcome = terms.check(&record.terms).and_then(|()| note(record, group, terms));
        match outcome {
            Err(error) => {
                let waiting = state.records.remove(&key).map(|record| record.waiting).unwrap_or_default();
                drop(guard);
                waiting.into_iter().for_each(|(_, _, waiter)| drop(waiter.send(Err(error.clone()))));
                Err(error)
            }
            Ok(()) if record.is_settled() => {
                let source_rank = record.source_rank;
                let waiting = std::mem::take(&mut record.waiting);
                drop(guard);
                waiting.into_iter().for_each(|(_, _, waiter)| drop(waiter.send(Ok(source_rank))));
                Ok(Entered::Settled(source_rank))
            }
            Ok(()) => {
                let (sender, receiver) = oneshot::channel();
                let number = state.next;
                state.next += 1;
                let rank = rank_of(group, &terms.device)?;
                record.waiting.push((rank, number, sender));
                Ok(Entered::Waits(receiver, rank, number))
            }
        }
    }

    /// The rank of the source of an operation that has been agreed on, if these terms are the same.
    ///
    /// # Errors
    /// As [`Instances::agree`]; the operation is then forgotten.
    pub fn known(&self, group: &Group, terms: &Terms) -> Result<Option<Option<usize>>> {
        if terms.is_free() {
            return Ok(Some(None));
        }
        let mut state = self.0.lock();
        let key = (group.key, terms.instance_key);
        let Some(record) = state.records.get(&key).filter(|record| record.is_settled()) else { return Ok(None) };
        match terms.check(&record.terms) {
            Ok(()) => Ok(Some(record.source_rank)),
            Err(error) => {
                state.records.remove(&key);
                Err(error)
            }
        }
    }

    /// Notes what a leader has said of an operation.
    pub fn remember(&self, group: &Group, terms: Terms, source_rank: Option<usize>) {
        let key = (group.key, terms.instance_key);
        let present = vec![true; group.members.len()];
        let record = Record { terms, source_rank, present, waiting: Vec::new() };
        let mut state = self.0.lock();
        make_room(&mut state);
        state.records.insert(key, record);
    }

    /// Forgets the operations of a group.
    pub fn forget_group(&self, key: i32) {
        self.0.lock().records.retain(|(group, _), _| *group != key);
    }
}

fn make_room(state: &mut State) {
    if state.records.len() >= MOST {
        state.records.retain(|_, record| !record.is_settled());
    }
}

enum Entered {
    Settled(Option<usize>),
    Waits(oneshot::Receiver<Result<Option<usize>>>, usize, u64),
}

/// Notes that a member of a broadcast is there.
fn note(record: &mut Record, group: &Group, terms: &Terms) -> Result<()> {
    if !terms.is_broadcast() {
        return Ok(());
    }
    let key = terms.instance_key;
    let rank = rank_of(group, &terms.device)?;
    let Some(present) = record.present.get_mut(rank) else { return Ok(()) };
    if !*present {
        *present = true;
        match (terms.is_source, record.source_rank) {
            (true, Some(known)) => {
                return Err(internal!("Instance {key} already has source {known}, received second claim from {rank}"));
            }
            (true, None) => record.source_rank = Some(rank),
            (false, _) => {}
        }
    }
    if record.is_settled() && record.source_rank.is_none() {
        return Err(internal!(
            "Instance {key} found no source for broadcast.  This could mean that there were group_size={} BcastRecvs but no BcastSend.",
            record.present.len()
        ));
    }
    Ok(())
}

/// The rank of a device in its group.
///
/// # Errors
/// `INTERNAL` if it is not in the group.
pub(super) fn rank_of(group: &Group, device: &str) -> Result<usize> {
    let rank = group.members.iter().position(|member| member.device == device);
    rank.ok_or_else(|| internal!("Device {device} is not in the group {}", group.key))
}

/// The element type of a number off the wire.
///
/// # Errors
/// `INVALID_ARGUMENT` for a number that is none.
pub(super) fn checked_type(number: i32) -> Result<i32> {
    match DType::from_number(number) {
        Some(dtype) => Ok(dtype.number()),
        None => Err(invalid_argument!("{number} is not the number of an element type")),
    }
}

/// Takes a member that waits no more out of a broadcast that is not settled.
struct Withdraw<'a> {
    instances: &'a Instances,
    key: (i32, i32),
    rank: usize,
    number: u64,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let mut state = self.instances.0.lock();
        let Some(record) = state.records.get_mut(&self.key).filter(|record| !record.is_settled()) else { return };
        record.waiting.retain(|(_, number, _)| *number != self.number);
        if record.waiting.iter().any(|(rank, ..)| *rank == self.rank) {
            return;
        }
        if let Some(present) = record.present.get_mut(self.rank) {
            *present = false;
        }
        if record.source_rank == Some(self.rank) {
            record.source_rank = None;
        }
        if record.present.iter().all(|present| !present) {
            state.records.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::groups::{Applicant, Groups};
    use graphmill_tensor::Code;
    use graphmill_wire::tensorflow::DeviceAttributes;
    use std::sync::Arc;

    fn device(task: u32) -> String {
        format!("/job:worker/replica:0/task:{task}/device:CPU:0")
    }

    async fn group() -> Arc<Group> {
        let groups = Groups::default();
        let applicant = |task| Applicant {
            name: String::new(),
            group_key: 1,
            group_size: 2,
            device_type: "CPU".to_owned(),
            device: DeviceAttributes { name: device(task), ..Default::default() },
        };
        let (first, second) = (applicant(0), applicant(1));
        tokio::join!(groups.join(&first, Default::default), groups.join(&second, Default::default)).0.unwrap()
    }

    fn terms(kind: CollectiveKind, task: u32, length: usize, is_source: bool) -> Terms {
        Terms {
            kind: kind.number(),
            dtype: DType::Float.number(),
            shape: Shape::vector(length),
            instance_key: 5,
            device: device(task),
            is_source,
            is_stateless: false,
        }
    }

    #[tokio::test]
    async fn broadcasts_wait_for_the_source() {
        let (group, instances) = (group().await, Instances::default());
        let part = |task, is_source| terms(CollectiveKind::Broadcast, task, 2, is_source);
        let (receiver, source) = (part(0, false), part(1, true));
        for _ in 0..2 {
            let (a, b) = tokio::join!(instances.agree(&group, &receiver), instances.agree(&group, &source));
            assert_eq!((a.unwrap(), b.unwrap()), (Some(1), Some(1)));
        }
        instances.forget_group(1);
        let (first, second) = (part(0, true), part(1, true));
        let (a, b) = tokio::join!(instances.agree(&group, &first), instances.agree(&group, &second));
        let text = "Instance 5 already has source 0, received second claim from 1";
        assert_eq!((a.unwrap_err().message(), b.unwrap_err().message()), (text, text));
        let (first, second) = (part(0, false), part(1, false));
        let (a, b) = tokio::join!(instances.agree(&group, &first), instances.agree(&group, &second));
        assert!(a.unwrap_err().message().starts_with("Instance 5 found no source for broadcast."));
        assert_eq!(b.unwrap_err().code(), Code::Internal);
    }

    #[tokio::test]
    async fn terms_have_to_agree_and_disagreement_is_forgotten() {
        let (group, instances) = (group().await, Instances::default());
        let reduction = |length| terms(CollectiveKind::Reduction, 0, length, false);
        instances.agree(&group, &reduction(2)).await.unwrap();
        let error = instances.agree(&group, &reduction(3)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        instances.agree(&group, &reduction(3)).await.unwrap();
        let gather = terms(CollectiveKind::Gather, 0, 3, false);
        let error = instances.agree(&group, &gather).await.unwrap_err();
        let text = "Collective instance 5 expected type 0 and data_type 1 but got type 2 and data_type 1";
        assert_eq!(error.message(), text);
        let free = Terms { is_stateless: true, ..reduction(7) };
        assert!(instances.agree(&group, &free).await.unwrap().is_none());
        assert!(instances.known(&group, &gather).unwrap().is_none());
    }
}
