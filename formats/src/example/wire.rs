//! Walking serialized messages.

use crate::coding::take_varint;
use std::collections::HashMap;

/// The value of a field of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64,
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The fields of a message, one after the other; an item is `None` where the message is broken.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            // Nothing behind a broken field can be found.
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = take_varint(&mut self.0)?;
        let number = tag >> 3;
        if number == 0 {
            return None;
        }
        let value = match tag & 7 {
            0 => Value::Varint(take_varint(&mut self.0)?),
            1 => {
                self.take(8)?;
                Value::Fixed64
            }
            2 => {
                let length = usize::try_from(take_varint(&mut self.0)?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((number, value))
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, back) = self.0.split_at_checked(count)?;
        self.0 = back;
        Some(front)
    }
}

/// The kind of a feature's list, and the list's message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Feature<'a> {
    Missing,
    Strings(&'a [u8]),
    Floats(&'a [u8]),
    Integers(&'a [u8]),
}

impl<'a> Feature<'a> {
    /// From a `Feature` message; of several lists the last counts.
    pub(crate) fn parse(message: &'a [u8]) -> Option<Feature<'a>> {
        let mut feature = Feature::Missing;
        for field in Fields(message) {
            feature = match field? {
                (1, Value::Bytes(list)) => Feature::Strings(list),
                (2, Value::Bytes(list)) => Feature::Floats(list),
                (3, Value::Bytes(list)) => Feature::Integers(list),
                _ => feature,
            };
        }
        Some(feature)
    }
}

/// The features by name that a `Features` message holds, added to those that are there; a later one replaces an earlier one. `wanted`
/// says which names matter.
pub(crate) fn features_of<'a>(
    message: &'a [u8],
    wanted: impl Fn(&[u8]) -> bool,
    found: &mut HashMap<&'a [u8], &'a [u8]>,
) -> Option<()> {
    for field in Fields(message) {
        let (1, Value::Bytes(entry)) = field? else { continue };
        let (mut name, mut value): (&[u8], &[u8]) = (&[], &[]);
        for field in Fields(entry) {
            match field? {
                (1, Value::Bytes(bytes)) => name = bytes,
                (2, Value::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        if wanted(name) {
            found.insert(name, value);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_messages_end() {
        assert_eq!(Fields(&[]).next(), None);
        let all: Vec<_> = Fields(&[0x08, 0x96, 0x01, 0x12, 0x02, 7, 8]).collect();
        assert_eq!(all, [Some((1, Value::Varint(150))), Some((2, Value::Bytes(&[7, 8])))]);
        for broken in [&[0x12, 0x7f][..], &[0x0b], &[0x00], &[0x0d, 1], &[0x80]] {
            assert_eq!(Fields(broken).collect::<Vec<_>>(), [None], "{broken:?}");
        }
    }
}
