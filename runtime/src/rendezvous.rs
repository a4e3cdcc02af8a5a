//! Where the parts of a step exchange tensors: what a `_Send` puts under a key, the `_Recv` with the same key takes.

use graphmill_tensor::{Result, Status, Tensor};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What is exchanged: a tensor, or `None` for a dead value.
pub type Parcel = Option<Tensor>;

/// Takes what has come, or why nothing will.
pub type Receiver = Box<dyn FnOnce(Result<Parcel>) + Send>;

/// Exchanges tensors between the parts of one step, which may be in other processes.
pub trait Rendezvous: Send + Sync {
    /// Puts a value under a key; it never waits.
    ///
    /// # Errors
    /// Why the step has failed, if it has.
    fn send(&self, key: &Arc<str>, value: Parcel) -> Result<()>;

    /// Takes the value under a key, now or when it comes. Each value is taken once.
    fn receive(&self, key: &Arc<str>, receiver: Receiver);

    /// Fails all receives, those that wait and those that come. The first reason stays.
    fn abort(&self, reason: Status);
}

/// The exchange within one process. The default is empty.
#[derive(Default)]
pub struct LocalRendezvous(Mutex<State>);

#[derive(Default)]
struct State {
    entries: HashMap<Arc<str>, Entry>,
    next_waiter: u64,
    aborted: Option<Status>,
}

/// What is under a key; never empty.
enum Entry {
    Values(VecDeque<Parcel>),
    Waiters(VecDeque<(WaiterId, Receiver)>),
}

/// Names a receive that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterId(u64);

impl LocalRendezvous {
    /// As [`Rendezvous::receive`], for a receive that may be withdrawn. `None` if it has been answered already.
    pub fn receive_or_wait(&self, key: &Arc<str>, receiver: Receiver) -> Option<WaiterId> {
        let outcome = {
            let mut guard = self.0.lock();
            let state = &mut *guard;
            if let Some(reason) = &state.aborted {
                Err(reason.clone())
            } else {
                match state.entries.get_mut(key) {
                    Some(Entry::Values(values)) => {
                        let value = values.pop_front().unwrap_or_default();
                        if values.is_empty() {
                            state.entries.remove(key);
                        }
                        Ok(value)
                    }
                    found => {
                        let id = WaiterId(state.next_waiter);
                        state.next_waiter += 1;
                        match found {
                            Some(Entry::Waiters(waiters)) => waiters.push_back((id, receiver)),
                            _ => {
                                state.entries.insert(key.clone(), Entry::Waiters(VecDeque::from([(id, receiver)])));
                            }
                        }
                        return Some(id);
                    }
                }
            }
        };
        receiver(outcome);
        None
    }

    /// Withdraws a receive that waits; one that has been answered is let be.
    pub fn withdraw(&self, key: &str, id: WaiterId) {
        let mut state = self.0.lock();
        let Some(Entry::Waiters(waiters)) = state.entries.get_mut(key) else { return };
        waiters.retain(|(waiter, _)| *waiter != id);
        let empty = waiters.is_empty();
        if empty {
            state.entries.remove(key);
        }
    }

    /// Whether nothing is there, nobody waits, and nothing has failed.
    pub fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.entries.is_empty() && state.aborted.is_none()
    }

    /// How many values wait to be taken, and the bytes of those that have elements of a fixed size.
    pub fn held(&self) -> (usize, usize) {
        let state = self.0.lock();
        let (mut number, mut bytes) = (0, 0usize);
        for entry in state.entries.values() {
            let Entry::Values(values) = entry else { continue };
            number += values.len();
            let tensors = values.iter().flatten();
            bytes = tensors.fold(bytes, |sum, tensor| sum.saturating_add(tensor.as_bytes().map_or(0, <[u8]>::len)));
        }
        (number, bytes)
    }

    /// The keys that somebody waits for, for those who want to know why a step does not end.
    pub fn awaited(&self) -> Vec<Arc<str>> {
        let state = self.0.lock();
        let awaited = state.entries.iter().filter(|(_, entry)| matches!(entry, Entry::Waiters(_)));
        awaited.map(|(key, _)| key.clone()).collect()
    }
}

