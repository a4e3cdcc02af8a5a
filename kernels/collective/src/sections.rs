//! How a ring cuts a tensor into sections, and in which order the devices stand in it.

use graphmill_runtime::CollectiveMember;
use graphmill_tensor::{Result, internal};
use std::ops::Range;

/// Sections of reductions begin at multiples of this many bytes.
const ALIGNMENT: usize = 64;
/// Largest section that is not worth another subdivision.
const MAX_SECTION: usize = 4 << 20;
/// Subdivisions per device at most, where the op leaves the number open.
const DEFAULT_SUBDIVISIONS: usize = 2;

/// The sections of a tensor of `total` elements for a reduction. Sections are a whole number of alignments long, one more where they
/// would be without padding, so that the last ones may be short or empty.
pub(crate) fn padded(total: usize, element: usize, count: usize) -> Vec<Range<usize>> {
    let bytes = total.div_ceil(count.max(1)).saturating_mul(element);
    let padded = bytes - bytes % ALIGNMENT + ALIGNMENT;
    cut(total, padded / element.max(1), count)
}

/// The sections of a tensor of `total` elements for a gather: one for each device.
pub(crate) fn even(total: usize, count: usize) -> Vec<Range<usize>> {
    cut(total, total.div_ceil(count.max(1)), count)
}

fn cut(total: usize, section: usize, count: usize) -> Vec<Range<usize>> {
    let at = |number: usize| number.saturating_mul(section).min(total);
    (0..count).map(|number| at(number)..at(number + 1)).collect()
}

/// A ring: the order of the devices, and the own place in it.
pub(crate) struct Subdivision {
    /// The ranks of the devices in the order of the ring.
    pub order: Vec<usize>,
    /// The own place.
    pub place: usize,
}

/// The rings for some offsets. In each the devices of a task are rotated by the offset, and backwards where it is negative.
///
/// # Errors
/// `INTERNAL` for a device that is not in the group.
pub(crate) fn subdivisions(members: &[CollectiveMember], rank: usize, offsets: &[i32]) -> Result<Vec<Subdivision>> {
    let per_task = devices_per_task(members);
    let ring = |&offset: &i32| {
        let mut order = Vec::with_capacity(members.len());
        let mut before = 0;
        for &count in &per_task {
            for device in 0..count {
                let rotated = (device + offset.unsigned_abs() as usize) % count;
                order.push(before + if offset < 0 { count - 1 - rotated } else { rotated });
            }
            before += count;
        }
        let place = order.iter().position(|&device| device == rank);
        let place = place.ok_or_else(|| internal!("The group has no rank {rank}"))?;
        Ok(Subdivision { order, place })
    };
    offsets.iter().map(ring).collect()
}

/// How many devices each task has, in the order of the tasks.
pub(crate) fn devices_per_task(members: &[CollectiveMember]) -> Vec<usize> {
    members.chunk_by(|a, b| a.task == b.task).map(<[_]>::len).collect()
}

/// The offsets of a reduction's rings where the node prescribes none: as many that sections are not too long. `most` bounds them
/// per device; below 0 there is one ring, and 0 leaves it open.
pub(crate) fn offsets(bytes: usize, members: &[CollectiveMember], most: i64) -> Vec<i32> {
    let Some(most) = usize::try_from(most).ok() else { return vec![0] };
    let tasks = devices_per_task(members).len().max(1);
    let per_task = members.len() / tasks;
    let most = if most == 0 { DEFAULT_SUBDIVISIONS } else { most }.saturating_mul(per_task);
    let is_enough = |&count: &usize| count >= most || bytes / (members.len() * count).max(1) <= MAX_SECTION;
    let count = (1..).find(is_enough).unwrap_or(1);
    let stride = (per_task / count).max(1);
    let offset = |number: usize| {
        let offset = i32::try_from(stride.saturating_mul(number)).unwrap_or(i32::MAX);
        if number % 2 == 1 { -offset } else { offset }
    };
    (0..count).map(offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(per_task: &[usize]) -> Vec<CollectiveMember> {
        let of_task = |(task, &count): (usize, &usize)| {
            (0..count).map(move |device| CollectiveMember {
                device: format!("{task}:{device}"),
                task: task.to_string(),
                incarnation: 1,
            })
        };
        per_task.iter().enumerate().flat_map(of_task).collect()
    }

    #[test]
    fn sections_are_those_that_tensorflow_sends() {
        for (total, expected) in
            [(1, [4, 0]), (5, [20, 0]), (32, [128, 0]), (40, [128, 32]), (64, [192, 64]), (3000, [6016, 5984])]
        {
            let bytes: Vec<usize> = padded(total, 4, 2).iter().map(|range| range.len() * 4).collect();
            assert_eq!(bytes, expected, "{total}");
        }
        assert!(padded(0, 4, 3).iter().all(Range::is_empty));
        assert_eq!(even(6, 3), [0..2, 2..4, 4..6]);
    }

    #[test]
    fn rings_rotate_the_devices_of_each_task() {
        let members = members(&[2, 3]);
        let orders: Vec<Vec<usize>> =
            subdivisions(&members, 4, &[0, 1, -1]).unwrap().into_iter().map(|ring| ring.order).collect();
        assert_eq!(orders, [vec![0, 1, 2, 3, 4], vec![1, 0, 3, 4, 2], vec![0, 1, 3, 2, 4]]);
        assert_eq!(subdivisions(&members, 4, &[1]).unwrap()[0].place, 3);
        assert!(subdivisions(&members, 5, &[0]).is_err());
    }

    #[test]
    fn long_tensors_get_more_rings_where_the_op_permits() {
        let members = members(&[1, 1]);
        assert_eq!(offsets(64 << 20, &members, -1), [0]);
        assert_eq!(offsets(64 << 20, &members, 0), [0, -1]);
        assert_eq!(offsets(64 << 20, &members, 4), [0, -1, 2, -3]);
        assert_eq!(offsets(100, &members, 4), [0]);
    }
}
