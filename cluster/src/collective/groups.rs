//! Who belongs to a group: the leader finds out, the others ask it.

use crate::peers::task_of;
use bytes::Bytes;
use graphmill_runtime::CollectiveMember;
use graphmill_tensor::{Result, Status, failed_precondition, internal};
use graphmill_wire::tensorflow::{CompleteGroupResponse, DeviceAttributes};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A device that wants to be in a group.
#[derive(Clone)]
pub(super) struct Applicant {
    /// What the device wants to do.
    pub name: String,
    pub group_key: i32,
    pub group_size: usize,
    pub device_type: String,
    pub device: DeviceAttributes,
}

/// A group that is complete.
pub(super) struct Group {
    pub key: i32,
    pub device_type: String,
    pub communicator_key: Bytes,
    /// The devices, sorted by name.
    devices: BTreeMap<String, DeviceAttributes>,
    /// The same in the order of the ranks.
    pub members: Arc<[CollectiveMember]>,
}

impl Group {
    fn new(key: i32, device_type: &str, communicator_key: Bytes, devices: BTreeMap<String, DeviceAttributes>) -> Group {
        // Sorted by name, the devices of a task are neighbours.
        let member = |device: &DeviceAttributes| CollectiveMember {
            task: task_of(&device.name).to_owned(),
            device: device.name.clone(),
            incarnation: device.incarnation,
        };
        let members = devices.values().map(member).collect();
        Group { key, device_type: device_type.to_owned(), communicator_key, devices, members }
    }

    /// The group that a leader has told of.
    ///
    /// # Errors
    /// `INTERNAL` for an answer that is none.
    pub fn from_response(response: CompleteGroupResponse) -> Result<Group> {
        if response.device_attributes.is_empty() {
            return Err(internal!(
                "CompleteGroupResponse device_attributes is empty. Make sure you're running the same version of Tensorflow on all workers."
            ));
        }
        if usize::try_from(response.group_size) != Ok(response.device_attributes.len()) {
            return Err(internal!("CompleteGroupResponse group_size doesn't match device_name list"));
        }
        let devices = response.device_attributes.into_iter().map(|device| (device.name.clone(), device)).collect();
        Ok(Group::new(response.group_key, &response.device_type, response.communicator_key, devices))
    }

    /// What a leader tells of the group.
    pub fn to_response(&self) -> CompleteGroupResponse {
        let tasks: BTreeSet<&str> = self.members.iter().map(|member| member.task.as_str()).collect();
        CompleteGroupResponse {
            group_key: self.key,
            group_size: i32::try_from(self.members.len()).unwrap_or(i32::MAX),
            device_type: self.device_type.clone(),
            num_tasks: i32::try_from(tasks.len()).unwrap_or(i32::MAX),
            communicator_key: self.communicator_key.clone(),
            device_attributes: self.devices.values().cloned().collect(),
        }
    }

    /// Checks that a device belongs to the group.
    ///
    /// # Errors
    /// `INTERNAL` for another size or type or a foreign device, `FAILED_PRECONDITION` for a device whose process has restarted.
    pub fn admit(&self, applicant: &Applicant) -> Result<()> {
        check_terms(applicant, self.members.len(), &self.device_type)?;
        match self.devices.get(&applicant.device.name) {
            Some(known) if known.incarnation == applicant.device.incarnation => Ok(()),
            Some(_) => Err(restarted(&applicant.device.name)),
            None => Err(internal!(
                "Collective Op {} is assigned to device {} and group_key {} but that group doesn't contain that device.",
                applicant.name,
                applicant.device.name,
                applicant.group_key
            )),
        }
    }
}

fn check_terms(applicant: &Applicant, size: usize, device_type: &str) -> Result<()> {
    let Applicant { name, group_key, group_size, .. } = applicant;
    if applicant.device_type != device_type {
        return Err(internal!(
            "Collective Op {name} is assigned to device {} with type {} and group_key {group_key} but that group has type {device_type}",
            applicant.device.name,
            applicant.device_type
        ));
    }
    if *group_size != size {
        return Err(internal!(
            "Collective Op {name} has group_size {group_size} and group_key {group_key} but that group has size {size}"
        ));
    }
    Ok(())
}

