//! Cron expressions.

mod clock;
mod dialect;
mod differential;
mod garbage;
mod golden;
mod oracle;
mod zones;

use allora_schedule::{Cron, Time};
use std::ops::RangeInclusive;

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

fn at(second: i64) -> Time {
    Time::from_timestamp(second, 0).unwrap()
}

fn cron(text: &str) -> Cron {
    Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A seeded source of choices (SplitMix64): the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn within(&mut self, range: RangeInclusive<i64>) -> i64 {
        let span = (range.end() - range.start() + 1) as u64;
        range.start() + (self.roll() % span) as i64
    }

    fn one_in(&mut self, n: i64) -> bool {
        self.within(1..=n) == 1
    }

    fn choose<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.within(0..=from.len() as i64 - 1) as usize]
    }
}
