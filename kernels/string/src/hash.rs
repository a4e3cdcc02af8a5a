//! Hashes of strings: `StringToHashBucket`, `StringToHashBucketFast`, `StringToHashBucketStrong`, `Fingerprint`.

use crate::map::map_to;
use graphmill_runtime::{Construction, Context, Kernel, Registry, hash64};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};
use siphasher::sip::SipHasher24;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("StringToHashBucket").kernel(|c| Buckets::new(c, Hash::Murmur));
    registry.op("StringToHashBucketFast").kernel(|c| Buckets::new(c, Hash::Farm));
    registry.op("StringToHashBucketStrong").kernel(|c| match c.attrs().int_list("key")? {
        &[a, b] => Buckets::new(c, Hash::Sip(a as u64, b as u64)),
        _ => Err(invalid_argument!("Key must have 2 elements")),
    });
    registry.op("Fingerprint").kernel(Fingerprint::new);
}

enum Hash {
    Murmur,
    Farm,
    Sip(u64, u64),
}

/// The hash of each string, modulo a number of buckets.
struct Buckets {
    hash: Hash,
    buckets: u64,
}

impl Buckets {
    fn new(c: &Construction<'_>, hash: Hash) -> Result<Buckets> {
        // The schema has a minimum of 1.
        Ok(Buckets { hash, buckets: c.attrs().int("num_buckets")?.max(1) as u64 })
    }
}

impl Kernel for Buckets {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        map_to(ctx, |text| {
            let hash = match self.hash {
                Hash::Murmur => hash64(text),
                Hash::Farm => farmhash::fingerprint64(text),
                Hash::Sip(a, b) => SipHasher24::new_with_keys(a, b).hash(text),
            };
            Ok((hash % self.buckets) as i64)
        })
    }
}

/// The fingerprint of each row: eight bytes.
struct Fingerprint;

impl Fingerprint {
    fn new(c: &Construction<'_>) -> Result<Fingerprint> {
        match c.dtype("T")? {
            DType::Resource | DType::Variant => Err(invalid_argument!("Data type not supported: {}", c.dtype("T")?)),
            _ => Ok(Fingerprint),
        }
    }
}

impl Kernel for Fingerprint {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (data, method) = (ctx.input(0)?, ctx.input(1)?);
        if !method.shape().is_scalar() {
            return Err(invalid_argument!("`method` should be a scalar string: {}", method.shape()));
        }
        let method = method.strings()?.first().map(|m| String::from_utf8_lossy(m)).unwrap_or_default();
        if method != "farmhash64" {
            return Err(invalid_argument!("Unsupported fingerprint method: {method}"));
        }
        if data.shape().is_scalar() {
            return Err(invalid_argument!("`data` should have at least one dimension: {}", data.shape()));
        }
        let rows = data.shape().dim(0);
        let row = data.num_elements().checked_div(rows).unwrap_or(0);
        let mut out = Vec::with_capacity(rows * 8);
        match data.as_bytes() {
            Some(bytes) => {
                let size = row * data.dtype().size();
                for i in 0..rows {
                    let part = bytes.get(i * size..(i + 1) * size).unwrap_or_default();
                    out.extend(farmhash::fingerprint64(part).to_le_bytes());
                }
            }
            None => {
                let strings = data.strings()?;
                let prints: Vec<u8> =
                    strings.iter().flat_map(|text| farmhash::fingerprint64(text).to_le_bytes()).collect();
                if row == 1 {
                    out = prints;
                } else {
                    // Of several strings in a row, the fingerprint of their fingerprints.
                    for i in 0..rows {
                        let part = prints.get(i * row * 8..(i + 1) * row * 8).unwrap_or_default();
                        out.extend(farmhash::fingerprint64(part).to_le_bytes());
                    }
                }
            }
        }
        ctx.set_output(0, Tensor::from_slice(Shape::from_dims(&[rows, 8])?, &out)?)
    }
}