fn restarted(device: &str) -> Status {
    failed_precondition!(
        "Device {device} current incarnation doesn't match with one in the group. This usually means this worker has restarted but \
         the collective leader hasn't, or this worker connects to a wrong cluster."
    )
}

/// Most groups that are remembered. Those beyond gather anew.
const MOST: usize = 100_000;

type Waiter = oneshot::Sender<Result<Arc<Group>>>;

/// A group that a leader gathers.
struct Gathering {
    size: usize,
    device_type: String,
    devices: BTreeMap<String, DeviceAttributes>,
    /// By the device that waits.
    waiting: Vec<(String, u64, Waiter)>,
}

enum Record {
    Gathering(Gathering),
    Complete(Arc<Group>),
}

/// The groups that this task leads.
#[derive(Default)]
pub(super) struct Groups(Mutex<State>);

#[derive(Default)]
struct State {
    records: HashMap<i32, Record>,
    next: u64,
}

impl Groups {
    /// Waits until all devices of the group are there. What goes wrong fails those who wait with the caller, and is forgotten.
    ///
    /// # Errors
    /// As [`Group::admit`].
    pub async fn join(&self, applicant: &Applicant, communicator_key: impl FnOnce() -> Bytes) -> Result<Arc<Group>> {
        let (receiver, number) = match self.enter(applicant, communicator_key)? {
            Entered::Complete(group) => return Ok(group),
            Entered::Waits(receiver, number) => (receiver, number),
        };
        let _withdraw = Withdraw { groups: self, applicant, number };
        receiver.await.unwrap_or_else(|_| Err(internal!("The group {} went away", applicant.group_key)))
    }

    fn enter(&self, applicant: &Applicant, communicator_key: impl FnOnce() -> Bytes) -> Result<Entered> {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let key = applicant.group_key;
        make_room(state);
        let record = state.records.entry(key).or_insert_with(|| {
            Record::Gathering(Gathering {
                size: applicant.group_size,
                device_type: applicant.device_type.clone(),
                devices: BTreeMap::new(),
                waiting: Vec::new(),
            })
        });
        let gathering = match record {
            Record::Complete(group) => {
                let group = group.clone();
                return match group.admit(applicant) {
                    Ok(()) => Ok(Entered::Complete(group)),
                    Err(error) => {
                        if error.code() == graphmill_tensor::Code::FailedPrecondition {
                            state.records.remove(&key);
                        }
                        Err(error)
                    }
                };
            }
            Record::Gathering(gathering) => gathering,
        };
        let mut checked = check_terms(applicant, gathering.size, &gathering.device_type);
        let device = &applicant.device;
        if gathering.devices.get(&device.name).is_some_and(|known| known.incarnation != device.incarnation) {
            checked = checked.and(Err(restarted(&device.name)));
        }
        if let Err(error) = checked {
            let waiting = std::mem::take(&mut gathering.waiting);
            state.records.remove(&key);
            drop(guard);
            waiting.into_iter().for_each(|(_, _, waiter)| drop(waiter.send(Err(error.clone()))));
            return Err(error);
        }
        gathering.devices.insert(device.name.clone(), device.clone());
        if gathering.devices.len() < gathering.size {
            let (sender, receiver) = oneshot::channel();
            let number = state.next;
            state.next += 1;
            gathering.waiting.push((device.name.clone(), number, sender));
            return Ok(Entered::Waits(receiver, number));
        }
        let devices = std::mem::take(&mut gathering.devices);
        let waiting = std::mem::take(&mut gathering.waiting);
        let group = Arc::new(Group::new(key, &applicant.device_type, communicator_key(), devices));
        *record = Record::Complete(group.clone());
        drop(guard);
        waiting.into_iter().for_each(|(_, _, waiter)| drop(waiter.send(Ok(group.clone()))));
        Ok(Entered::Complete(group))
    }

    /// The group if it is complete.
    pub fn complete(&self, key: i32) -> Option<Arc<Group>> {
        match self.0.lock().records.get(&key) {
            Some(Record::Complete(group)) => Some(group.clone()),
            _ => None,
        }
    }

    /// Notes a group that a leader has told of.
    pub fn remember(&self, group: Arc<Group>) {
        let mut state = self.0.lock();
        make_room(&mut state);
        state.records.insert(group.key, Record::Complete(group));
    }

