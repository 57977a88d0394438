//! The number of instants in a range, computed without visiting them.

use super::{
    civil::{DAY, civil, days_from_civil},
    fields::Fields,
};
use crate::zone::Zone;

/// The matching UTC seconds from `from` (inclusive) to `until` (exclusive). Its cost follows the
/// number of months and of changes of the clock in between.
pub(super) fn count(fields: &Fields, zone: &Zone, once: bool, from: i64, until: i64) -> u64 {
    let (mut from, mut total) = (from, 0);
    let until = until.min(fields.end());
    while from < until {
        let back = zone.cycles_before(from);
        let k = zone.segment_at(from - back);
        let end = zone.end(k).min(until - back);
        total += in_segment(fields, zone, once, k, from - back..end);
        from = end + back;
    }
    total
}

fn in_segment(
    fields: &Fields,
    zone: &Zone,
    once: bool,
    k: usize,
    seconds: std::ops::Range<i64>,
) -> u64 {
    let segment = zone.segments()[k];
    let (from, until) = (seconds.start + segment.offset, seconds.end + segment.offset);
    if !once {
        return fields.count(from, until);
    }
    if seconds.start > segment.start {
        return fields.count(from.max(segment.high), until);
    }
    // The times that a gap skipped run together with those that are due at its end.
    let together = fields.next(segment.high).is_some_and(|wall| wall <= from && wall < until);
    u64::from(together) + fields.count(segment.high.max(from + 1), until)
}

impl Fields {
    /// The matching wall seconds from `from` (inclusive) to `until` (exclusive).
    fn count(&self, from: i64, until: i64) -> u64 {
        if from >= until {
            return 0;
        }
        let (first, last) = (from.div_euclid(DAY), (until - 1).div_euclid(DAY));
        let whole = self.count_days(first, last) * self.times_before(DAY);
        let before = self.count_days(first, first) * self.times_before(from - first * DAY);
        let after = self.count_days(last, last)
            * (self.times_before(DAY) - self.times_before(until - last * DAY));
        whole - before - after
    }

    /// The matching days from `first` to `last` (both inclusive, since 1970).
    fn count_days(&self, first: i64, last: i64) -> u64 {
        let (mut year, mut month, _) = civil(first);
        let mut total = 0;
        loop {
            let start = days_from_civil(year, month, 1);
            if start > last {
                return total;
            }
            let mut days = u64::from(self.days_of(year, month, start)) >> 1;
            // Bit 0 is now the first of the month.
            days &= u64::MAX << (first - start).clamp(0, 31);
            days &= (1 << (last - start + 1).min(31)) - 1;
            total += u64::from(days.count_ones());
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        }
    }

    /// The matching times of a day before this second of it.
    fn times_before(&self, second: i64) -> u64 {
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let below = |bits: u64, end: i64| u64::from((bits & ((1 << end) - 1)).count_ones());
        let all = |bits: u64| u64::from(bits.count_ones());
        let hours = u64::from(self.hours);
        below(hours, hour) * all(self.minutes) * all(self.seconds)
            + (hours >> hour & 1)
                * (below(self.minutes, minute) * all(self.seconds)
                    + (self.minutes >> minute & 1) * below(self.seconds, second))
    }
}
