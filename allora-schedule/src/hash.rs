//! A stable hash: equal on every node, in every version, for ever.

/// A hash that is equal on every machine and in every version of this library.
///
/// FNV-1a over 64 bits (Fowler, Noll, Vo), then the finaliser of MurmurHash3, because the low
/// bits of FNV alone are weak and they are what a remainder looks at.
///
/// The parts are kept apart by a zero byte, which no name contains.
pub fn stable_hash(parts: &[&[u8]]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash = OFFSET;
    for part in parts {
        for byte in *part {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
        // The zero byte: only the multiplication is left of it.
        hash = hash.wrapping_mul(PRIME);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// A number from 0 to `below - 1`, evenly spread; 0 if `below` is 0.
///
/// The high half of a wide product (Lemire), which needs no division and is unbiased.
pub(crate) fn scale(hash: u64, below: u64) -> u64 {
    ((u128::from(hash) * u128::from(below)) >> 64) as u64
}