    /// Whether somebody has asked for the group.
    pub fn is_known(&self, key: i32) -> bool {
        self.0.lock().records.contains_key(&key)
    }

    /// Forgets a group, because a member has restarted.
    pub fn forget(&self, key: i32) {
        self.0.lock().records.remove(&key);
    }

    /// The devices that have come to a group that is not complete.
    pub fn present(&self, key: i32) -> Vec<String> {
        match self.0.lock().records.get(&key) {
            Some(Record::Gathering(gathering)) => gathering.devices.keys().cloned().collect(),
            _ => Vec::new(),
        }
    }
}

fn make_room(state: &mut State) {
    if state.records.len() >= MOST {
        state.records.retain(|_, record| matches!(record, Record::Gathering(_)));
    }
}

enum Entered {
    Complete(Arc<Group>),
    Waits(oneshot::Receiver<Result<Arc<Group>>>, u64),
}

/// Takes a device that waits no more out of a group that is not complete.
struct Withdraw<'a> {
    groups: &'a Groups,
    applicant: &'a Applicant,
    number: u64,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let mut state = self.groups.0.lock();
        let key = self.applicant.group_key;
        let Some(Record::Gathering(gathering)) = state.records.get_mut(&key) else { return };
        let device = &self.applicant.device.name;
        gathering.waiting.retain(|(_, number, _)| *number != self.number);
        if !gathering.waiting.iter().any(|(waiting, ..)| waiting == device) {
            gathering.devices.remove(device);
        }
        if gathering.devices.is_empty() {
            state.records.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;

    fn applicant(task: u32, size: usize, incarnation: u64) -> Applicant {
        let name = format!("/job:worker/replica:0/task:{task}/device:CPU:0");
        Applicant {
            name: "X".to_owned(),
            group_key: 1,
            group_size: size,
            device_type: "CPU".to_owned(),
            device: DeviceAttributes { name, incarnation, ..Default::default() },
        }
    }

    async fn join(groups: &Groups, applicant: Applicant) -> Result<Arc<Group>> {
        groups.join(&applicant, Bytes::new).await
    }

    #[tokio::test]
    async fn ranks_follow_the_names() {
        let groups = Groups::default();
        let (a, b, c) = tokio::join!(
            join(&groups, applicant(2, 3, 1)),
            join(&groups, applicant(10, 3, 2)),
            join(&groups, applicant(0, 3, 3))
        );
        let tasks: Vec<u64> = c.unwrap().members.iter().map(|member| member.incarnation).collect();
        assert_eq!(tasks, [3, 2, 1]);
        assert_eq!(a.unwrap().to_response().num_tasks, 3);
        let again = Group::from_response(b.unwrap().to_response()).unwrap();
        assert_eq!(again.members.len(), 3);
    }

    #[tokio::test]
    async fn those_who_do_not_fit_are_told() {
        let groups = Groups::default();
        let (one, other) = tokio::join!(join(&groups, applicant(0, 2, 1)), join(&groups, applicant(1, 3, 1)));
        let text = "Collective Op X has group_size 3 and group_key 1 but that group has size 2";
        assert_eq!(one.err().unwrap().message(), text);
        assert_eq!(other.err().unwrap().message(), text);
        assert!(!groups.is_known(1));
        let (one, other) = tokio::join!(join(&groups, applicant(0, 2, 1)), join(&groups, applicant(1, 2, 1)));
        assert!(one.is_ok() && other.is_ok());
        assert_eq!(join(&groups, applicant(2, 2, 1)).await.err().unwrap().code(), Code::Internal);
        assert!(join(&groups, applicant(1, 2, 1)).await.is_ok());
        let error = join(&groups, applicant(1, 2, 7)).await.err().unwrap();
        assert_eq!(error.code(), Code::FailedPrecondition);
        assert!(!groups.is_known(1));
    }

    #[tokio::test]
    async fn those_who_go_away_do_not_count() {
        let groups = Groups::default();
        let gone = applicant(0, 2, 1);
        tokio::select! {
            biased;
            _ = groups.join(&gone, Bytes::new) => unreachable!(),
            () = std::future::ready(()) => {}
        }
        assert!(!groups.is_known(1));
    }
}
