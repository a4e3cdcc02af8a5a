//! The hash of strings that TensorFlow uses within tables, for `StringToHashBucket` and for the numbers of frames.

/// Appleby's MurmurHash64A with TensorFlow's seed.
pub fn hash64(data: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0xDE_CAFC_AFFE;
    let mut hash = SEED ^ (data.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = data.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        k ^= k >> 47;
        hash = (hash ^ k.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, &byte| tail << 8 | u64::from(byte));
        hash = (hash ^ tail).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 47;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 47)
}

/// Two hashes as one, as TensorFlow combines them.
pub fn hash64_combine(a: u64, b: u64) -> u64 {
    a ^ b.wrapping_add(0x9e37_79b9_7f4a_7800).wrapping_add(a << 10).wrapping_add(a >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tf.strings.to_hash_bucket` with as many buckets as an int64 counts.
    #[test]
    fn hashes_are_those_of_tensorflow() {
        assert_eq!(hash64(b"") % (i64::MAX as u64), 105_434_511_174_508_092);
        assert_eq!(hash64(b"Hello, world") % (i64::MAX as u64), 4_457_394_040_870_615_062);
    }
}
