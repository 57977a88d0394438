//! Durations counted in buckets, so that those of hours, days and jobs add up to those of all.

use std::{collections::BTreeMap, time::Duration};

/// The buckets of each doubling, as a power of two: a bucket is an eighth as wide as its lowest value,
/// or one millisecond.
const BITS: u32 = 3;

/// The bucket of the longest duration.
const LAST: u16 = bucket_of(u64::MAX);

/// Many durations, counted in buckets of about equal relative widths: how long something takes.
///
/// A percentile is off by at most a sixteenth of itself (6.25 %), and exact up to 15 ms. What was counted
/// apart can be [merged](Self::merge) without a further error.
///
/// ```
/// use allora::stored::Spread;
/// use std::time::Duration;
///
/// let mut took = Spread::default();
/// assert_eq!(took.percentile(50), None);
/// for minutes in [8, 9, 9, 9, 40] {
///     took.add(Duration::from_secs(60 * minutes));
/// }
/// assert_eq!(took.count(), 5);
/// assert_eq!(took.percentile(50).unwrap().as_secs() / 60, 9);
/// assert!(took.percentile(99) > Some(Duration::from_secs(60 * 37)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The numbers of durations, by bucket.
    pub(crate) buckets: BTreeMap<u16, u64>,
}

impl Spread {
    /// Counts one more, in whole milliseconds.
    pub fn add(&mut self, took: Duration) {
        let ms = took.as_millis().try_into().unwrap_or(u64::MAX);
        self.add_to(bucket_of(ms), 1);
    }

    /// Counts those of another one, too.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.buckets {
            self.add_to(*bucket, *count);
        }
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.values().fold(0, |all, count| all.saturating_add(*count))
    }

    /// The duration that so many percent do not exceed: 50 is the median. `None` if none was counted, or
    /// for more than 100.
    pub fn percentile(&self, percent: u8) -> Option<Duration> {
        let share = u128::from(self.count()) * u128::from(percent);
        let rank = share.div_ceil(100).max(1);
        let mut seen = 0;
        let reaches = |(_, count): &(&u16, &u64)| {
            seen += u128::from(**count);
            seen >= rank
        };
        let (bucket, _) = self.buckets.iter().find(reaches).filter(|_| percent <= 100)?;
        Some(Duration::from_millis(middle_of(*bucket)))
    }

    fn add_to(&mut self, bucket: u16, more: u64) {
        let count = self.buckets.entry(bucket).or_default();
        *count = count.saturating_add(more);
    }

    /// As a text without blanks: `bucket:count` for each bucket.
    pub(super) fn to_text(&self) -> String {
        let buckets = self.buckets.iter().map(|(bucket, count)| format!("{bucket}:{count}"));
        match buckets.collect::<Vec<_>>().join(",") {
            none if none.is_empty() => "-".into(),
            text => text,
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "-" {
            return Some(Self::default());
        }
        let bucket = |part: &str| {
            let (bucket, count) = part.split_once(':')?;
            let bucket = bucket.parse().ok().filter(|bucket| *bucket <= LAST)?;
            Some((bucket, count.parse().ok()?))
        };
        text.split(',').map(bucket).collect::<Option<_>>().map(|buckets| Self { buckets })
    }
}

/// The bucket of a duration. Up to 15 ms, each has its own; then eight for each doubling.
const fn bucket_of(ms: u64) -> u16 {
    // Below twice as many values as buckets of a doubling, nothing is rounded.
    let rounded = (ms | 1).ilog2().saturating_sub(BITS);
    ((rounded << BITS) as u64 + (ms >> rounded)) as u16
}

/// The value in the middle of a bucket, in milliseconds.
fn middle_of(bucket: u16) -> u64 {
    let rounded = (bucket >> BITS).saturating_sub(1);
    let lowest = u64::from(bucket - (rounded << BITS)) << rounded;
    lowest + (1 << rounded) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(all: impl IntoIterator<Item = u64>) -> Spread {
        let mut spread = Spread::default();
        all.into_iter().for_each(|ms| spread.add(Duration::from_millis(ms)));
        spread
    }

    #[test]
    fn buckets_follow_each_other_and_are_off_by_a_sixteenth_at_most() {
        let powers = (4..63).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]);
        let mut before = 0;
        for ms in (0..5_000).chain(powers.filter(|ms| *ms >= 5_000)).chain([u64::MAX]) {
            let bucket = bucket_of(ms);
            assert!(bucket == before || bucket == before + 1 || ms >= 5_000, "{ms}");
            assert!(before <= bucket && bucket <= LAST, "{ms}");
            let off = middle_of(bucket).abs_diff(ms);
            assert!(off <= ms / 16, "{ms} is {off} off");
            before = bucket;
        }
    }

    #[test]
    fn a_percentile_is_the_value_of_its_rank() {
        let all = spread((1..=15).chain([1_000]));
        let ms = |percent| all.percentile(percent).map(|took| took.as_millis());
        assert_eq!((ms(0), ms(50), ms(93)), (Some(1), Some(8), Some(15)));
        assert_eq!((ms(94), ms(100), ms(101)), (Some(992), Some(992), None));
        assert_eq!(Spread::default().percentile(50), None);
        assert_eq!(spread([0]).percentile(99), Some(Duration::ZERO));
    }

    #[test]
    fn parts_add_up_to_the_whole_in_any_order() {
        let part = |from: u64| (0..400).map(move |i| (i * i * from) % 90_001);
        let whole = spread((1..9).flat_map(part));
        let mut merged = Spread::default();
        (1..9).rev().for_each(|from| merged.merge(&spread(part(from))));
        assert_eq!(merged, whole);
        assert_eq!(merged.count(), 3_200);
    }

    #[test]
    fn a_spread_comes_back_from_its_text_and_damage_is_noticed() {
        for spread in [Spread::default(), spread([0]), spread([3, 3, 70_000, u64::MAX])] {
            assert_eq!(Spread::parse(&spread.to_text()), Some(spread));
        }
        for damaged in ["", "1", "1:", ":1", "1:2,", "1:-2", "496:1", "99999:1", "1:2;3:4"] {
            assert_eq!(Spread::parse(damaged), None, "{damaged}");
        }
    }
}