impl Rendezvous for LocalRendezvous {
    fn send(&self, key: &Arc<str>, value: Parcel) -> Result<()> {
        let receiver = {
            let mut guard = self.0.lock();
            let state = &mut *guard;
            if let Some(reason) = &state.aborted {
                return Err(reason.clone());
            }
            match state.entries.get_mut(key) {
                Some(Entry::Waiters(waiters)) => {
                    let receiver = waiters.pop_front();
                    if waiters.is_empty() {
                        state.entries.remove(key);
                    }
                    receiver
                }
                Some(Entry::Values(values)) => {
                    values.push_back(value);
                    return Ok(());
                }
                None => {
                    state.entries.insert(key.clone(), Entry::Values(VecDeque::from([value])));
                    return Ok(());
                }
            }
        };
        if let Some((_, receiver)) = receiver {
            receiver(Ok(value));
        }
        Ok(())
    }

    fn receive(&self, key: &Arc<str>, receiver: Receiver) {
        self.receive_or_wait(key, receiver);
    }

    fn abort(&self, reason: Status) {
        let entries = {
            let mut state = self.0.lock();
            if state.aborted.is_some() {
                return;
            }
            state.aborted = Some(reason.clone());
            std::mem::take(&mut state.entries)
        };
        for entry in entries.into_values() {
            if let Entry::Waiters(waiters) = entry {
                waiters.into_iter().for_each(|(_, receiver)| receiver(Err(reason.clone())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::cancelled;
    use std::sync::mpsc::{Receiver as Outcomes, channel};

    fn tensor(value: f32) -> Parcel {
        Some(Tensor::scalar(value).unwrap())
    }

    fn number(parcel: Parcel) -> Option<f32> {
        parcel.map(|tensor| tensor.as_slice::<f32>().unwrap()[0])
    }

    fn receive(rendezvous: &LocalRendezvous, key: &str) -> (Option<WaiterId>, Outcomes<Result<Parcel>>) {
        let (sender, outcomes) = channel();
        let id = rendezvous.receive_or_wait(&Arc::from(key), Box::new(move |outcome| sender.send(outcome).unwrap()));
        (id, outcomes)
    }

    #[test]
    fn either_side_may_be_first_and_values_are_taken_once() {
        let rendezvous = LocalRendezvous::default();
        let key: Arc<str> = Arc::from("a");
        rendezvous.send(&key, tensor(1.0)).unwrap();
        rendezvous.send(&key, None).unwrap();
        assert_eq!(rendezvous.held(), (2, 4));
        assert_eq!(number(receive(&rendezvous, "a").1.recv().unwrap().unwrap()), Some(1.0));
        assert_eq!(number(receive(&rendezvous, "a").1.recv().unwrap().unwrap()), None);
        let (id, waits) = receive(&rendezvous, "a");
        assert!(id.is_some() && waits.try_recv().is_err());
        assert_eq!(rendezvous.awaited(), std::slice::from_ref(&key));
        rendezvous.send(&key, tensor(2.0)).unwrap();
        assert_eq!(number(waits.recv().unwrap().unwrap()), Some(2.0));
        assert!(rendezvous.is_idle());
    }

    #[test]
    fn receives_can_be_withdrawn() {
        let rendezvous = LocalRendezvous::default();
        let (first, gone) = receive(&rendezvous, "a");
        let (_, stays) = receive(&rendezvous, "a");
        rendezvous.withdraw("a", first.unwrap());
        rendezvous.withdraw("a", first.unwrap());
        rendezvous.withdraw("b", first.unwrap());
        assert!(gone.recv().is_err());
        rendezvous.send(&Arc::from("a"), tensor(3.0)).unwrap();
        assert_eq!(number(stays.recv().unwrap().unwrap()), Some(3.0));
    }

    #[test]
    fn the_first_reason_for_an_end_stays() {
        let rendezvous = LocalRendezvous::default();
        let (_, waits) = receive(&rendezvous, "a");
        rendezvous.abort(cancelled!("first"));
        rendezvous.abort(cancelled!("second"));
        assert_eq!(waits.recv().unwrap().err().unwrap().message(), "first");
        assert_eq!(receive(&rendezvous, "b").1.recv().unwrap().err().unwrap().message(), "first");
        assert_eq!(rendezvous.send(&Arc::from("c"), None).err().unwrap().message(), "first");
    }
}
