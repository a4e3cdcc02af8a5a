//! Damaged and hostile input ends in an error or a message, never in a panic.

use graphmill_wire::tensorflow as tf;
use prost::Message;
use prost::bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::fixtures::{Reencode, calls, codec, reencode};

/// Messages up to this size are cut at every length, larger ones at [`SAMPLES`] lengths.
const EXHAUSTIVE: usize = 600;
const SAMPLES: usize = 100;

/// Marsaglia's xorshift64: the same damage in each run of the tests.
struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// What became of damaged inputs.
#[derive(Default)]
struct Outcome {
    accepted: usize,
    rejected: usize,
}

impl Outcome {
    /// Decodes `bytes`; what decodes has to keep its meaning through another round.
    fn take(&mut self, reencode: Reencode, bytes: Bytes) {
        match reencode(bytes) {
            Ok(once) => {
                let twice = reencode(once.clone().into()).expect("an encoded message decodes");
                assert_eq!(once, twice);
                self.accepted += 1;
            }
            Err(_) => self.rejected += 1,
        }
    }
}

/// Every recorded message with the codec of its type.
fn messages() -> impl Iterator<Item = (Reencode, Bytes)> {
    calls().into_iter().flat_map(|call| {
        let codec = codec(&call.path);
        let response = call.response.map(|bytes| (codec.response, bytes));
        std::iter::once((codec.request, call.request)).chain(response)
    })
}

#[test]
fn cut_messages() {
    let mut random = XorShift(0x9e37_79b9_7f4a_7c15);
    let mut outcome = Outcome::default();
    for (reencode, bytes) in messages() {
        if bytes.len() <= EXHAUSTIVE {
            for end in 0..bytes.len() {
                outcome.take(reencode, bytes.slice(..end));
            }
        } else {
            for _ in 0..SAMPLES {
                outcome.take(reencode, bytes.slice(..random.below(bytes.len())));
            }
        }
    }
    // A cut between two fields leaves a shorter message; any other cut has to be noticed.
    assert!(outcome.accepted > 1_000, "{}", outcome.accepted);
    assert!(outcome.rejected > 10 * outcome.accepted, "{}", outcome.rejected);
}

#[test]
fn flipped_bits() {
    let mut random = XorShift(0x2545_f491_4f6c_dd1d);
    let mut outcome = Outcome::default();
    for (reencode, bytes) in messages().filter(|(_, bytes)| !bytes.is_empty()) {
        for flips in 1..=16 {
            let mut damaged = bytes.to_vec();
            for _ in 0..flips {
                let at = random.below(damaged.len());
                damaged[at] ^= 1 << random.below(8);
            }
            outcome.take(reencode, damaged.into());
        }
    }
    assert!(outcome.accepted > 1_000, "{}", outcome.accepted);
    assert!(outcome.rejected > 1_000, "{}", outcome.rejected);
}

#[test]
fn random_bytes() {
    let mut random = XorShift(0xd1b5_4a32_d192_ed03);
    let mut outcome = Outcome::default();
    for (reencode, _) in messages() {
        let length = random.below(64);
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        outcome.take(reencode, bytes.into());
    }
    assert!(outcome.rejected > 500, "{}", outcome.rejected);
}

/// `levels` messages inside one another, each the field `tags[i % tags.len()]` of the one around it.
fn nested(tags: &[u32], levels: usize) -> Bytes {
    // Built from the inside out and backwards, so that the time is linear in the number of levels.
    let mut reversed = Vec::new();
    for level in (0..levels).rev() {
        let mut head = Vec::new();
        encode_key(tags[level % tags.len()], WireType::LengthDelimited, &mut head);
        encode_varint(reversed.len() as u64, &mut head);
        reversed.extend(head.iter().rev());
    }
    reversed.reverse();
    reversed.into()
}

#[test]
fn nesting_is_bounded() {
    // Variants in tensors and tensors in variants; attributes in functions, by a map and by a list;
    // types in types; structured values in lists.
    let cycles: [(Reencode, &[u32]); 5] = [
        (reencode::<tf::TensorProto>, &[15, 3]),
        (reencode::<tf::NameAttrList>, &[2, 2, 10]),
        (reencode::<tf::AttrValue>, &[1, 9, 2, 2]),
        (reencode::<tf::FullTypeDef>, &[2]),
        (reencode::<tf::StructuredValue>, &[51, 1]),
    ];
    for (reencode, tags) in cycles {
        assert!(reencode(nested(tags, 40)).is_ok(), "{tags:?}");
        for levels in [200, 10_000, 200_000] {
            assert!(reencode(nested(tags, levels)).is_err(), "{tags:?} {levels}");
        }
    }
}

#[test]
fn unknown_groups_are_bounded() {
    const UNKNOWN: u32 = 1000;
    let groups = |levels: usize| {
        let mut bytes = Vec::new();
        (0..levels).for_each(|_| encode_key(UNKNOWN, WireType::StartGroup, &mut bytes));
        (0..levels).for_each(|_| encode_key(UNKNOWN, WireType::EndGroup, &mut bytes));
        Bytes::from(bytes)
    };
    assert!(tf::RunStepRequest::decode(groups(10)).is_ok());
    assert!(tf::RunStepRequest::decode(groups(100_000)).is_err());
}

#[test]
fn lengths_beyond_the_input_are_refused() {
    // A length-delimited field of each kind: string, bytes, message, packed numbers, map entry.
    let fields: [(Reencode, u32); 5] = [
        (reencode::<tf::CreateSessionRequest>, 3),
        (reencode::<tf::TensorProto>, 4),
        (reencode::<tf::CreateSessionRequest>, 1),
        (reencode::<tf::TensorProto>, 5),
        (reencode::<tf::NodeDef>, 5),
    ];
    for (reencode, tag) in fields {
        for length in [1, 127, 1 << 31, (1 << 32) + 1, 1 << 62, u64::MAX] {
            let mut bytes = Vec::new();
            encode_key(tag, WireType::LengthDelimited, &mut bytes);
            encode_varint(length, &mut bytes);
            assert!(reencode(bytes.into()).is_err(), "field {tag}, length {length}");
        }
    }
}

#[test]
fn text_has_to_be_utf8() {
    let mut bytes = Vec::new();
    encode_key(1, WireType::LengthDelimited, &mut bytes);
    bytes.extend([2, 0xc3, 0x28]);
    assert!(tf::CloseSessionRequest::decode(Bytes::from(bytes)).is_err());
}

#[test]
fn numbers_may_come_packed_or_not() {
    let values = [1.5f32, -2.0];
    let mut unpacked = Vec::new();
    for value in values {
        encode_key(5, WireType::ThirtyTwoBit, &mut unpacked);
        unpacked.extend(value.to_le_bytes());
    }
    let mut packed = Vec::new();
    encode_key(5, WireType::LengthDelimited, &mut packed);
    encode_varint(8, &mut packed);
    packed.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    for bytes in [unpacked, packed] {
        let tensor = tf::TensorProto::decode(Bytes::from(bytes)).expect("both forms are valid");
        assert_eq!(tensor.float_val, values);
    }
}

#[test]
fn tensor_content_shares_the_received_buffer() {
    let content = Bytes::from(vec![7; 4096]);
    let tensor = tf::TensorProto { tensor_content: content, ..Default::default() };
    let received = Bytes::from(tensor.encode_to_vec());
    let decoded = tf::TensorProto::decode(received.clone()).expect("the message is valid");
    let offset = received.len() - 4096;
    assert_eq!(decoded.tensor_content.as_ptr(), received[offset..].as_ptr());
}
