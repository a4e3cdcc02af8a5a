//! Numbers by which the members of a collective find each other.

use md5::{Digest, Md5};
use std::collections::HashSet;

/// Keys are below this, 2^31 - 1.
const MODULUS: u128 = 2_147_483_647;

/// The key of a name, the same in every process: its MD5 digest, as one large number, modulo 2^31 - 1.
pub fn instance_key(name: &str) -> u32 {
    let digest: [u8; 16] = Md5::digest(name.as_bytes()).into();
    // The remainder fits, as the modulus does.
    (u128::from_be_bytes(digest) % MODULUS) as u32
}

/// Gives keys away once each. Processes that ask for the same names in the same order get the same keys.
#[derive(Clone, Default, Debug)]
pub struct InstanceKeys {
    used: HashSet<u32>,
}

impl InstanceKeys {
    /// No key is used yet.
    pub fn new() -> InstanceKeys {
        InstanceKeys::default()
    }

    /// The key of the name, or where another name has it, of the name followed by `#1`, `#2` and so on.
    pub fn assign(&mut self, name: &str) -> u32 {
        let mut key = instance_key(name);
        let mut attempt = 0u32;
        while !self.used.insert(key) {
            attempt += 1;
            key = instance_key(&format!("{name}#{attempt}"));
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_autodists() {
        for (name, key) in [
            ("W", 730_952_434),
            ("b", 485_707_823),
            ("emb", 136_606_542),
            ("dense/kernel", 1_451_297_698),
            ("W/part_0", 2_069_518_766),
            ("emb-values", 120_683_369),
            ("10.20.41.146", 1_795_827_271),
            ("", 484_934_813),
        ] {
            assert_eq!(instance_key(name), key, "{name}");
        }
    }

    #[test]
    fn no_key_is_given_twice() {
        let mut keys = InstanceKeys::new();
        assert_eq!(keys.assign("W"), instance_key("W"));
        assert_eq!(keys.assign("W"), instance_key("W#1"));
        assert_eq!(keys.assign("W"), instance_key("W#2"));
    }
}
