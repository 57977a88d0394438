//! Numbers that follow from a seed: the draws, and the hash of what happened.
//!
//! SplitMix64 of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
//! It is part of this crate so that a seed recorded today replays the same run years from now.

/// One stream of numbers.
#[derive(Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// Streams of one seed with different numbers are independent.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed) ^ mix(!stream))
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `bound`, which is not zero. Biased by at most `bound` / 2^64.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.draw()) * bound as u128) >> 64) as usize
    }
}

/// A hash over all events, in order.
#[derive(Debug, Default)]
pub(super) struct Trace(u64);

impl Trace {
    pub(super) fn fold(&mut self, event: [u64; 2]) {
        for part in event {
            self.0 = mix(self.0.rotate_left(5) ^ part);
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.0
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the reference implementation from state 0.
    #[test]
    fn it_is_splitmix64() {
        let mut rng = Rng(0);
        assert_eq!([rng.draw(), rng.draw()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn below_reaches_every_number_and_none_beyond() {
        let mut rng = Rng::new(1, 1);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[rng.below(5)] += 1);
        assert!(seen.iter().all(|&times| times > 100), "{seen:?}");
    }

    #[test]
    fn a_trace_depends_on_the_order() {
        let (mut one, mut other) = (Trace::default(), Trace::default());
        one.fold([1, 2]);
        other.fold([2, 1]);
        assert_ne!(one.hash(), other.hash());
    }
}
