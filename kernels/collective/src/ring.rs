//! Rings: each device receives from the one before it and sends to the one behind it.

use crate::merge::{Merge, divide};
use crate::progress::Progress;
use crate::sections::Subdivision;
use graphmill_tensor::{Result, Tensor};
use std::ops::Range;
use std::sync::Arc;

/// A reduction or a gather along rings.
///
/// Each section goes around once from the device of its number on, and is reduced on the way. Of a reduction the result then goes
/// around a second time. In TensorFlow these are the collectives `RingReduce` and `RingGather`.
pub(crate) struct Ring {
    pub progress: Arc<Progress>,
    /// All elements of the own input, as a vector.
    pub input: Tensor,
    /// The sections of the result; those of one chunk are neighbours, one for each ring.
    pub sections: Vec<Range<usize>>,
    pub rings: Vec<Subdivision>,
    /// What is done with the elements of a reduction, and whether the result is divided by the number of devices.
    pub reduction: Option<(Merge, bool)>,
}

impl Ring {
    /// Starts all sections that are not empty.
    pub fn start(self) {
        let ring = Arc::new(self);
        let sections: Vec<usize> =
            ring.sections.iter().enumerate().filter(|(_, range)| !range.is_empty()).map(|(number, _)| number).collect();
        ring.progress.expect(sections.len());
        for section in sections {
            if let Err(error) = ring.begin(section) {
                return ring.progress.fail(error);
            }
        }
        ring.progress.done();
    }

    fn begin(self: &Arc<Self>, section: usize) -> Result<()> {
        let (chunk, place) = (self.chunk(section), self.place(section));
        if chunk == place {
            let own = self.own(section)?;
            return self.reduced(section, own);
        }
        let ring = self.clone();
        self.fetch(0, section, move |received| {
            let value = match ring.reduction {
                Some((merge, _)) => merge.merge(&ring.own(section)?, received)?,
                None => received,
            };
            ring.reduced(section, value)
        });
        Ok(())
    }

    /// Goes on with a section as it is after the own part in the first round.
    fn reduced(self: &Arc<Self>, section: usize, mut value: Tensor) -> Result<()> {
        let (chunk, place, size) = (self.chunk(section), self.place(section), self.progress.size());
        let is_last = place == (chunk + size - 1) % size;
        if !is_last {
            self.post(0, section, value.clone());
        }
        let Some((_, divides)) = self.reduction else { return self.finish(section, &value) };
        if is_last {
            if divides && size > 1 {
                value = divide(value, size)?;
            }
            return self.distribute(section, value);
        }
        let ring = self.clone();
        self.fetch(1, section, move |received| ring.distribute(section, received));
        Ok(())
    }

    /// Passes a result on, unless the next device is where it came from.
    fn distribute(self: &Arc<Self>, section: usize, value: Tensor) -> Result<()> {
        let (chunk, place, size) = (self.chunk(section), self.place(section), self.progress.size());
        if place != (chunk + 2 * size - 2) % size {
            self.post(1, section, value.clone());
        }
        self.finish(section, &value)
    }

    fn finish(&self, section: usize, value: &Tensor) -> Result<()> {
        self.progress.place(self.range(section).start, value)?;
        self.progress.done();
        Ok(())
    }

    fn chunk(&self, section: usize) -> usize {
        section / self.rings.len().max(1)
    }

    fn ring(&self, section: usize) -> Option<&Subdivision> {
        self.rings.get(section % self.rings.len().max(1))
    }

    fn place(&self, section: usize) -> usize {
        self.ring(section).map_or(0, |ring| ring.place)
    }

    fn range(&self, section: usize) -> Range<usize> {
        self.sections.get(section).cloned().unwrap_or_default()
    }

    /// The own elements of a section: of a gather the whole input is the own section.
    fn own(&self, section: usize) -> Result<Tensor> {
        let range = self.range(section);
        match self.reduction {
            Some(_) => self.input.rows(range.start, range.len()),
            None => Ok(self.input.clone()),
        }
    }

    fn post(&self, round: usize, section: usize, value: Tensor) {
        let place = self.place(section);
        let next = self.device(section, place + 1);
        self.progress.post(next, self.key(round, section, place), value);
    }

    fn fetch(&self, round: usize, section: usize, then: impl FnOnce(Tensor) -> Result<()> + Send + 'static) {
        let size = self.progress.size();
        let before = (self.place(section) + size - 1) % size;
        let from = self.device(section, before);
        self.progress.fetch(from, self.key(round, section, before), self.range(section).len(), then);
    }

    /// The rank of the device at a place of a section's ring.
    fn device(&self, section: usize, place: usize) -> usize {
        let order = self.ring(section).map(|ring| ring.order.as_slice()).unwrap_or_default();
        order.get(place % order.len().max(1)).copied().unwrap_or(0)
    }

    fn key(&self, round: usize, section: usize, source: usize) -> String {
        format!("{}:{round}:{section}:{source}", self.progress.key)
    }
}
